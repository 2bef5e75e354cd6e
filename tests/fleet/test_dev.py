"""`knfleet dev` as a user types it: the real program, real servers, real kubectl."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from knfleet.dev import ports, processes
from knfleet.dev.binaries import locate
from knfleet.dev.dev_folder import DevFolder, locked
from knfleet.dev.dev_status import DevStatus
from testbed.clusters import kubectl
from testbed.waiting import heed_interrupts, until

LIMIT_SECONDS = 240


class Dev:
    """The command, working in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.folder = DevFolder(root)

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a subcommand to its end."""
        return subprocess.run(
            [sys.executable, "-m", "knfleet", "dev", *arguments, "--dir", str(self.folder.root)],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
            env={**os.environ, **environment},
        )

    def status(self) -> DevStatus:
        """What `dev status` says to programs."""
        answer = self("status", "-o", "json")
        return msgspec.json.decode(answer.stdout, type=DevStatus)

    def kubectl(self, context: str, *arguments: str) -> str:
        """Run kubectl as the user would, with the kubeconfig that the command prints."""
        kubeconfig = self("kubeconfig").stdout.strip()
        line = [kubectl(), "--kubeconfig", kubeconfig, "--context", context]
        answer = subprocess.run(
            [*line, *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def processes(self) -> dict[str, processes.RecordedProcess]:
        """What was started here."""
        return processes.recorded(self.folder)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    """The command, with everything taken down afterwards."""
    dev = Dev(tmp_path / "dev")
    yield dev
    take_down(dev)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A hub that stands for all tests that leave one behind as they found it."""
    dev = Dev(tmp_path_factory.mktemp("standing") / "dev")
    up = dev("up")
    assert up.returncode == 0, up.stderr
    yield dev
    take_down(dev)


def take_down(dev: Dev) -> None:
    """End everything, and make sure of it."""
    started = dev.processes().values()
    assert dev("down").returncode == 0
    assert [each.name for each in started if each.live()] == []


@pytest.mark.full
def test_two_spokes_run_a_deployment(dev: Dev) -> None:
    """The lines of the README, typed in."""
    up = dev("up", "--spokes", "2")
    assert up.returncode == 0, up.stderr

    dev.kubectl("spoke2", "create", "deployment", "web", "--image=nginx", "--replicas=3")
    dev.kubectl("spoke2", "wait", "--for=condition=Available", "deploy/web", "--timeout=60s")

    found = dev.status()
    assert [each.name for each in found.clusters] == ["hub", "spoke1", "spoke2"]
    assert {each.version for each in found.clusters} == {f"v{locate.KUBERNETES}"}
    assert found.ready
    assert "web" not in dev.kubectl("spoke1", "get", "deployments", "-o", "name")


@pytest.mark.full
def test_nine_clusters_come_up_and_go_away_without_a_trace(dev: Dev) -> None:
    """Eight spokes and a hub on one small machine; nothing is left afterwards."""
    up = dev("up", "--spokes", "8")
    assert up.returncode == 0, up.stderr
    found = dev.status()
    assert [each.ready for each in found.clusters] == [True] * 9
    started = list(dev.processes().values())
    used = [cluster.port for cluster in dev.folder.read().clusters]
    assert len(started) == 1 + 9 * 3
    assert [port for port in used if ports.is_free(port)] == []

    down = dev("down")

    assert down.returncode == 0, down.stderr
    assert [each.name for each in started if each.live()] == []
    assert [port for port in used if not ports.is_free(port)] == []
    assert not dev.folder.root.exists()
    assert not dev.folder.sockets.exists()


@pytest.mark.full
def test_a_second_up_adds_spokes_and_keeps_the_rest(standing: Dev) -> None:
    """Clusters that run are not touched."""
    dev = standing
    before = dev.processes()
    dev.kubectl("hub", "create", "namespace", "mine")

    again = dev("up", "--spokes", "1")

    assert again.returncode == 0, again.stderr
    assert {name: dev.processes()[name] for name in before} == before
    assert "mine" in dev.kubectl("hub", "get", "namespaces", "-o", "name")
    assert "default" in dev.kubectl("spoke1", "get", "namespaces", "-o", "name")


