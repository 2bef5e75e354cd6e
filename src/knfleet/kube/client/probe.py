"""The cheapest way to ask a server the same thing again and again.

A thousand spokes are probed a hundred times a second, and what an HTTP client does for a request
costs ten times what this does: one connection, one request that is always the same, one short
answer. It knows good answers only. Whatever else happens, it says that it does not know, closes its
connection, and the question is to be asked in the ordinary way, which does know.
"""

import asyncio
import socket

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpResponseParser, RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from msgspec import Struct
from yarl import URL

from knfleet.kube.auth.credentials import Credential
from knfleet.kube.auth.tls import tls_context
from knfleet.kube.client.retry import GET
from knfleet.kube.client.sockets import Sockets
from knfleet.kube.client.transport import Call, Transport, with_token
from knfleet.kube.errors import KubeError, RequestTimeout

ANSWER_LIMIT_BYTES = 64 * 1024
"""Of one answer, head and sizes of chunks included."""
GRACE_SECONDS = 0.05
"""Longer than one round of the event loop waits."""
MOST_FAILURES = 3
"""A server with which it goes wrong so often in a row is always asked in the ordinary way."""


class ProbeResult(Struct, frozen=True):
    """An answer that has come to its end."""

    code: int
    body: bytes
    is_last: bool
    """Whether the server closes the connection after it."""


class ProbeConnection(BaseProtocol):
    """One connection, on which one question at a time is asked; aiohttp's parser reads answers."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop)
        self.loop = loop
        self.parser: HttpResponseParser | None = None
        self.received = 0
        self.answer: tuple[RawResponseMessage, StreamReader] | None = None
        self.waiter: asyncio.Future[ProbeResult | None] | None = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is closed."""
        super().connection_lost(exc)
        self.resolve(None)

    def data_received(self, data: bytes) -> None:
        """A part of an answer, which as a rule is all of it."""
        self.received += len(data)
        if self.waiter is None or self.parser is None or self.received > ANSWER_LIMIT_BYTES:
            self.close()
            return
        try:
            answers, is_upgraded, rest = self.parser.feed_data(data)
        except HttpProcessingError:
            self.close()
            return
        if is_upgraded or rest or len(answers) + (self.answer is not None) > 1:
            self.close()
            return
        if answers:
            self.answer = answers[0]
        if self.answer is not None:
            self.take(*self.answer)

    def pause_reading(self) -> None:
        """The parser has too many small chunks."""
        self.close()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Nothing was paused."""

    def take(self, head: RawResponseMessage, body: StreamReader) -> None:
        """Tell who waits of an answer, if all of it is there."""
        if head.compression or body is EMPTY_PAYLOAD or self.waiter is None:
            self.close()
        elif body.is_eof():
            text = body.read_nowait()
            self.resolve(ProbeResult(head.code, text, head.should_close) if text else None)

    def resolve(self, answered: ProbeResult | None) -> None:
        """Tell who waits."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(answered)
        self.waiter = self.parser = self.answer = None

    def close(self) -> None:
        """Close it; who waits gets nothing."""
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.abort()
        self.resolve(None)

    async def send(self, request: bytes, seconds: float) -> ProbeResult | None:
        """The answer, None when it cannot be had here; raises `TimeoutError`."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return None
        waiter = self.waiter = self.loop.create_future()
        self.received = 0
        self.parser = HttpResponseParser(
            self,
            self.loop,
            ANSWER_LIMIT_BYTES,
            read_until_eof=True,
            auto_decompress=False,
        )
        alarm = self.loop.call_later(seconds, look_once_more, waiter)
        try:
            transport.write(request)
            return await waiter
        except BaseException:
            self.close()
            raise
        finally:
            alarm.cancel()


def look_once_more(waiter: asyncio.Future[ProbeResult | None]) -> None:
    """Tell who waits that it took too long, unless the answer is here and was not read yet.

    Timers come before sockets: a loop that was busy for long finds both at the same time.
    """
    if not waiter.done():
        asyncio.get_running_loop().call_later(GRACE_SECONDS, expire, waiter)


def expire(waiter: asyncio.Future[ProbeResult | None]) -> None:
    """Tell who waits that it took too long."""
    if not waiter.done():
        waiter.set_exception(TimeoutError())


class ApiProber:
    """Asks for one path of a server, over a connection of its own."""

    def __init__(self, transport: Transport, path: str) -> None:
        self.transport = transport
        self.call = Call(GET, path)
        self.url = URL(transport.base + path, encoded=True)
        self.sockets = Sockets()
        self.line: ProbeConnection | None = None
        self.shown: Credential | None = None
        """The credential with which the connection was made."""
        self.failures = 0

    async def probe(self, seconds: float) -> bytes | None:
        """What the server answers, if that is fine; None when it must be asked in another way.

        Raises `RequestTimeout` when there is no answer in time.
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
            answered = await line.send(self.request(credential), seconds)
        except TimeoutError:
            self.observe(0, seconds)
            text = f"{self.transport.where(self.call)}: {seconds:g} s passed waiting for an answer"
            raise RequestTimeout(text) from None
        finally:
            if answered is None or answered.code != 200 or answered.is_last:
                self.close()
        if answered is None or answered.code != 200:
            self.failures += 1
            return None
        self.failures = 0
        self.observe(answered.code, loop.time() - started)
        return answered.body

    def is_open(self) -> bool:
        """Whether its connection is open."""
        return self.line is not None and self.line.connected

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

    async def connected(self, credential: Credential) -> ProbeConnection:
        """A new connection."""
        loop = asyncio.get_running_loop()
        transport, host = self.transport, self.url.host or ""
        tls = await tls_context(transport.endpoint, credential) if transport.is_tls else None
        addresses = await loop.getaddrinfo(host, self.url.port, type=socket.SOCK_STREAM)
        opened = self.sockets.open(addresses[0])
        try:
            await loop.sock_connect(opened, addresses[0][4])
        except BaseException:
            opened.close()
            raise
        # From here on the file is the loop's to close.
        name = (transport.endpoint.tls_server_name or host) if tls else None
        _, line = await loop.create_connection(
            ProbeConnection, sock=opened, ssl=tls, server_hostname=name
        )
        return line

    def close(self) -> None:
        """Give the connection up."""
        line, self.line = self.line, None
        if line is not None:
            line.close()
