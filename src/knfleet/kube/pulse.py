"""The cheapest way to ask a server the same thing again and again.

A thousand spokes are probed a hundred times a second, and what an HTTP client does for a request
costs ten times what this does: one connection, one request that is always the same, one answer that
is looked at as a whole. It knows good answers only. Whatever else happens, it says that it does not
know, closes its connection, and the question is to be asked in the ordinary way, which does know.
"""

import asyncio
import socket
from contextlib import suppress
from typing import cast

from msgspec import Struct
from yarl import URL

from knfleet.kube.credentials import Credential
from knfleet.kube.errors import KubeError, Unanswered
from knfleet.kube.retry import GET
from knfleet.kube.tls import tls_context
from knfleet.kube.transport import Call, Transport, with_token

ANSWER_LIMIT_BYTES = 256 * 1024
HEAD_END = b"\r\n\r\n"
GRACE_SECONDS = 0.05
"""Longer than one round of the event loop waits."""
MOST_FAILURES = 3
"""A server with which it goes wrong so often in a row is always asked in the ordinary way."""


class NotUnderstood(ValueError):
    """An answer is not of the kind that is understood here."""


class Answered(Struct, frozen=True):
    """An answer that has come to its end."""

    code: int
    body: bytes
    is_last: bool
    """Whether the server closes the connection after it."""


def answer_in(received: bytes) -> Answered | None:
    """The answer in what was received; None when there is more to come."""
    head, end, rest = received.partition(HEAD_END)
    if len(received) > ANSWER_LIMIT_BYTES:
        raise NotUnderstood("too long")
    if not end:
        return None
    status, *lines = head.split(b"\r\n")
    if not status.startswith(b"HTTP/1.1 ") or not status[9:12].isdigit():
        raise NotUnderstood("not HTTP/1.1")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip().lower()
    body = body_in(headers, rest)
    if body is None:
        return None
    return Answered(int(status[9:12]), body, headers.get(b"connection") == b"close")


def body_in(headers: dict[bytes, bytes], rest: bytes) -> bytes | None:
    """The body after a head; None when there is more to come."""
    if headers.get(b"transfer-encoding") == b"chunked":
        return whole(rest)
    length = headers.get(b"content-length", b"")
    if not length.isdigit() or headers.keys() & {b"transfer-encoding", b"content-encoding"}:
        raise NotUnderstood("a body of unknown length or form")
    if len(rest) > int(length):
        raise NotUnderstood("more than one answer")
    return rest if len(rest) == int(length) else None


def whole(chunks: bytes) -> bytes | None:
    """What came in chunks; None when there is more to come."""
    parts: list[bytes] = []
    while True:
        size, end, chunks = chunks.partition(b"\r\n")
        if not end:
            return None
        try:
            length = int(size.partition(b";")[0], 16)
        except ValueError:
            raise NotUnderstood("not a chunk") from None
        if len(chunks) < length + 2:
            return None
        if not length:
            return b"".join(parts)
        parts.append(chunks[:length])
        chunks = chunks[length + 2 :]


