"""One program run to its end, with a limit on everything.

The program gets a process group of its own. Whatever happens (it ends, hangs, prints without end,
or no caller waits for it any more), when `run` is over the group is gone and every pipe is closed.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from msgspec import Struct

OUTPUT_LIMIT = 1024 * 1024
"""Bytes that a program may print, complaints included."""
COMPLAINT_LIMIT = 2048
GRACE_SECONDS = 0.5
"""Between asking a group to end and making it end."""
LINGER_SECONDS = 0.5
"""For the rest of the output, when another process holds the pipe of a program that has ended."""
REAP_SECONDS = 5.0


class ProcessEnd(Enum):
    """How a program ended."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    TOO_MUCH_OUTPUT = "too much output"


class ProcessResult(Struct, frozen=True):
    """What a program left behind."""

    ending: ProcessEnd
    code: int
    """The exit status; minus the signal's number when a signal ended it."""
    output: bytes
    complaint: str
    """The last words on standard error, on one line."""


class ProcessRunner(Protocol):
    """A way to run a program to its end."""

    async def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float
    ) -> ProcessResult:
        """Run it; raises `OSError` when it cannot be started."""
        ...


async def run(
    argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float
) -> ProcessResult:
    """The outcome of a program; raises `OSError` when it cannot be started."""
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(
        loop.subprocess_exec(
            ProcessOutput,
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=dict(env),
        )
    )
    try:
        transport, listener = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The program may run already: it has to be known before it can be stopped.
        with contextlib.suppress(OSError):
            await stop(*await starting)
        raise
    ending = ProcessEnd.EXITED
    try:
        async with asyncio.timeout(timeout_seconds):
            await listener.done.wait()
    except TimeoutError:
        ending = ProcessEnd.TIMED_OUT
    finally:
        await stop(transport, listener)
    if listener.received > OUTPUT_LIMIT:
        ending = ProcessEnd.TOO_MUCH_OUTPUT
    code = transport.get_returncode()
    return ProcessResult(
        ending=ending,
        code=-1 if code is None else code,
        output=bytes(listener.output),
        complaint=one_line(bytes(listener.errors)),
    )


class ProcessOutput(asyncio.SubprocessProtocol):
    """Keeps what a program prints, up to the limits."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.errors = bytearray()
        self.received = 0
        self.open_pipes = {1, 2}
        self.exited = asyncio.Event()
        self.done = asyncio.Event()
        self.linger: asyncio.TimerHandle | None = None

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take output, and the end of the complaints."""
        self.received += len(data)
        if self.received > OUTPUT_LIMIT:
            self.done.set()
        elif fd == 1:
            self.output += data
        if fd == 2:
            self.errors += data
            del self.errors[:-COMPLAINT_LIMIT]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """One pipe has no writer any more."""
        self.open_pipes.discard(fd)
        if not self.open_pipes and self.exited.is_set():
            self.done.set()

    def process_exited(self) -> None:
        """The program has ended; its output may not all be here yet."""
        self.exited.set()
        if not self.open_pipes:
            self.done.set()
        else:
            loop = asyncio.get_running_loop()
            self.linger = loop.call_later(LINGER_SECONDS, self.done.set)


async def stop(transport: asyncio.SubprocessTransport, listener: ProcessOutput) -> None:
    """End what is left of a program's group, and close its pipes."""
    group = transport.get_pid()
    try:
        if not listener.exited.is_set():
            signal_group(group, signal.SIGTERM)
            await wait(listener.exited, GRACE_SECONDS)
    finally:
        # Also after a good end: what the program left running must not outlive it.
        signal_group(group, signal.SIGKILL)
        try:
            await wait(listener.exited, REAP_SECONDS)
        finally:
            if listener.linger is not None:
                listener.linger.cancel()
            transport.close()


async def wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but not for ever."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to all processes of a group that are still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def one_line(text: bytes) -> str:
    """A text for a message: without control characters, on one line."""
    lines = text.decode("utf-8", "replace").splitlines()
    printable = ("".join(c for c in line if c.isprintable()).strip() for line in lines)
    return "; ".join(line for line in printable if line)
