"""Registers dev clusters on the hub by hand, as the multi-cluster guide does it.

On the spoke a ServiceAccount with the rights of an administrator gets a token; on the hub a Secret
holds it, a ClusterProfile says where the spoke is, and a file tells the operator which program
reads the Secret.
"""

import asyncio
import base64
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from knfleet.api.core import CLUSTER_ROLE_BINDINGS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.inventory import CONTROL_PLANE_HEALTHY, PROFILES
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import part
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.dev_folder import write_private
from knfleet.dev.errors import DevError
from knfleet.kube import yaml
from knfleet.kube.client.verbs import Client

FLEET = "fleet-system"
ACCOUNT = Key("kube-system", "knative-operator-spoke")
TOKEN_SECRET = Key("kube-system", "knative-operator-spoke-token")
PROVIDER = "secretreader"
TOKEN_SECONDS = 30.0


def provider_file(ground: DevClusters) -> Path:
    """Write the file that names the credential plugin; the plugin reads Secrets of `FLEET`."""
    home = ground.folder.cluster("hub")
    kubeconfig = home / "plugin.kubeconfig"
    config = yaml.load((home / "admin.kubeconfig").read_bytes())
    for context in config["contexts"]:
        context["context"]["namespace"] = FLEET
    write_private(kubeconfig, msgspec.json.encode(config))
    path = home / "access-providers.json"
    plugin = Path(sys.executable).with_name("secretreader-plugin")
    entry: Object = {
        "name": PROVIDER,
        "execConfig": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "env": [{"name": "KUBECONFIG", "value": str(kubeconfig)}],
            "provideClusterInfo": True,
        },
    }
    write_private(path, msgspec.json.encode({"providers": [entry]}))
    return path


async def register(ground: DevClusters, hub: Client, name: str) -> Key:
    """Make a spoke known on the hub; the key of its ClusterProfile."""
    key = Key(FLEET, name)
    async with Client(ground.connection(name)) as spoke:
        token = await spoke_token(spoke)
    endpoint = ground.connection(name).endpoint
    await hub.apply(NAMESPACES, manifest("v1", "Namespace", Key("", FLEET)))
    await hub.apply(SECRETS, manifest("v1", "Secret", key) | {"stringData": {"token": token}})
    profile = manifest(PROFILES.api_version, PROFILES.kind, key)
    profile["metadata"]["labels"] = {"x-k8s.io/cluster-manager": "knative-operator"}
    profile["spec"] = {"displayName": name, "clusterManager": {"name": "knative-operator"}}
    await hub.apply(PROFILES, profile)
    status = profile_status(name, endpoint.server, endpoint.ca or b"")
    await hub.patch(PROFILES, key, {"status": status}, subresource="status")
    return key


async def spoke_token(spoke: Client) -> str:
    """A token with all rights on a spoke."""
    await spoke.apply(SERVICE_ACCOUNTS, manifest("v1", "ServiceAccount", ACCOUNT))
    binding = manifest("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", Key("", ACCOUNT.name))
    binding["roleRef"] = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    }
    subject = {"kind": "ServiceAccount", "name": ACCOUNT.name, "namespace": ACCOUNT.namespace}
    await spoke.apply(CLUSTER_ROLE_BINDINGS, binding | {"subjects": [subject]})
    secret = manifest("v1", "Secret", TOKEN_SECRET)
    secret["metadata"]["annotations"] = {"kubernetes.io/service-account.name": ACCOUNT.name}
    await spoke.apply(SECRETS, secret | {"type": "kubernetes.io/service-account-token"})
    try:
        async with asyncio.timeout(TOKEN_SECONDS):
            while True:
                found = await spoke.get(SECRETS, TOKEN_SECRET.name, TOKEN_SECRET.namespace)
                if token := part(found, "data").get("token"):
                    return base64.b64decode(token).decode()
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise DevError(
            f"Secret {TOKEN_SECRET} on {spoke.cluster} got no token within {TOKEN_SECONDS:g} s;"
            " see the log of its controller-manager"
        ) from None


def profile_status(name: str, server: str, ca: bytes) -> Object:
    """The status of a healthy spoke."""
    healthy: Object = {
        "type": CONTROL_PLANE_HEALTHY,
        "status": "True",
        "reason": "Manual",
        "message": "Status set manually",
        "lastTransitionTime": timestamp(datetime.now(UTC)),
    }
    cluster: Object = {
        "server": server,
        "certificate-authority-data": base64.b64encode(ca).decode(),
        "extensions": [
            {"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": name}}
        ],
    }
    return {"conditions": [healthy], "accessProviders": [{"name": PROVIDER, "cluster": cluster}]}


def manifest(api_version: str, kind: str, key: Key) -> Object:
    """An object with nothing but its name."""
    metadata = {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
