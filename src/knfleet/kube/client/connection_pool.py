"""The connections of one client, which can be cut all at once.

Requests in progress are ended through the event loop's own transports, never through the files
below them. A pool that was cut is closed once it is not in use any more, and another one takes its
place.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp

from knfleet.kube.client.sockets import Sockets

KEEP_ALIVE_SECONDS = 30


class ConnectionCut(aiohttp.ClientError):
    """The connection was given up on this side."""


class PendingResponse(aiohttp.ClientResponse):
    """A response that drops its connection when nobody waits for it any more.

    Otherwise TLS waits up to half a minute for the farewell of a server that is busy with the
    request.
    """

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        try:
            return await super().start(connection)
        except BaseException:
            if connection.transport is not None:
                connection.transport.abort()
            raise


class ConnectionPool:
    """One session of the HTTP client, and the requests in progress in it."""

    def __init__(
        self,
        open_session: Callable[[aiohttp.TCPConnector], aiohttp.ClientSession],
        open_socket: Callable[[], int] | None = None,
    ) -> None:
        self.sockets = Sockets(open_socket)
        self.session = open_session(
            aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, socket_factory=self.sockets.open
            )
        )
        self.stops: dict[asyncio.Timeout, Callable[[], None]] = {}
        """How to end requests in progress."""
        self.unused = asyncio.Event()
        self.unused.set()

    @asynccontextmanager
    async def response(
        self, ask: Callable[[aiohttp.ClientSession], Awaitable[aiohttp.ClientResponse]]
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """The response to a request; raises `ConnectionCut` when the pool is cut before it."""
        opening = asyncio.timeout(None)
        self.unused.clear()
        try:
            async with opening:
                self.stops[opening] = lambda: opening.reschedule(0)
                response = await ask(self.session)
            self.stops[opening] = lambda: abort(response)
            async with response:
                yield response
        except TimeoutError as error:
            if opening.expired():
                raise ConnectionCut("the request was cancelled") from error
            raise
        finally:
            self.stops.pop(opening, None)
            if not self.stops:
                self.unused.set()

    def cut(self) -> None:
        """End requests in progress."""
        for stop in self.stops.values():
            stop()

    async def close(self) -> None:
        """Close all connections, when none is in use any more."""
        await self.unused.wait()
        await self.session.close()


def abort(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of an answer that was not read to its end, without a farewell."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
