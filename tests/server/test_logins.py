"""Every way to log in, against a real API server."""

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from knfleet.api.core import NAMESPACES, SERVICE_ACCOUNTS
from knfleet.api.meta import Resource
from knfleet.kube.auth import kubeconfig
from knfleet.kube.auth.credentials import StaticCredential
from knfleet.kube.auth.in_cluster import in_cluster
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.yaml import dump_all, load_all
from testbed.clusters import kubectl

REVIEWS = Resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)
V1 = "client.authentication.k8s.io/v1"


async def who_am_i(client: Client) -> str:
    """The name by which the server knows us."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.create(REVIEWS, review)
    return answer["status"]["userInfo"]["username"]


async def token_for(client: Client, name: str) -> str:
    """A token of a ServiceAccount, which is made for it."""
    account: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": "default"},
    }
    await client.create(SERVICE_ACCOUNTS, account, "default")
    request: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    answer = await client.create(
        SERVICE_ACCOUNTS, request, "default", name=name, subresource="token"
    )
    return answer["status"]["token"]


def written(folder: Path, connection: Connection, user: dict[str, Any]) -> Path:
    """A kubeconfig for the real cluster with some user."""
    ca = base64.b64encode(connection.endpoint.ca or b"").decode()
    cluster = {"server": connection.endpoint.server, "certificate-authority-data": ca}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "real",
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "me"}}],
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(dump_all([config]))
    return path


async def test_certificate_files_log_in(
    hub: Client, hub_connection: Connection, tmp_path: Path
) -> None:
    """The user is the one in the certificate."""
    assert isinstance(hub_connection.credentials, StaticCredential)
    credential = hub_connection.credentials.credential
    (tmp_path / "crt").write_bytes(credential.client_certificate or b"")
    (tmp_path / "key").write_bytes(credential.client_key or b"")
    path = written(tmp_path, hub_connection, {"client-certificate": "crt", "client-key": "key"})

    async with Client(kubeconfig.load([path])) as client:
        assert await who_am_i(hub) == await who_am_i(client)


async def test_a_new_token_in_the_file_is_used_after_a_rejection(
    hub: Client, hub_connection: Connection, tmp_path: Path
) -> None:
    """The server does not accept the first; the second is there before the retry."""
    token = await token_for(hub, "from-a-file")
    (tmp_path / "token").write_text("not-a-good-one")
    path = written(tmp_path, hub_connection, {"tokenFile": "token", "token": "ignored"})

    async with Client(kubeconfig.load([path])) as client:
        await client.transport.login.current()
        (tmp_path / "token").write_text(token)

        assert await who_am_i(client) == "system:serviceaccount:default:from-a-file"


async def test_a_pod_logs_in_as_its_service_account(
    hub: Client, hub_connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing but what every pod has."""
    folder = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    folder.mkdir(parents=True)
    (folder / "token").write_text(await token_for(hub, "in-a-pod"))
    (folder / "ca.crt").write_bytes(hub_connection.endpoint.ca or b"")
    (folder / "namespace").write_text("default")
    address = urlsplit(hub_connection.endpoint.server)
    monkeypatch.setenv("KNFLEET_POD_ROOT", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(address.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))

    async with Client(in_cluster()) as client:
        assert await who_am_i(client) == "system:serviceaccount:default:in-a-pod"


async def test_fifty_requests_share_one_run_of_the_plugin(
    hub: Client, hub_connection: Connection, tmp_path: Path
) -> None:
    """And one more run brings the next token, when the server has rejected the first."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"""#!{sys.executable} -S