@pytest.mark.parametrize(
    "victim",
    [
        "hub.kube-apiserver",
        pytest.param("hub.node", marks=pytest.mark.full),
        pytest.param("etcd", marks=pytest.mark.full),
    ],
)
def test_a_killed_process_is_told_and_repaired_with_its_data(standing: Dev, victim: str) -> None:
    """Kill -9 costs nothing but a new `up`."""
    dev, precious = standing, f"precious-{victim.rpartition('.')[2]}"
    dev.kubectl("hub", "create", "namespace", precious)
    os.kill(dev.processes()[victim].pid, signal.SIGKILL)

    sick = dev("status")
    assert sick.returncode == 1
    assert f"{victim.rpartition('.')[2]} is dead" in sick.stdout
    assert "knfleet dev up" in sick.stderr

    repaired = dev("up")
    assert repaired.returncode == 0, repaired.stderr
    assert dev.status().ready
    assert precious in dev.kubectl("hub", "get", "namespaces", "-o", "name")


@pytest.mark.full
def test_a_frozen_server_is_told_and_woken(standing: Dev) -> None:
    """A stopped process is neither dead nor well."""
    dev = standing
    psutil.Process(dev.processes()["hub.kube-apiserver"].pid).suspend()

    assert "kube-apiserver is frozen" in dev("status").stdout

    assert dev("up").returncode == 0
    assert dev.status().ready


