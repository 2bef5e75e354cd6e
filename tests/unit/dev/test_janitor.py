"""The janitor, which outlives whoever needed the clusters."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from knfleet.dev import processes
from knfleet.dev.dev_folder import DevFolder
from testbed.waiting import until

IDLE = [sys.executable, "-c", "import signal; signal.pause()"]


@pytest.fixture
def folder(tmp_path: Path) -> DevFolder:
    """A folder for dev clusters."""
    made = DevFolder(tmp_path / "dev")
    made.create()
    return made


@pytest.fixture
def server(folder: DevFolder) -> Generator[processes.RecordedProcess]:
    """Something that runs there."""
    started = processes.start(folder, "hub.kube-apiserver", IDLE)
    yield started
    processes.stop(folder, [started])


@pytest.fixture
def janitor(folder: DevFolder) -> Generator[subprocess.Popen[bytes]]:
    """Its janitor."""
    arguments = [sys.executable, "-m", "knfleet.dev.cleanup", str(folder.root)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


async def test_the_janitor_cleans_up_although_it_was_hit_with_its_owner(
    janitor: subprocess.Popen[bytes], server: processes.RecordedProcess
) -> None:
    """Ctrl-C and `timeout` hit whole groups; who cleans up must not be gone before it has."""
    assert janitor.stdin is not None
    await until(lambda: ignores(janitor.pid, signal.SIGTERM), "a janitor that is deaf to signals")
    for blow in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(janitor.pid, blow)
    assert janitor.poll() is None
    assert server.live() is not None

    janitor.stdin.close()

    assert janitor.wait(timeout=60) == 0
    assert server.live() is None


def ignores(pid: int, blow: signal.Signals) -> bool:
    """Whether a process is deaf to a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line for line in lines if line.startswith("SigIgn:")).split()[1]
    return bool(int(mask, 16) >> (blow - 1) & 1)
