"""Runs a program in a network namespace of its own, from which one port of this machine is reached.

For programs that listen on all addresses and cannot be told otherwise: nothing reaches them here.
As a module it is the inner side: it relays the port to a Unix socket, and runs the program.
"""

import asyncio
import contextlib
import fcntl
import shutil
import signal
import socket
import struct
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

SET_FLAGS = 0x8914
UP = 0x1
LOOPBACK = "127.0.0.1"
CHUNK = 65536


@contextlib.asynccontextmanager
async def isolated(
    command: Sequence[str], port: int, folder: Path
) -> AsyncGenerator[tuple[str, ...]]:
    """The command that runs a program in isolation; it works until the block ends."""
    unshare = shutil.which("unshare")
    assert unshare is not None, "unshare is not installed"
    path = folder / f"port-{port}"

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await relay(reader, writer, *await asyncio.open_connection(LOOPBACK, port))

    async with await asyncio.start_unix_server(accept, path):
        inner = (sys.executable, "-m", "testbed.peers.isolated", str(port), str(path))
        yield (unshare, "--user", "--map-root-user", "--net", *inner, *command)


async def relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    other_reader: asyncio.StreamReader,
    other_writer: asyncio.StreamWriter,
) -> None:
    """Copy both ways until one side ends."""
    ways = [
        asyncio.create_task(copy(reader, other_writer)),
        asyncio.create_task(copy(other_reader, writer)),
    ]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for each in ways:
        each.cancel()
    await asyncio.gather(*ways, return_exceptions=True)
    writer.close()
    other_writer.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one way until there is nothing more."""
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()


def enable_loopback() -> None:
    """Bring the loopback device of a new network namespace up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        fcntl.ioctl(device, SET_FLAGS, struct.pack("16sh", b"lo", UP))


async def run(port: int, path: str, command: Sequence[str]) -> int:
    """The inner side: relay the port, and run the program; its exit code."""
    enable_loopback()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await relay(reader, writer, *await asyncio.open_unix_connection(path))

    async with await asyncio.start_server(accept, LOOPBACK, port):
        child = await asyncio.create_subprocess_exec(*command)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, child.terminate)
        return abs(await child.wait())


if __name__ == "__main__":
    sys.exit(asyncio.run(run(int(sys.argv[1]), sys.argv[2], sys.argv[3:])))
