"""What people are told when something goes wrong, whichever command it was."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.clusterset import CLUSTER_SETS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.cli.errors import is_ours, remedy, sentence
from knfleet.cli.main import knfleet
from knfleet.clusters.access_errors import CLUSTER_PROFILE_NOT_FOUND, AccessError
from knfleet.kube import errors
from testbed.fakes.apiserver import ApiServers
from testbed.fakes.certificates import Authority
from testbed.fakes.cluster import Cluster
from testbed.fakes.server import Server, answer, server_context
from testbed.fakes.sockets import free_port

HUB_COMMANDS = (
    ("get", "clusters"),
    ("get", "token"),
    ("accept", "--clusters", "paris"),
    ("clusterset", "set", "europe", "--clusters", "paris"),
    ("doctor", "paris"),
    ("status",),
    ("unjoin", "--cluster-name", "paris"),
)
"""Commands of all sorts: none needs anything but a hub."""


def kubeconfig(folder: Path, server: str, **user: Any) -> Path:
    """A kubeconfig with one context, `london`."""
    path = folder / "config"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "london",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "jane", "user": user or {"token": "sesame-open"}}],
        "contexts": [{"name": "london", "context": {"cluster": "c", "user": "jane"}}],
    }
    path.write_text(json.dumps(config))
    return path


def told(*arguments: str, code: int = 1) -> str:
    """What a command that fails prints, on one line; never a traceback or a secret."""
    result = CliRunner().invoke(knfleet, list(arguments))

    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert "sesame" not in result.output
    return " ".join(result.output.split())


def refused(code: int, reason: str, message: str) -> Any:
    """An API server that says no to everything."""
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return answer(status, code)


@pytest.mark.parametrize("command", HUB_COMMANDS, ids=" ".join)
def test_a_hub_that_cannot_be_reached(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Which address, from which kubeconfig and context, and what to try."""
    server = f"https://127.0.0.1:{free_port()}"
    path = kubeconfig(tmp_path, server)

    text = told(*command, "--kubeconfig", str(path))

    assert f"cannot reach {server} (context london of {path}): Connection refused" in text
    assert "start the cluster, or choose another cluster with --context or --kubeconfig" in text


async def test_a_hub_with_another_certificate(tmp_path: Path) -> None:
    """The kubeconfig is an old one, or the wrong one."""
    async with Server(answer({}), tls=server_context(Authority().server())) as server:
        path = kubeconfig(tmp_path, server.url)
        text = await asyncio.to_thread(told, "get", "clusters", "--kubeconfig", str(path))

    assert f"cannot reach {server.url} (context london of {path})" in text
    assert "certificates do not fit or have expired: get a new kubeconfig" in text


async def test_credentials_that_expired(tmp_path: Path) -> None:
    """Log in again is what helps."""
    async with Server(refused(401, "Unauthorized", "Unauthorized")) as server:
        path = kubeconfig(tmp_path, server.url)
        text = await asyncio.to_thread(told, "get", "clusters", "--kubeconfig", str(path))

    assert text == (
        f"Error: {server.url} does not accept the credentials (context london of {path}): they are"
        " wrong or have expired; log in again, or get a new kubeconfig"
    )


async def test_a_right_that_is_missing(tmp_path: Path) -> None:
    """Which verb on what, and the commands that grant it."""
    message = (
        'managedclusters.cluster.open-cluster-management.io is forbidden: User "jane" cannot list'
        ' resource "managedclusters" in API group "cluster.open-cluster-management.io" at the'
        " cluster scope"
    )
    async with Server(refused(403, "Forbidden", message)) as server:
        path = kubeconfig(tmp_path, server.url)
        text = await asyncio.to_thread(told, "get", "clusters", "--kubeconfig", str(path))

    name = "managedclusters.cluster.open-cluster-management.io"
    assert f"jane may not list {name} on {server.url} (context london of {path})" in text
    assert f"kubectl create clusterrole NAME --verb=list --resource={name}" in text
    assert "kubectl create clusterrolebinding NAME --clusterrole=NAME --user=jane" in text


