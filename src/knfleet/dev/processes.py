"""Processes that outlive the command that started them.

Each is known by pid and start time, kept in a file of its own, so that any later command can find
it again, and no command can ever mistake a stranger with a recycled pid for one of ours.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil
from msgspec import Struct

from knfleet.dev.dev_folder import DevFolder, write_private
from knfleet.dev.errors import DevError

CLOCK_SLACK_SECONDS = 3.0
"""The kernel derives start times from the wall clock, which may be adjusted meanwhile."""


class RecordedProcess(Struct, frozen=True):
    """A process that we started."""

    name: str
    pid: int
    started: float

    def live(self) -> psutil.Process | None:
        """The running process, if it still is the one that was started."""
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.started) > CLOCK_SLACK_SECONDS:
                return None
            return None if is_over(process) else process
        except psutil.NoSuchProcess:
            return None


def is_over(process: psutil.Process) -> bool:
    """Whether nothing of a process runs any more; its first thread may end before the others."""
    return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1


def start(
    folder: DevFolder,
    name: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> RecordedProcess:
    """Start a process in a session of its own, logging to a file, and write down who it is."""
    with folder.log(name).open("ab") as log:
        try:
            # Not waited for: it is meant to outlive us.
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
                cwd=folder.sockets,
            )
        except OSError as error:
            raise DevError(
                f"{arguments[0]} does not start: {error.strerror}; remove it and run again,"
                " or set KUBEBUILDER_ASSETS to a folder with working binaries"
            ) from error
    process.returncode = 0  # The interpreter would warn about a child that is still running.
    try:
        recorded = RecordedProcess(name, process.pid, psutil.Process(process.pid).create_time())
        write_private(folder.run / f"{name}.json", msgspec.json.encode(recorded))
    except (psutil.NoSuchProcess, DevError):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        raise
    return recorded


def recorded(folder: DevFolder) -> dict[str, RecordedProcess]:
    """All processes that were started in a folder and not stopped since, by name."""
    found: dict[str, RecordedProcess] = {}
    for path in sorted(folder.run.glob("*.json")):
        with contextlib.suppress(msgspec.DecodeError, OSError):
            process = msgspec.json.decode(path.read_bytes(), type=RecordedProcess)
            found[process.name] = process
    return found


def stop(
    folder: DevFolder, processes: Iterable[RecordedProcess], *, grace_seconds: float = 0
) -> list[RecordedProcess]:
    """End processes, first politely if there is time for it; those that would not end."""
    targets = [(each, live) for each in processes if (live := each.live()) is not None]
    for _, live in targets:
        with contextlib.suppress(psutil.NoSuchProcess):
            # A frozen process ends only when it may run again, or by force.
            live.send_signal(signal.SIGTERM if grace_seconds else signal.SIGKILL)
            live.send_signal(signal.SIGCONT)
    if grace_seconds:
        wait_until_gone([each for each, _ in targets], grace_seconds)
        for each, live in targets:
            if each.live() is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    live.kill()
    remaining = wait_until_gone([each for each, _ in targets], 10)
    for each in processes:
        if each not in remaining:
            (folder.run / f"{each.name}.json").unlink(missing_ok=True)
    return remaining


def wait_until_gone(processes: Sequence[RecordedProcess], seconds: float) -> list[RecordedProcess]:
    """Wait for processes to end; those that have not."""
    deadline = time.monotonic() + seconds
    while True:
        for each in processes:
            reap(each.pid)
        remaining = [each for each in processes if each.live() is not None]
        if not remaining or time.monotonic() > deadline:
            return remaining
        time.sleep(0.02)


def reap(pid: int) -> None:
    """Collect the exit status if the process was a child of ours."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def tail(path: Path, lines: int = 3) -> str:
    """The last lines of a log that say something, for a message."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            content = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(line.strip()[:400] for line in content[-lines:] if line.strip())
