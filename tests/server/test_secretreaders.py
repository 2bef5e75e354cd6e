"""The credential plugins as programs: against a real API server, run by hand and by kubectl."""

import asyncio
import base64
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from knfleet.api.core import NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.meta import Object, Resource
from knfleet.kube.auth.exec_plugin import ClusterInfo, ExecPlugin
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.yaml import dump_all
from testbed.clusters import Lent, kubectl

ROLES = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
PLUGINS = Path(sys.executable).parent
V1 = "client.authentication.k8s.io/v1"
HOME = "knative-operator"
TOKEN_LOGIN: Object = {
    "current-context": "x",
    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    "users": [{"name": "x", "user": {"token": "hidden-value"}}],
}
"""A kubeconfig that connects with a token."""


def program(name: str) -> str:
    """The path of an installed plugin."""
    return str(PLUGINS / name)


async def account(client: Client, name: str, namespace: str) -> str:
    """A ServiceAccount, and a token of it that ends."""
    manifest: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await client.create(SERVICE_ACCOUNTS, manifest, namespace)
    request: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    answer = await client.create(
        SERVICE_ACCOUNTS, request, namespace, name=name, subresource="token"
    )
    return answer["status"]["token"]


async def store(client: Client, name: str, data: dict[str, str], namespace: str = HOME) -> None:
    """A Secret."""
    manifest: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": data,
    }
    await client.create(SECRETS, manifest, namespace)


async def allow(client: Client, user: str, *secrets: str) -> None:
    """Let an account read some Secrets of its namespace, and nothing else."""
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [*secrets]}
    await client.create(
        ROLES,
        {
            "apiVersion": ROLES.api_version,
            "kind": "Role",
            "metadata": {"name": user},
            "rules": [rule | {"verbs": ["get"]}],
        },
        HOME,
    )
    await client.create(
        BINDINGS,
        {
            "apiVersion": BINDINGS.api_version,
            "kind": "RoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": user},
            "subjects": [{"kind": "ServiceAccount", "name": user, "namespace": HOME}],
        },
        HOME,
    )


@pytest.fixture
async def pod(hub: Client, hub_connection: Connection, tmp_path: Path) -> dict[str, str]:
    """The environment of a pod that may read the Secrets `s1`, `s2` and `empty`, no more."""
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}}
    await hub.create(NAMESPACES, namespace)
    folder = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    folder.mkdir(parents=True)
    (folder / "token").write_text(await account(hub, "reader", HOME))
    (folder / "ca.crt").write_bytes(hub_connection.endpoint.ca or b"")
    (folder / "namespace").write_text(HOME)
    await allow(hub, "reader", "s1", "s2", "empty", "spoke-1")
    server = urlsplit(hub_connection.endpoint.server)
    return {
        "KNFLEET_POD_ROOT": str(tmp_path),
        "KUBERNETES_SERVICE_HOST": server.hostname or "",
        "KUBERNETES_SERVICE_PORT": str(server.port),
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
    }


async def run(name: str, environ: dict[str, str], config: Any) -> tuple[int, str, str]:
    """Run a plugin for a cluster; its exit code, output and complaint."""
    cluster: Object = {"server": "https://spoke.test"}
    if config is not None:
        cluster["config"] = config
    info: Object = {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"cluster": cluster, "interactive": False},
    }
    process = await asyncio.create_subprocess_exec(
        program(name),
        env=environ | {"KUBERNETES_EXEC_INFO": json.dumps(info)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaint = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, output.decode(), complaint.decode()


async def test_a_pods_plugin_reads_the_token_that_it_may_read(
    hub: Client, pod: dict[str, str]
) -> None:
    """In the pod's own namespace, as the pod's account; the end of the token comes with it."""
    token = await account(hub, "spoke", "default")
    await store(hub, "s1", {"token": f"{token}\n"})

    code, output, complaint = await run("secretreader-plugin", pod, {"clusterName": "s1"})

    assert (code, complaint) == (0, "")
    answer = json.loads(output)
    assert (answer["apiVersion"], answer["kind"]) == (V1, "ExecCredential")
    assert answer["status"]["token"] == token
    assert answer["status"]["expirationTimestamp"].endswith("Z")


async def test_all_names_of_a_plugin_are_the_same_program(
    hub: Client, pod: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference image's name, ours, and the command; the client takes its answer."""
    await store(hub, "s1", {"token": "opaque"})
    for name, value in pod.items():
        monkeypatch.setenv(name, value)
    cluster = ClusterInfo("https://spoke.test", config={"clusterName": "s1"})
    commands = [
        (program("secretreader-plugin"),),
        (program("knfleet-secretreader"),),
        (program("knfleet"), "plugin", "secretreader"),
    ]

    for command, *arguments in commands:
        found = await ExecPlugin(command, args=tuple(arguments), cluster=cluster).fetch()
        assert (found.token, found.expires) == ("opaque", None)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "missing ExecCredential.Spec.Cluster.Config"),
        ({}, "missing clusterName"),
        ({"clusterName": "s2"}, f'failed to get secret {HOME}/s2: secrets "s2" not found'),
        ({"clusterName": "other"}, 'secrets "other" is forbidden'),
        ({"clusterName": "../../pods"}, "failed to get secret"),
        ({"clusterName": "empty"}, 'missing "token" key; its keys are: tokn'),
    ],
)
async def test_what_is_wrong_is_one_line(
    hub: Client, pod: dict[str, str], config: Any, words: str
) -> None:
    """Exit code 1, nothing on standard output, and no secret in the line."""
    await store(hub, "empty", {"tokn": "hidden-value"})

    code, output, complaint = await run("secretreader-plugin", pod, config)

    assert (code, output) == (1, "")
    assert complaint.startswith("[secretreader] ")
    assert words in complaint
    assert complaint.count("\n") == 1
    assert "hidden-value" not in complaint