import json, os
os.close(os.open({str(tmp_path)!r} + "/run-" + str(os.getpid()), os.O_CREAT))
token = open({str(tmp_path / "token")!r}).read()
print(json.dumps({{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{"token": token}}}}))
"""
    )
    plugin.chmod(0o755)
    (tmp_path / "token").write_text("not-a-good-one")
    exec_ = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"}
    path = written(tmp_path, hub_connection, {"exec": exec_})

    async with Client(kubeconfig.load([path])) as client:
        await client.transport.login.current()
        (tmp_path / "token").write_text(await token_for(hub, "from-a-plugin"))
        names = await asyncio.gather(*(who_am_i(client) for _ in range(50)))

    assert {"system:serviceaccount:default:from-a-plugin"} == set(names)
    assert len(list(tmp_path.glob("run-*"))) == 2


async def test_kubectl_tells_a_plugin_the_same(
    hub: Client, hub_connection: Connection, tmp_path: Path
) -> None:
    """What the plugin sees in its environment, from kubectl and from us."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"""#!{sys.executable} -S
import json, os
with open({str(tmp_path)!r} + "/" + os.environ["ASKER"], "w") as file:
    file.write(os.environ["KUBERNETES_EXEC_INFO"])
token = open({str(tmp_path / "token")!r}).read()
print(json.dumps({{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{"token": token}}}}))
"""
    )
    plugin.chmod(0o755)
    (tmp_path / "token").write_text(await token_for(hub, "told"))
    exec_ = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"}
    path = written(tmp_path, hub_connection, {"exec": exec_ | {"provideClusterInfo": True}})
    config = load_all(path.read_text())[0]
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"a": [1, None]}}
    config["clusters"][0]["cluster"] |= {"tls-server-name": "localhost", "extensions": [extension]}
    path.write_text(dump_all([config]))

    command = [kubectl(), "--kubeconfig", str(path), "get", "--raw", "/version"]
    env = {**os.environ, "ASKER": "kubectl"}
    done = await asyncio.to_thread(
        subprocess.run, command, env=env, capture_output=True, timeout=60, check=False
    )
    connection = kubeconfig.load([path])
    os.environ["ASKER"] = "ours"
    try:
        await connection.credentials.fetch()
    finally:
        del os.environ["ASKER"]

    assert (tmp_path / "kubectl").exists(), done.stderr
    told = json.loads((tmp_path / "kubectl").read_text())
    ours = json.loads((tmp_path / "ours").read_text())
    for seen in (told, ours):
        ca = seen["spec"]["cluster"].pop("certificate-authority-data")
        assert b"BEGIN CERTIFICATE" in base64.b64decode(ca)
    assert told == ours


def test_kubectl_merges_files_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that meet, a current context that comes late, a missing file."""
    files: list[str] = [str(tmp_path / "missing"), ""]
    for number, (names, current) in enumerate([("ab", ""), ("bc", "c"), ("cd", "d"), ("", "")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": current,
            "clusters": [
                {"name": n, "cluster": {"server": f"https://{number}{n}.test"}} for n in names
            ],
            "users": [{"name": n, "user": {"token": f"{number}{n}"}} for n in names],
            "contexts": [{"name": n, "context": {"cluster": n, "user": n}} for n in names],
        }
        (folder / "config").write_text(dump_all([config]))
        files.append(str(folder / "config"))
    monkeypatch.setenv("KUBECONFIG", ":".join(files))

    done = subprocess.run(
        [kubectl(), "config", "view", "--raw", "-o", "json"],
        capture_output=True,
        timeout=60,
        check=True,
    )
    told = load_all(done.stdout)[0]
    ours = kubeconfig.read()

    assert told["current-context"] == ours.current_context
    assert {one["name"]: one["cluster"]["server"] for one in told["clusters"]} == {
        name: cluster.body.server for name, cluster in ours.clusters.items()
    }
    assert {one["name"] for one in told["contexts"]} == set(ours.contexts)
    assert {one["name"]: one["user"]["token"] for one in told["users"]} == {
        name: user.body.token for name, user in ours.users.items()
    }


async def test_yaml_that_we_write_is_stored_as_meant(hub: Client) -> None:
    """From a file, over the wire, and back: words in quotes stay words."""
    labels = {"a": "yes", "b": "010", "c": "1e3", "d": "2020-01-01"}
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "yaml-round-trip", "labels": labels},
    }

    stored = await hub.create(NAMESPACES, load_all(dump_all([manifest]))[0])

    assert labels == {name: stored["metadata"]["labels"][name] for name in labels}
