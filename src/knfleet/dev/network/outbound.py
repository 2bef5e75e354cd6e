"""Ways out of a network namespace: ports inside that lead to the same ports of this machine.

`python -m knfleet.dev.network.outbound HOLDER PORT...` runs outside. It stands in for a router with
NAT: connections can be made from inside to what is listed, and none from outside.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from knfleet.dev.network.holder import InnerSockets

HOST = "127.0.0.1"
CHUNK = 64 * 1024


@asynccontextmanager
async def ways_out(sockets: InnerSockets, ports: Iterable[int]) -> AsyncGenerator[None]:
    """Lead ports inside to the same ports of this machine."""
    async with AsyncExitStack() as stack:
        for port in ports:
            way = WayOut(port)
            listening = socket.socket(fileno=sockets())
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((HOST, port))
            stack.push_async_callback(way.close)
            await stack.enter_async_context(await asyncio.start_server(way.lead, sock=listening))
        yield


class WayOut:
    """Leads connections to a port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.open: set[asyncio.Task[None]] = set()

    def lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin to lead one connection."""
        task = asyncio.ensure_future(self.join(reader, writer))
        self.open.add(task)
        task.add_done_callback(self.open.discard)

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lead one connection to its end."""
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self.port)
            await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))
        except OSError:
            return
        finally:
            writer.transport.abort()

    async def close(self) -> None:
        """End all connections."""
        for each in self.open:
            each.cancel()
        await asyncio.gather(*self.open, return_exceptions=True)


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes one way until it ends."""
    try:
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.close()


async def main(path: str, ports: list[int]) -> None:
    async with ways_out(InnerSockets(path), ports):
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], [int(each) for each in sys.argv[2:]]))
