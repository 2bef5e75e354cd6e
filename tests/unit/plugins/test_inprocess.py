"""Our own plugins run without a process, and say what they would have printed."""

import base64
import json
import os
import ssl
import sys
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from knfleet.kube.auth.exec_plugin import ClusterInfo, ExecPlugin
from knfleet.kube.auth.exec_process import run
from knfleet.kube.errors import CredentialError
from knfleet.plugins.hub_api import HubApi
from knfleet.plugins.inprocess import InProcessPlugins, PooledHubApi, own_plugin
from testbed.fakes.certificates import Authority
from testbed.fakes.server import Behaviour, Server, answer, server_context, status

SCRIPTS = Path(sys.executable).parent
SECRET = {"data": {"token": base64.b64encode(b"sesame").decode()}}


def copied(folder: Path, name: str, *, interpreter: str = "") -> str:
    """A start script in another place, perhaps for another interpreter."""
    first, _, rest = (SCRIPTS / name).read_text().partition("\n")
    path = folder / "copied-plugin"
    path.write_text(f"#!{interpreter}\n{rest}" if interpreter else f"{first}\n{rest}")
    path.chmod(0o755)
    return str(path)


def environment(**more: str) -> dict[str, str]:
    """What a plugin is run with."""
    return {**os.environ, **more}


@pytest.mark.parametrize("name", ["secretreader-plugin", "kubeconfig-secretreader-plugin"])
def test_a_start_script_of_this_environment_is_known_wherever_it_is(name: str, tmp_path: Path):
    """Images mount copies of them."""
    there, here = copied(tmp_path, name), str(SCRIPTS / name)

    found = [own_plugin([each], environment()) for each in (here, there)]

    assert [each[0] if each else "" for each in found] == [name.removesuffix("-plugin")] * 2


def test_everything_else_is_run_as_a_program(tmp_path: Path):
    """Another interpreter, arguments, or variables that change how one starts."""
    other = copied(tmp_path, "secretreader-plugin", interpreter="/usr/bin/python3")
    script = str(SCRIPTS / "secretreader-plugin")

    found = [
        own_plugin([other], environment()),
        own_plugin([str(SCRIPTS / "knfleet")], environment()),
        own_plugin(["/bin/sh"], environment()),
        own_plugin([str(tmp_path / "missing")], environment()),
        own_plugin([script, "--flag"], environment()),
        own_plugin([script], environment(PYTHONPATH="/elsewhere")),
        own_plugin([sys.executable, "-m", "knfleet"], environment()),
    ]

    assert found == [None] * len(found)


def kubeconfig(folder: Path, server: str, ca: bytes) -> str:
    """The way to a hub."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()}
    config = {
        "clusters": [{"name": "hub", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [
            {"name": "hub", "context": {"cluster": "hub", "user": "me", "namespace": "fleet"}}
        ],
        "current-context": "hub",
    }
    path = folder / "hub.kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


def plugin(command: str, config: Any, hub: str) -> ExecPlugin:
    """A plugin as the operator knows it."""
    return ExecPlugin(
        command=command,
        env=(("KUBECONFIG", hub), ("KNFLEET_CLUSTER_PROFILE", "fleet/s1")),
        cluster=ClusterInfo("https://spoke.test", config=config),
    )


async def outcome(asked: ExecPlugin, way: Any) -> tuple[str, str]:
    """The token, or what is said instead of one."""
    try:
        return "token", (await asked.fetch(way)).token or ""
    except CredentialError as error:
        return "error", str(error)


@pytest.mark.parametrize(
    ("hub_says", "config", "words"),
    [
        (answer(SECRET), {"clusterName": "s1"}, "sesame"),
        (answer(SECRET), None, "sesame"),
        (status(404, "NotFound"), {"clusterName": "s1"}, 'secrets "s1" not found'),
        (status(403, "Forbidden", "not yours"), {"clusterName": "s1"}, "not yours"),
        (answer({"data": {}}), {"clusterName": "s1"}, 'missing "token" key'),
        (answer(SECRET), {"namespace": "n"}, "missing clusterName"),
    ],
)
async def test_what_is_said_here_is_what_the_program_prints(
    hub_says: Behaviour, config: Any, words: str, tmp_path: Path
):
    """The same token, and the same words about what is wrong."""
    authority = Authority()
    async with Server(hub_says, tls=server_context(authority.server())) as hub:
        way = kubeconfig(tmp_path, hub.url, authority.pem)
        asked = plugin(str(SCRIPTS / "secretreader-plugin"), config, way)

        printed = await outcome(asked, run)
        with closing(InProcessPlugins()) as own:
            said = [await outcome(asked, own) for _ in range(3)]

    assert said == [printed] * 3
    assert words in printed[1]


async def test_no_process_is_started_for_our_own_plugin(tmp_path: Path):
    """That is what it is for."""
    before = os.times()
    authority = Authority()
    async with Server(answer(SECRET), tls=server_context(authority.server())) as hub:
        way = kubeconfig(tmp_path, hub.url, authority.pem)

        with closing(InProcessPlugins()) as own:
            for _ in range(3):
                await outcome(plugin(str(SCRIPTS / "secretreader-plugin"), None, way), own)

    after = os.times()
    assert (len(hub.requests), hub.connections) == (3, 1)
    assert (after.children_user, after.children_system) == (
        before.children_user,
        before.children_system,
    )


def some_hub() -> HubApi:
    """A hub that nothing is sent to."""
    return HubApi("https://127.0.0.1:1", ssl.create_default_context(), "", "token", "default")


def test_threads_that_ask_at_once_share_one_hub():
    """A second one would leave the connections of the first open."""
    both = Barrier(2)
    made: list[HubApi] = []

    def find(_: Mapping[str, str]) -> HubApi:
        # Nobody comes but one thread, so that this is broken; two would meet here.
        with suppress(BrokenBarrierError):
            both.wait(0.5)
        made.append(some_hub())
        return made[-1]

    with closing(InProcessPlugins(find)) as own, ThreadPoolExecutor(2) as threads:
        found = list(threads.map(own.find, [{}, {}]))

    assert len(made) == 1
    assert found[0] is found[1]


class EmptiedDeque(deque[tuple[HTTPConnection, float]]):
    """Looks as it did before another thread took the last."""

    def __len__(self) -> int:
        return 1


def test_a_connection_that_another_thread_took_is_not_missed():
    """A new one is made instead."""
    kept = PooledHubApi(*some_hub())
    kept.__dict__["lines"] = EmptiedDeque()

    assert kept.take() is None


class Superseded(PooledHubApi):
    """A hub that is replaced while it answers."""

    def ask(self, line: HTTPConnection, path: str) -> tuple[int, bytes]:
        self.close()
        return 200, b""


class Line(HTTPConnection):
    """A connection that knows whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_connection_in_use_while_its_hub_is_replaced_is_closed_after_its_answer():
    """Nobody would use it again."""
    kept, line = Superseded(*some_hub()), Line("127.0.0.1", 1)

    assert kept.ask_and_keep(line, "/") == (200, b"")

    assert line.is_closed
    assert not kept.idle
