"""Processes are known by pid and start time, and only those that we started are ever ended."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from knfleet.dev import processes
from knfleet.dev.dev_folder import DevFolder
from knfleet.dev.errors import DevError

IDLE = [sys.executable, "-c", "import signal; print('here', flush=True); signal.pause()"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()",
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DevFolder]:
    """A folder to start processes in."""
    folder = DevFolder(tmp_path / "dev")
    folder.create()
    yield folder
    folder.remove()


def test_a_process_is_found_again_by_another_command(folder: DevFolder) -> None:
    """What one command started, another one can end."""
    started = processes.start(folder, "one", IDLE)

    found = processes.recorded(folder)

    assert found == {"one": started}
    assert found["one"].live() is not None
    assert processes.stop(folder, found.values()) == []
    assert started.live() is None
    assert processes.recorded(folder) == {}


def test_a_stranger_with_a_recycled_pid_is_never_ours(folder: DevFolder) -> None:
    """The pid of this very test, with another start time, must survive a stop."""
    stranger = processes.RecordedProcess("one", os.getpid(), psutil.Process().create_time() - 60)

    assert stranger.live() is None
    assert processes.stop(folder, [stranger]) == []


@pytest.mark.parametrize("arguments", [IDLE, STUBBORN])
def test_a_process_ends_even_if_it_will_not(folder: DevFolder, arguments: list[str]) -> None:
    """Politeness first, then force."""
    started = processes.start(folder, "one", arguments)

    assert processes.stop(folder, [started], grace_seconds=0.2) == []
    assert started.live() is None


def test_a_frozen_process_ends(folder: DevFolder) -> None:
    """A stopped process does not see a polite signal until it is woken."""
    started = processes.start(folder, "one", IDLE)
    psutil.Process(started.pid).suspend()

    assert processes.stop(folder, [started], grace_seconds=5) == []
    assert started.live() is None


def test_a_binary_that_does_not_start_is_named(folder: DevFolder, tmp_path: Path) -> None:
    """The message says which file, and what to do."""
    broken = tmp_path / "kube-apiserver"
    broken.write_bytes(b"\x7fELF not really")
    broken.chmod(0o755)

    with pytest.raises(DevError, match=r"kube-apiserver does not start: .*KUBEBUILDER_ASSETS"):
        processes.start(folder, "one", [str(broken)])

    assert processes.recorded(folder) == {}


def test_the_tail_of_a_log_skips_empty_lines(tmp_path: Path) -> None:
    """A message shows lines that say something."""
    log = tmp_path / "log"
    log.write_text("first\nsecond\n\nthird\n")

    assert processes.tail(log, 3) == "second\nthird"