def test_keys_are_for_the_owner_alone(standing: Dev) -> None:
    """No file that holds a key can be read by others."""
    dev = standing
    open_files = [
        path
        for path in dev.folder.root.rglob("*")
        if path.is_file()
        and stat.S_IMODE(path.stat().st_mode) & 0o077
        and b"PRIVATE KEY" in path.read_bytes()
    ]
    assert open_files == []
    assert stat.S_IMODE(dev.folder.kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE(dev.folder.root.stat().st_mode) == 0o700


def test_logs_are_shown(standing: Dev) -> None:
    """Each component's words can be read without knowing where they are."""
    dev = standing

    assert dev("logs", "hub", "kube-apiserver", "--tail", "5").stdout.count("\n") == 5
    wrong = dev("logs", "hub", "kubelet")
    assert wrong.returncode == 1
    assert "kube-apiserver, kube-controller-manager, node" in wrong.stderr
    assert "there is no cluster 'spoke7'; there are hub" in dev("logs", "spoke7", "node").stderr


@pytest.mark.parametrize("value", ["-1", "61", "two", "1.5"])
def test_a_wrong_number_of_spokes_is_wrong_usage(dev: Dev, value: str) -> None:
    """The range is named."""
    answer = dev("up", "--spokes", value)

    assert answer.returncode == 2
    assert "--spokes" in answer.stderr


def test_a_folder_that_cannot_be_written_is_named(dev: Dev, tmp_path: Path) -> None:
    """One sentence, no traceback."""
    (tmp_path / "dev").write_text("a file where the folder should be")

    answer = dev("up")

    (tmp_path / "dev").unlink()
    assert_one_clear_message(answer, "cannot make", "--dir")


def test_an_exhausted_port_range_is_named(dev: Dev) -> None:
    """Nothing was started, and `down` finds nothing to do."""
    answer = dev("up", "--spokes", "3", "--port-range", "20000-20001")

    assert_one_clear_message(answer, "ports are free in 20000-20001", "--port-range")
    assert dev("down").returncode == 0


def test_a_broken_binary_is_named(dev: Dev, tmp_path: Path) -> None:
    """One that was named, and does not even start."""
    assets = assets_without_etcd(tmp_path)
    (assets / "etcd").write_bytes(b"\x7fELF")
    (assets / "etcd").chmod(0o755)

    answer = dev("up", KUBEBUILDER_ASSETS=str(assets))

    assert_one_clear_message(answer, "etcd: does not run", "KUBEBUILDER_ASSETS")
    assert dev("down").returncode == 0


def test_a_server_that_ends_at_once_shows_its_last_words(dev: Dev, tmp_path: Path) -> None:
    """The binary tells its version, and fails when it is meant to serve."""
    assets = assets_without_etcd(tmp_path)
    script = '#!/bin/sh\n[ "$1" = --version ] && echo 3.6.5 && exit 0\necho disk on fire\nexit 1\n'
    (assets / "etcd").write_text(script)
    (assets / "etcd").chmod(0o755)

    answer = dev("up", KUBEBUILDER_ASSETS=str(assets))

    assert_one_clear_message(answer, "etcd ended right after its start", "disk on fire")
    assert dev.processes() == {}
    assert dev("down").returncode == 0
    assert not dev.folder.root.exists()


@pytest.mark.full
def test_a_stranger_on_our_port_is_named(standing: Dev) -> None:
    """Somebody took the port while the API server was away."""
    dev = standing
    cluster = dev.folder.read().clusters[0]
    victim = dev.processes()["hub.kube-apiserver"]
    os.kill(victim.pid, signal.SIGKILL)
    assert processes.wait_until_gone([victim], 10) == []
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", cluster.port))
        stranger.listen()

        answer = dev("up")

    assert_one_clear_message(answer, f"port {cluster.port} of hub is taken by", str(os.getpid()))
    assert dev("up").returncode == 0


@pytest.mark.full
def test_a_state_of_another_version_is_refused_and_taken_down(dev: Dev) -> None:
    """`down` needs no knowledge of the format."""
    dev("up")
    started = dev.processes().values()
    dev.folder.state_file.write_text('{"schema": 99, "written_by": "9.9.0"}')

    for subcommand in ("up", "status"):
        assert_one_clear_message(dev(subcommand), "format 99", "dev down")

    assert dev("down").returncode == 0
    assert [each.name for each in started if each.live()] == []
    assert not dev.folder.root.exists()


@pytest.mark.full
async def test_two_ups_at_once_do_not_mix(dev: Dev) -> None:
    """The second is sent away while the first works, which this test plays by holding its lock."""
    dev.folder.create()
    with locked(dev.folder.root / "lock", busy="nobody else is here"):
        second = await asyncio.to_thread(dev, "up")

    assert_one_clear_message(second, "`knfleet dev` is at work", f"pid {os.getpid()}")
    assert dev.processes() == {}
    assert dev("up").returncode == 0
    assert dev.status().ready


async def test_control_c_during_up_leaves_nothing_behind(dev: Dev) -> None:
    """Neither processes nor ports nor files."""
    running = await start_up(dev)
    await until(lambda: "hub.kube-apiserver" in dev.processes(), "an API server is started")
    started = list(dev.processes().values())

    running.send_signal(signal.SIGINT)

    assert await asyncio.wait_for(running.wait(), 60) == 1
    assert [each.name for each in started if each.live()] == []
    assert not dev.folder.root.exists()
    assert not dev.folder.sockets.exists()


@pytest.mark.full
async def test_control_c_while_adding_keeps_what_was_there(dev: Dev) -> None:
    """Only the new clusters are given up."""
    dev("up")
    running = await start_up(dev, "--spokes", "1")
    await until(lambda: "spoke1.kube-apiserver" in dev.processes(), "the spoke is started")

    running.send_signal(signal.SIGINT)
    await asyncio.wait_for(running.wait(), 60)

    assert [each.name for each in dev.status().clusters] == ["hub"]
    assert dev.status().ready
    assert not dev.folder.cluster("spoke1").exists()


def assets_without_etcd(tmp_path: Path) -> Path:
    """A folder with all binaries but one."""
    tools, _ = locate.search(locate.cache_folder())
    assets = tmp_path / "assets"
    assets.mkdir()
    for tool in tools.values():
        if tool.name != "etcd":
            (assets / tool.name).symlink_to(tool.path)
    return assets


async def start_up(dev: Dev, *arguments: str) -> asyncio.subprocess.Process:
    """Begin an `up` without waiting for it."""
    command = ["-m", "knfleet", "dev", "up", *arguments, "--dir", str(dev.folder.root)]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )


def assert_one_clear_message(answer: subprocess.CompletedProcess[str], *parts: str) -> None:
    """The command failed, said why, and did not show its insides."""
    assert answer.returncode == 1, answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stderr.count("Error: ") == 1, answer.stderr
    for part in parts:
        assert part in answer.stderr
