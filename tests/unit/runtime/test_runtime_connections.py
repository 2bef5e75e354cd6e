"""Connections that send nothing, or not all, hold nothing up: on the health port and beside it."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop
from aiohttp import web

from knfleet.runtime.http.connection_limits import (
    AcceptedConnection,
    ConnectionAdmission,
    ConnectionLimits,
)
from knfleet.runtime.http.health import HealthServer
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.http.listener import HttpListener
from knfleet.runtime.http.liveness import LivenessServer
from testbed.fakes.certificates import Authority
from testbed.fakes.server import server_context
from testbed.fakes.sockets import free_port
from testbed.waiting import PATIENCE_SECONDS, until

HALF = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
QUICK = ConnectionLimits(header_seconds=0.2, keep_seconds=0.2)
SMALL = ConnectionLimits(connections=6, per_address=4)


class Line:
    """A connection as a client has it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, words: bytes = WHOLE) -> bytes:
        """Send something; the first line of what is answered, nothing when that is the end."""
        with suppress(ConnectionError):
            self.writer.write(words)
            return await asyncio.wait_for(self.reader.readline(), PATIENCE_SECONDS)
        return b""

    async def ended(self) -> bool:
        """Wait for the server to end the connection."""
        with suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), PATIENCE_SECONDS) == b""
        return True


@asynccontextmanager
async def lines(address: tuple[str, int], *sources: str) -> AsyncGenerator[list[Line]]:
    """Connections from these addresses of this machine."""
    found: list[Line] = []
    try:
        for source in sources:
            opened = await asyncio.open_connection(*address, local_addr=(source, 0))
            found.append(Line(*opened))
        yield found
    finally:
        for line in found:
            line.writer.transport.abort()


@asynccontextmanager
async def served(component: HealthServer | LivenessServer) -> AsyncGenerator[tuple[str, int]]:
    """The address of a server that runs as long as the block."""
    task = asyncio.ensure_future(component.run())
    try:
        await asyncio.wait_for(component.listening.wait(), PATIENCE_SECONDS)
        assert component.address is not None
        yield component.address
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def small(kind: str, limits: ConnectionLimits) -> HealthServer | LivenessServer:
    """A server with these limits."""
    bind = ListenAddress(port=free_port())
    return (
        HealthServer(bind, limits=limits)
        if kind == "health"
        else LivenessServer(bind, limits=limits)
    )


@pytest.mark.parametrize("kind", ["health", "liveness"])
@pytest.mark.parametrize("words", [b"", HALF])
async def test_a_connection_without_a_request_is_ended(kind: str, words: bytes):
    """Whether nothing is sent or half of a request."""
    async with served(small(kind, QUICK)) as address, lines(address, "127.0.0.1") as (line,):
        line.writer.write(words)

        assert await line.ended()


async def test_a_connection_is_ended_when_the_next_request_does_not_come():
    """Half of it counts for nothing."""
    async with served(small("health", QUICK)) as address, lines(address, "127.0.0.1") as (line,):
        assert b"200" in await line.ask(WHOLE + HALF)
        with suppress(ConnectionError):
            await asyncio.wait_for(line.reader.read(), PATIENCE_SECONDS)

        assert line.reader.at_eof() or line.reader.exception() is not None


@pytest.mark.parametrize("kind", ["health", "liveness"])
async def test_idle_connections_keep_nobody_out(kind: str):
    """From one address or from many: those that waited longest are ended for those who ask."""
    many = [f"127.0.0.{2 + number % 3}" for number in range(60)]
    async with served(small(kind, SMALL)) as address, lines(address, *many) as idle:
        async with lines(address, "127.0.0.5", "127.0.0.2") as asking:
            answers = [await line.ask() for line in asking]

        assert all(b"200" in each for each in answers)
        for line in idle[:54]:
            assert await line.ended()


def test_a_request_is_answered_on_the_loop_of_the_real_process():
    """Its transports are none of asyncio's."""

    async def asked() -> bytes:
        async with served(small("health", SMALL)) as address, lines(address, "127.0.0.1") as found:
            return await found[0].ask()

    assert b"200" in uvloop.run(asked())


class Slow:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.address: tuple[str, int] = ("", 0)
        self.asked = 0
        self.go_on = asyncio.Event()

    async def answer(self, _request: web.Request) -> web.Response:
        """Wait, and answer."""
        self.asked += 1
        await self.go_on.wait()
        return web.Response(text="ok")


@asynccontextmanager
async def slow_server(tls: ssl.SSLContext | None, limits: ConnectionLimits) -> AsyncGenerator[Slow]:
    """A server whose answers wait."""
    slow = Slow()
    app = web.Application()
    app.router.add_get("/healthz", slow.answer)
    listener = HttpListener(app, limits, 1.0)
    slow.address = await listener.open("127.0.0.1", free_port())
    task = asyncio.ensure_future(listener.run(tls))
    try:
        yield slow
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await listener.close()


async def test_connections_that_are_being_answered_are_left_alone():
    """Beyond so many of one address the next is refused, and others are not."""
    async with slow_server(None, SMALL) as slow, lines(slow.address, *["127.0.0.2"] * 4) as busy:
        for line in busy:
            line.writer.write(WHOLE)
        await until(lambda: slow.asked == 4, "four requests are being answered")
        async with lines(slow.address, "127.0.0.2", "127.0.0.3") as (refused, other):
            assert await refused.ended()
            slow.go_on.set()
            answers = [await line.ask(b"") for line in busy]

            assert all(b"200" in each for each in [*answers, await other.ask()])


async def test_a_request_may_take_longer_than_its_head():
    """An open page lasts for hours; only waiting for a request is limited."""
    async with slow_server(None, QUICK) as slow, lines(slow.address, *["127.0.0.1"] * 2) as found:
        busy, idle = found
        busy.writer.write(WHOLE)
        await until(lambda: slow.asked == 1, "the request is being answered")
        assert await idle.ended()
        slow.go_on.set()

        assert b"200" in await busy.ask(b"")


async def test_a_tls_handshake_that_does_not_come_is_waited_for_no_longer():
    """Such connections count as well, and make room."""
    tls = server_context(Authority().server())
    limits = ConnectionLimits(connections=2, per_address=2, header_seconds=0.2)
    async with slow_server(tls, limits) as slow, lines(slow.address, *["127.0.0.1"] * 5) as idle:
        for line in idle:
            assert await line.ended()


def test_a_full_server_ends_the_connection_that_waited_longest():
    """Of the same address when that one has too many; one that is answered is never ended."""
    ended: list[str] = []
    admission = ConnectionAdmission(ConnectionLimits(connections=3, per_address=2))

    def admit(name: str, address: str) -> AcceptedConnection | None:
        return admission.admit(address, lambda: ended.append(name))

    one, two = admit("one", "a"), admit("two", "a")
    assert one is not None
    assert two is not None
    admission.begin(one)
    admit("three", "a")
    assert ended == ["two"]
    admit("four", "b")
    admit("five", "c")
    assert ended == ["two", "three"]
    admission.end(one)
    admit("six", "d")
    assert ended == ["two", "three", "four"]
    for guest in admission.guests:
        admission.begin(guest)
    assert admit("seven", "e") is None
    admission.leave(one)
    assert admit("eight", "e") is not None