async def test_a_server_that_is_not_there_is_named(pod: dict[str, str]) -> None:
    """With the reason that the system gives."""
    pod["KUBERNETES_SERVICE_PORT"] = "1"

    code, _, complaint = await run("secretreader-plugin", pod, {"clusterName": "s1"})

    assert code == 1
    assert "no answer from https://127.0.0.1:1: Connection refused" in complaint


async def test_a_profile_without_configuration_is_found_by_its_name(
    hub: Client, pod: dict[str, str]
) -> None:
    """When knfleet says whose cluster it asks for, the profile's name is the Secret's."""
    await store(hub, "spoke-1", {"token": "by-name"})
    pod["KNFLEET_CLUSTER_PROFILE"] = f"{HOME}/spoke-1"

    code, output, complaint = await run("secretreader-plugin", pod, None)

    assert (code, complaint) == (0, "")
    assert json.loads(output)["status"] == {"token": "by-name"}


async def test_credentials_beside_the_profile_are_found(hub: Client, lent: Lent) -> None:
    """`<profile>-credentials` in the profile's namespace, when nothing there has its name."""
    await store(hub, "spoke-1-credentials", {"token": "beside"}, "kube-public")

    code, output, complaint = await run(
        "secretreader-plugin", as_admin(lent, "kube-public/spoke-1"), None
    )

    assert (code, complaint) == (0, "")
    assert json.loads(output)["status"] == {"token": "beside"}


def as_admin(lent: Lent, profile: str, **more: str) -> dict[str, str]:
    """The environment of a plugin that may read every Secret, asked for a profile."""
    environ = {"KUBECONFIG": str(lent.kubeconfig), "PATH": os.environ["PATH"]}
    return environ | {"KNFLEET_CLUSTER_PROFILE": profile} | more


ELSEWHERE: list[tuple[str, Any]] = [
    ("secretreader-plugin", {"clusterName": "s1", "namespace": "kube-system"}),
    ("secretreader-plugin", {"clusterName": "s1"}),
    ("secretreader-plugin", None),
    ("kubeconfig-secretreader-plugin", {"name": "s1", "key": "k", "namespace": "kube-system"}),
    ("kubeconfig-secretreader-plugin", {"name": "s1", "key": "k"}),
]
"""Configurations of the profile `kube-public/s1` that lead to Secrets of other namespaces."""


@pytest.mark.parametrize(("plugin", "config"), ELSEWHERE)
async def test_a_profile_gets_no_secret_of_another_namespace(
    hub: Client, lent: Lent, plugin: str, config: Any
) -> None:
    """Who writes a profile chooses the server too: the Secret would be sent there."""
    data = {"token": "hidden-value", "k": json.dumps(TOKEN_LOGIN)}
    for namespace in ("kube-system", "default"):
        await store(hub, "s1", data, namespace)

    code, output, complaint = await run(plugin, as_admin(lent, "kube-public/s1"), config)

    assert (code, output) == (1, "")
    assert "kube-public" in complaint
    assert "KNFLEET_SECRET_NAMESPACES" in complaint
    assert "hidden-value" not in complaint


@pytest.mark.parametrize(("plugin", "config"), ELSEWHERE)
async def test_the_operators_configuration_permits_other_namespaces(
    hub: Client, lent: Lent, plugin: str, config: Any
) -> None:
    """By a variable of the provider's entry, which no profile can set."""
    data = {"token": "hidden-value", "k": json.dumps(TOKEN_LOGIN)}
    for namespace in ("kube-system", "default"):
        await store(hub, "s1", data, namespace)

    listed = "kube-system, default"
    environ = as_admin(lent, "kube-public/s1", KNFLEET_SECRET_NAMESPACES=listed)
    code, output, complaint = await run(plugin, environ, config)

    assert (code, complaint) == (0, "")
    assert json.loads(output)["status"] == {"token": "hidden-value"}


