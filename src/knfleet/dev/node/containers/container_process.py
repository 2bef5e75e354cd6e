"""One container as one process of this machine, in a process group of its own."""

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from knfleet.dev.node.containers.container_probes import Probe
from knfleet.dev.node.containers.orphan_processes import write_pid_file

LOG_LIMIT_BYTES = 10 * 1024 * 1024
"""A log that grew beyond this is set aside as the previous one."""


class ProcessSpec(Struct, frozen=True):
    """All that is needed to start a container's process."""

    arguments: Sequence[str]
    environment: dict[str, str]
    folder: Path
    probes: Mapping[str, Probe] = {}
    """By their names in the container's manifest."""

    def __repr__(self) -> str:
        return f"ProcessSpec({self.arguments[0]})"


class ContainerProcess:
    """A started process: its output goes to a file, its end takes the whole group with it."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.pid = child.pid
        self.started = datetime.now(UTC)

    async def wait(self) -> int:
        """The exit code, with 128 added to the number of a signal, once the process ended."""
        code = await self.child.wait()
        # A container ends with its first process; whatever that left behind goes too.
        self.signal(signal.SIGKILL)
        return code if code >= 0 else 128 - code

    async def stop(self, grace_seconds: float) -> int:
        """Ask the process to end, insist after a while, and return its exit code."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                return await self.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole process group, if there is anything left of it."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return


async def start(launch: ProcessSpec, log: Path, pid_file: Path) -> ContainerProcess:
    """Start a process whose output is appended to the log; raises `OSError` if it cannot be."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = await asyncio.create_subprocess_exec(
            *launch.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd=launch.folder,
            env=launch.environment,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    write_pid_file(pid_file, child.pid)
    return ContainerProcess(child)


def rotate_log(log: Path, previous: Path) -> None:
    """Keep the log of the run that ended as the previous one."""
    if log.exists():
        log.replace(previous)


def bound(log: Path, previous: Path) -> None:
    """Set aside a log that grew too large; its process goes on writing to the same file."""
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        shutil.copyfile(log, previous)
        os.truncate(log, 0)
