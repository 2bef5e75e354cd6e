"""A cluster as a ClusterProfile shows it: the operator installs there as if it were far away.

Unless there is another, the profile leads to the very cluster on which the operator runs, through
the same way that any other would: profile, access provider, credential plugin.
"""

import base64
import sys
from pathlib import Path
from typing import cast

import msgspec

from knfleet.api.core import SECRETS
from knfleet.api.crds.generator import definitions
from knfleet.api.inventory import CONTROL_PLANE_HEALTHY, PROFILES
from knfleet.api.knative.resources import GROUP
from knfleet.api.meta import Key, Object
from knfleet.dev.dev_folder import write_private
from knfleet.kube.auth.kubeconfig_entries import EXEC_EXTENSION
from knfleet.kube.client.verbs import Client
from testbed.clusters import Lent
from testbed.peers.surroundings import define, ensure_namespace

PROVIDER, KEY = "lab", "kubeconfig"
CREDENTIALS = "client.authentication.k8s.io/v1"


def profile_of(manifest: Object) -> Key | None:
    """The profile of the cluster that a custom resource is meant for."""
    reference = cast("Object | None", manifest["spec"].get("clusterProfileRef"))
    return None if reference is None else Key(reference["namespace"], reference["name"])


async def offer(
    client: Client, lent: Lent, profile: Key, folder: Path, *, hub: Lent | None = None
) -> list[str]:
    """Publish a cluster under the name of a profile; the operator's options to reach it."""
    await define(client, [crd for crd in definitions() if crd["spec"]["group"] != GROUP])
    await ensure_namespace(client, profile.namespace)
    meta = {"name": profile.name, "namespace": profile.namespace}
    spec = {"clusterManager": {"name": PROVIDER}, "displayName": profile.name}
    manifest: Object = {"apiVersion": PROFILES.api_version, "kind": PROFILES.kind}
    await client.create(PROFILES, {**manifest, "metadata": meta, "spec": spec}, profile.namespace)
    status = {"accessProviders": [{"name": PROVIDER, "cluster": address(lent, profile)}]}
    healthy = {
        "type": CONTROL_PLANE_HEALTHY,
        "status": "True",
        "reason": "Healthy",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    patch = {"status": {**status, "conditions": [healthy]}}
    await client.patch(PROFILES, profile, patch, subresource="status")
    providers = await plugin(client, lent, profile, folder, hub or lent)
    return ["--clusterprofile-provider-file", str(providers)]


def address(lent: Lent, profile: Key) -> Object:
    """Where the cluster is, as profiles say it."""
    endpoint = lent.connection.endpoint
    assert endpoint.ca is not None
    authority = base64.b64encode(endpoint.ca).decode()
    config = {"name": PROVIDER, "key": KEY, "namespace": profile.namespace}
    return {
        "server": endpoint.server,
        "certificate-authority-data": authority,
        "extensions": [{"name": EXEC_EXTENSION, "extension": config}],
    }


async def plugin(client: Client, lent: Lent, profile: Key, folder: Path, hub: Lent) -> Path:
    """A file of access providers with our own plugin, which reads the administrator's kubeconfig.

    So the Knative Operator itself logs in with a plugin of ours.
    """
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": PROVIDER}}
    data = {KEY: lent.kubeconfig.read_text()}
    await client.create(SECRETS, {**secret, "stringData": data}, profile.namespace)
    # The Knative Operator does not say for which profile it asks.
    env = {"KUBECONFIG": str(hub.kubeconfig), "KNFLEET_SECRET_NAMESPACES": profile.namespace}
    run: Object = {
        "apiVersion": CREDENTIALS,
        "command": str(Path(sys.executable).parent / "kubeconfig-secretreader-plugin"),
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "provideClusterInfo": True,
    }
    providers = folder / "providers.json"
    content = {"providers": [{"name": PROVIDER, "execConfig": run}]}
    write_private(providers, msgspec.json.encode(content))
    return providers
