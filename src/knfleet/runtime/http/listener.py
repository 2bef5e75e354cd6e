"""An HTTP server whose connections are limited in number and in time.

aiohttp has a limit for neither: it waits an hour for the rest of a request, and takes as many
connections as there are. Connections are counted from when they are accepted, so that those count
too that never finish their TLS handshake.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import cast

from aiohttp import web

from knfleet.runtime.http.connection_limits import (
    AcceptedConnection,
    ConnectionAdmission,
    ConnectionLimits,
)
from knfleet.runtime.http.listening_sockets import ListeningSockets

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpListener:
    """Serves an application."""

    def __init__(
        self, app: web.Application, limits: ConnectionLimits, close_seconds: float
    ) -> None:
        self.limits = limits
        self.admission = ConnectionAdmission(limits)
        self.lines: dict[asyncio.BaseProtocol, HttpConnection] = {}
        """By aiohttp's own side of each."""
        app.middlewares.insert(0, self.watch)
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=close_seconds)
        self.listening = ListeningSockets()

    async def open(self, host: str | None, port: int) -> tuple[str, int]:
        """Take an address, all of the machine's when there is no host; raises `OSError`."""
        await self.runner.setup()
        return await self.listening.open(host, port)

    async def run(self, tls: ssl.SSLContext | None = None) -> None:
        """Serve until cancelled."""
        await self.listening.run(partial(self.accept, tls))

    async def close(self) -> None:
        """End everything."""
        self.listening.close()
        await self.runner.cleanup()

    def accept(
        self,
        tls: ssl.SSLContext | None,
        accepted: socket.socket,
        address: str,
        group: asyncio.TaskGroup,
    ) -> None:
        """Take one connection, if there is room for it."""
        assert self.runner.server is not None
        line = HttpConnection(self, self.runner.server())
        guest = self.admission.admit(address, line.abort)
        if guest is None:
            accepted.close()
            return
        line.guest = guest
        line.task = group.create_task(self.shake_hands(accepted, line, tls))

    async def shake_hands(
        self, accepted: socket.socket, line: "HttpConnection", tls: ssl.SSLContext | None
    ) -> None:
        """Let a connection in, after its TLS handshake if there is one."""
        loop = asyncio.get_running_loop()
        timeout = self.limits.header_seconds if tls is not None else None
        try:
            with suppress(OSError):
                await loop.connect_accepted_socket(
                    lambda: line, accepted, ssl=tls, ssl_handshake_timeout=timeout
                )
        finally:
            if line.transport is None:
                accepted.close()
                line.leave()

    @web.middleware
    async def watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Know which connections have a request."""
        line = self.lines.get(request.protocol)
        if line is None:
            return await handler(request)
        line.begin()
        try:
            return await handler(request)
        finally:
            line.end()


class HttpConnection(asyncio.Protocol):
    """One connection: aiohttp's protocol, with a clock for the next request."""

    def __init__(self, listener: HttpListener, inner: asyncio.Protocol) -> None:
        self.listener = listener
        self.inner = inner
        self.guest: AcceptedConnection | None = None
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None
        self.clock: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        """End the connection without another word."""
        if self.transport is not None:
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()

    def wait(self, seconds: float) -> None:
        """End the connection unless a request comes in time."""
        self.clock = asyncio.get_running_loop().call_later(seconds, self.abort)

    def begin(self) -> None:
        """A request has come."""
        if self.clock is not None:
            self.clock.cancel()
        if self.guest is not None:
            self.listener.admission.begin(self.guest)

    def end(self) -> None:
        """A request is answered, but for what is still to be sent."""
        if self.guest is not None and self.guest in self.listener.admission.guests:
            self.listener.admission.end(self.guest)
            self.wait(self.listener.limits.keep_seconds)

    def leave(self) -> None:
        """The connection is no more."""
        if self.clock is not None:
            self.clock.cancel()
        if self.guest is not None:
            self.listener.admission.leave(self.guest)
        self.listener.lines.pop(self.inner, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self.listener.lines[self.inner] = self
        self.wait(self.listener.limits.header_seconds)
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        self.inner.connection_lost(exc)