class Line(asyncio.Protocol):
    """One connection, on which one question at a time is asked."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = b""
        self.waiter: asyncio.Future[Answered | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        # uvloop's transports are none of asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self.transport = None
        self.resolve(None)

    def data_received(self, data: bytes) -> None:
        """A part of an answer, which as a rule is all of it."""
        self.received += data
        try:
            answered = answer_in(self.received)
        except NotUnderstood:
            self.close()
            return
        if self.waiter is None:
            self.close()
        elif answered is not None:
            self.received = b""
            self.resolve(answered)

    def resolve(self, answered: Answered | None) -> None:
        """Tell who waits."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(answered)
        self.waiter = None

    def close(self) -> None:
        """Close it; who waits gets nothing."""
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.abort()
        self.resolve(None)

    async def ask(self, request: bytes, seconds: float) -> Answered | None:
        """The answer, None when it cannot be had here; raises `TimeoutError`."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return None
        loop = asyncio.get_running_loop()
        waiter = self.waiter = loop.create_future()
        alarm = loop.call_later(seconds, look_once_more, waiter)
        try:
            transport.write(request)
            return await waiter
        except BaseException:
            self.close()
            raise
        finally:
            alarm.cancel()


def look_once_more(waiter: asyncio.Future[Answered | None]) -> None:
    """Tell who waits that it took too long, unless the answer is here and was not read yet.

    Timers come before sockets: a loop that was busy for long finds both at the same time.
    """
    if not waiter.done():
        asyncio.get_running_loop().call_later(GRACE_SECONDS, expire, waiter)


def expire(waiter: asyncio.Future[Answered | None]) -> None:
    """Tell who waits that it took too long."""
    if not waiter.done():
        waiter.set_exception(TimeoutError())


class Pulse:
    """Asks for one path of a server, over a connection of its own."""

    def __init__(self, transport: Transport, path: str) -> None:
        self.transport = transport
        self.call = Call(GET, path)
        self.url = URL(transport.base + path, encoded=True)
        self.line: Line | None = None
        self.shown: Credential | None = None
        """The credential with which the connection was made."""
        self.failures = 0

    async def ask(self, seconds: float) -> bytes | None:
        """What the server answers, if that is fine; None when it must be asked in another way.

        Raises `Unanswered` when there is no answer in time.
        """
        line, login = self.line, self.transport.login
        if line is None or not login.is_fresh():
            return None
        credential = await login.current()
        if not self.shows(credential):
            self.close()
            return None
        loop = asyncio.get_running_loop()
        started, answered = loop.time(), None
        try:
            answered = await line.ask(self.request(credential), seconds)
        except TimeoutError:
            self.observe(0, seconds)
            text = f"{self.transport.where(self.call)}: {seconds:g} s passed waiting for an answer"
            raise Unanswered(text) from None
        finally:
            if answered is None or answered.code != 200 or answered.is_last:
                self.close()
        if answered is None or answered.code != 200:
            self.failures += 1
            return None
        self.failures = 0
        self.observe(answered.code, loop.time() - started)
        return answered.body

    def shows(self, credential: Credential) -> bool:
        """Whether the connection was made with the certificate of a credential."""
        shown = self.shown
        return shown is not None and (shown.client_certificate, shown.client_key) == (
            credential.client_certificate,
            credential.client_key,
        )

    def observe(self, code: int, seconds: float) -> None:
        """Have a request counted as any other."""
        transport = self.transport
        transport.options.observe.request(transport.cluster, GET.name, code, seconds)

    def request(self, credential: Credential) -> bytes:
        """What is sent."""
        agent = self.transport.options.user_agent
        headers = with_token({"Accept": "application/json", "User-Agent": agent}, credential)
        lines = [f"{name}: {value}" for name, value in headers.items()]
        where = f"GET {self.url.raw_path_qs} HTTP/1.1", f"Host: {self.transport.server}"
        return "\r\n".join((*where, *lines, "", "")).encode()

    async def open(self, seconds: float) -> None:
        """Connect if that is not done and can be; whatever goes wrong, others will find out."""
        if self.line is not None or self.transport.proxy or self.failures >= MOST_FAILURES:
            return
        try:
            async with asyncio.timeout(seconds):
                credential = await self.transport.login.current()
                self.line = await self.connected(credential)
        except (OSError, RuntimeError, KubeError):
            self.failures += 1
        else:
            self.shown = credential

    async def connected(self, credential: Credential) -> Line:
        """A new connection."""
        loop = asyncio.get_running_loop()
        transport, host = self.transport, self.url.host or ""
        tls = await tls_context(transport.endpoint, credential) if transport.is_tls else None
        addresses = await loop.getaddrinfo(host, self.url.port, type=socket.SOCK_STREAM)
        opened = transport.sockets.open(addresses[0])
        try:
            await loop.sock_connect(opened, addresses[0][4])
            name = (transport.endpoint.tls_server_name or host) if tls else None
            _, line = await loop.create_connection(Line, sock=opened, ssl=tls, server_hostname=name)
        except BaseException:
            with suppress(OSError):
                opened.close()
            raise
        return line

    def close(self) -> None:
        """Give the connection up."""
        line, self.line = self.line, None
        if line is not None:
            line.close()
