"""Things between a client and a server: a wire that can be cut, and an HTTP proxy."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from testbed.fakes.sockets import loopback_socket


class Relay:
    """Accepts connections on loopback and carries bytes both ways."""

    def __init__(self) -> None:
        self.carrying: set[asyncio.Task[None]] = set()
        self.refusing = False
        self.connections = 0

    async def __aenter__(self) -> Self:
        listening = loopback_socket()
        self.port: int = listening.getsockname()[1]
        self.server = await asyncio.start_server(self.accept, sock=listening)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.server.close()
        await self.cut()
        await self.server.wait_closed()

    async def cut(self) -> None:
        """Cut every connection that is open."""
        tasks = list(self.carrying)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        task = asyncio.current_task()
        assert task is not None
        self.carrying.add(task)
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
                await self.carry(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            self.carrying.discard(task)
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Find the other end, and carry bytes until one side ends."""
        raise NotImplementedError

    async def join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        """Carry bytes between a client and a server."""
        far_reader, far_writer = await asyncio.open_connection(host, port)
        ways = [
            asyncio.create_task(pump(reader, far_writer)),
            asyncio.create_task(pump(far_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


class Wire(Relay):
    """A wire to one server, which can be cut and closed."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self.target = urlsplit(server)

    @property
    def url(self) -> str:
        """The server's URL at this end of the wire."""
        return f"{self.target.scheme}://127.0.0.1:{self.port}"

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection, unless the wire is closed."""
        if not self.refusing:
            host, port = self.target.hostname, self.target.port
            assert host is not None
            assert port is not None
            await self.join(reader, writer, host, port)


class HttpProxy(Relay):
    """A proxy that knows CONNECT."""

    def __init__(self, *, authorization: str = "") -> None:
        super().__init__()
        self.authorization = authorization
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer CONNECT, then carry."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        self.asked.append(f"{method} {target}")
        if self.refusing:
            writer.write(b"HTTP/1.1 403 Not From Here\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        elif self.authorization and self.authorization not in head:
            writer.write(b"HTTP/1.1 407 Who Are You\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            host, _, port = target.rpartition(":")
            await self.join(reader, writer, host, int(port))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes one way; the end of one way ends both."""
    with suppress(ConnectionError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
