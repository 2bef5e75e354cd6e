"""A program of a peer as a process that ends with this one."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from knfleet.dev import ports
from testbed.peers.leash import GRACE_SECONDS

ROOT = Path(__file__).parents[2]


def reserved_port(owner: Path) -> int:
    """A port on loopback that is kept for the process that writes a file."""
    (port,) = ports.reserve(1, ports.DEFAULT_RANGE, owner)
    return port


@contextlib.asynccontextmanager
async def leashed(command: Sequence[str], *, log: Path, home: Path) -> AsyncGenerator[int]:
    """Run a program until the block ends; yields the pid of the process that runs it."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
    }
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "testbed.peers.leash", *command),
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
        )
    try:
        yield process.pid
    finally:
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(2 * GRACE_SECONDS):
            await process.wait()