async def test_a_cluster_that_is_no_hub(tmp_path: Path) -> None:
    """It does not know our kinds, which a person need not know to understand it."""
    missing = refused(404, "NotFound", "the server could not find the requested resource")
    async with Server(missing) as server:
        path = kubeconfig(tmp_path, server.url)
        text = await asyncio.to_thread(told, "get", "clusters", "--kubeconfig", str(path))

    assert f"{server.url} (context london of {path}) is no hub" in text
    assert "does not know managedclusters; make it one with knfleet init" in text


@pytest.mark.parametrize(
    "command",
    [
        ("get", "clusters", "lodon"),
        ("accept", "--clusters", "lodon"),
        ("clusterset", "set", "europe", "--clusters", "lodon"),
        ("detach", "rome", "lodon"),
        ("doctor", "lodon"),
        ("status", "lodon"),
    ],
    ids=" ".join,
)
async def test_a_wrong_cluster_name(tmp_path: Path, command: tuple[str, ...]) -> None:
    """The nearest one is told, wherever a name is asked for."""
    kinds = (CLUSTERS, CLUSTER_SETS, CSRS, PROFILES, SERVINGS, EVENTINGS)
    async with ApiServers() as servers:
        hub = servers.add("hub", Cluster(*kinds))
        for resource, name in ((CLUSTERS, "london"), (CLUSTERS, "rome"), (CLUSTER_SETS, "europe")):
            made: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": {}}
            hub.put(resource, {**made, "metadata": {"name": name}})
        path = kubeconfig(tmp_path, servers.url("hub"))
        text = await asyncio.to_thread(told, *command, "--kubeconfig", str(path))

        assert Key("", "rome") in hub.objects[CLUSTERS]

    assert "lodon" in text
    assert "did you mean london?" in text


def test_a_kubeconfig_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By flag, by environment, or not at all."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert "name it with --kubeconfig" in told("get", "clusters")
    text = told("get", "clusters", "--kubeconfig", str(tmp_path / "elsewhere"))
    assert f"kubeconfig {tmp_path / 'elsewhere'} cannot be read: No such file" in text


def test_a_context_that_is_not_there(tmp_path: Path) -> None:
    """The nearest is told."""
    path = kubeconfig(tmp_path, "https://127.0.0.1:1")

    text = told("get", "clusters", "--kubeconfig", str(path), "--context", "lodnon")

    assert "context 'lodnon' does not exist; there are: london; did you mean london?" in text


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("statsu",), "No such command 'statsu'. Did you mean 'status'?"),
        (("paln",), "No such command 'paln'. Did you mean 'plan'?"),
        (("get", "clustres"), "No such command 'clustres'. Did you mean 'clusters'?"),
        (("get", "clusters", "--kubecnfig", "x"), "Did you mean '--kubeconfig'?"),
        (("xyzzy",), "No such command 'xyzzy'."),
    ],
)
def test_a_command_that_is_mistyped(typed: tuple[str, ...], words: str) -> None:
    """Wrong usage, exit code 2, and what was meant."""
    assert words in told(*typed, code=2)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.DnsFailed, "check the server's name and your network or VPN"),
        (errors.RequestTimeout, "check your network, VPN and firewall"),
        (errors.ProxyFailed, "check proxy-url in the kubeconfig, HTTPS_PROXY and NO_PROXY"),
        (errors.ConnectionInterrupted, "check your network, VPN and firewall"),
    ],
)
def test_each_way_of_not_being_reached_has_its_remedy(
    kind: type[errors.NetworkError], words: str
) -> None:
    """What to try depends on what happened."""
    assert words in remedy(kind("x"))


def test_an_error_of_a_spoke_speaks_for_itself() -> None:
    """It was not the hub that could not be reached."""
    error = AccessError(CLUSTER_PROFILE_NOT_FOUND, "ClusterProfile fleet/a does not exist")

    assert sentence(error) == "ClusterProfile fleet/a does not exist"


def test_a_fault_of_ours_is_not_hidden() -> None:
    """A traceback is what finds it; all that has words for people is told in words."""
    assert not is_ours(KeyError("x"))
    assert not is_ours(OSError("x"))
    assert is_ours(FileNotFoundError(2, "No such file or directory", "plan.json"))
    assert is_ours(
        ExceptionGroup("both", [errors.ConnectionRefused("a"), errors.ConnectionRefused("b")])
    )
    assert sentence(ExceptionGroup("both", [errors.KubeError("a"), errors.KubeError("b")])) == "a"