async def test_the_secret_beside_the_profile_comes_first(
    hub: Client, pod: dict[str, str], lent: Lent
) -> None:
    """Two profiles of one name have two Secrets, and where one may not be read the other counts."""
    await store(hub, "s1", {"token": "own"}, "kube-public")
    await store(hub, "s1", {"token": "default"}, "default")
    await store(hub, "s1", {"token": "operator"})
    more = {"KNFLEET_SECRET_NAMESPACES": "*"}
    config = {"clusterName": "s1"}

    found = [
        await run("secretreader-plugin", as_admin(lent, "kube-public/s1", **more), config),
        await run(
            "secretreader-plugin", pod | more | {"KNFLEET_CLUSTER_PROFILE": "other/s1"}, config
        ),
    ]

    assert [json.loads(output)["status"]["token"] for _, output, _ in found] == ["own", "operator"]


async def test_without_a_profile_only_the_plugins_own_namespace_is_read(
    hub: Client, lent: Lent
) -> None:
    """Another operator does not say which profile it asks for, so that nothing can be compared."""
    await store(hub, "s1", {"k": json.dumps(TOKEN_LOGIN)}, "kube-system")
    config = {"name": "s1", "key": "k", "namespace": "kube-system"}

    code, output, complaint = await run(
        "kubeconfig-secretreader-plugin", as_admin(lent, ""), config
    )

    assert (code, output) == (1, "")
    assert "KNFLEET_SECRET_NAMESPACES" in complaint


async def test_outside_of_a_cluster_the_kubeconfig_counts(hub: Client, lent: Lent) -> None:
    """Its user, its certificate, and the namespace of its context."""
    await store(hub, "s1", {"token": "opaque"}, "default")
    environ = {"KUBECONFIG": str(lent.kubeconfig), "PATH": os.environ["PATH"]}

    code, output, complaint = await run("secretreader-plugin", environ, {"clusterName": "s1"})

    assert (code, complaint) == (0, "")
    assert json.loads(output)["status"] == {"token": "opaque"}


async def test_without_any_cluster_it_says_so(tmp_path: Path) -> None:
    """Both ways are named."""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    code, _, complaint = await run("secretreader-plugin", environ, {"clusterName": "s1"})

    assert code == 1
    assert "neither in a cluster, nor with a kubeconfig" in complaint
    assert "set KUBECONFIG" in complaint


async def test_a_kubeconfig_in_a_secret_logs_in(
    hub: Client, lent: Lent, pod: dict[str, str]
) -> None:
    """The administrator's, which has a certificate; and the token of another context."""
    await store(hub, "s1", {"kubeconfig": lent.kubeconfig.read_text()})

    code, output, complaint = await run(
        "kubeconfig-secretreader-plugin", pod, {"name": "s1", "key": "kubeconfig"}
    )

    assert (code, complaint) == (0, "")
    status = json.loads(output)["status"]
    assert status["clientCertificateData"].startswith("-----BEGIN CERTIFICATE-----")
    assert "PRIVATE KEY-----" in status["clientKeyData"]


def with_plugin(path: Path, lent: Lent, plugin: str, config: dict[str, str]) -> Path:
    """A kubeconfig whose user is a plugin."""
    endpoint = lent.connection.endpoint
    exec_: Object = {"apiVersion": V1, "command": program(plugin), "interactiveMode": "Never"}
    cluster: Object = {
        "server": endpoint.server,
        "certificate-authority-data": base64.b64encode(endpoint.ca or b"").decode(),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": config}],
    }
    kubeconfig: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": cluster}],
        "users": [{"name": "x", "user": {"exec": exec_ | {"provideClusterInfo": True}}}],
    }
    path.write_text(dump_all([kubeconfig]))
    return path


async def whoami(kubeconfig: Path, environ: dict[str, str]) -> str:
    """Who kubectl is to the server."""
    process = await asyncio.create_subprocess_exec(
        *(kubectl(), "--kubeconfig", str(kubeconfig), "auth", "whoami"),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    return output.decode()


async def test_kubectl_logs_in_with_both_plugins(
    hub: Client, lent: Lent, pod: dict[str, str], tmp_path: Path
) -> None:
    """Through exec entries of a kubeconfig, as people and client-go use them."""
    token = await account(hub, "spoke", "default")
    await store(hub, "s1", {"token": token})
    await store(hub, "s2", {"config": lent.kubeconfig.read_text()})
    reading = with_plugin(tmp_path / "1", lent, "secretreader-plugin", {"clusterName": "s1"})
    found = {"name": "s2", "key": "config", "namespace": HOME}
    admin = with_plugin(tmp_path / "2", lent, "kubeconfig-secretreader-plugin", found)

    names = [await whoami(reading, pod), await whoami(admin, pod)]

    assert "system:serviceaccount:default:spoke" in names[0]
    assert "X509SHA256=" in names[1]
