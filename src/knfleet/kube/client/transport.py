"""One cluster's HTTP: login, slots, deadlines, retries, and one connection pool.

The token travels in each request and the TLS context is chosen for each request, so a new token or
a new client certificate never disturbs requests in progress; connections made with an old
certificate are not used again and close when idle.
"""

import asyncio
import io
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp
from aiohttp import hdrs
from msgspec import Struct
from yarl import URL

from knfleet.kube.auth.credentials import CachedCredential, Credential
from knfleet.kube.auth.tls import tls_context
from knfleet.kube.client.connection_pool import ConnectionPool, PendingResponse, abort
from knfleet.kube.client.memory_budget import MemoryBudget, weight
from knfleet.kube.client.network_errors import ConnectionLost, authority, network_error
from knfleet.kube.client.options import ClientOptions, SlotUse
from knfleet.kube.client.proxy import proxy_for
from knfleet.kube.client.rate_limit import RateLimit
from knfleet.kube.client.responses import HttpResponse, as_error
from knfleet.kube.client.retry import SAFE_METHODS, AttemptFailure, RequestVerb, backoff, may_repeat
from knfleet.kube.client.slots import ClientSlots
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import (
    ApiError,
    ConfigError,
    CredentialError,
    KubeError,
    RequestTimeout,
    ResponseTooLarge,
)

LARGE_BODY_BYTES = 512 * 1024
BURST_SECONDS = 4
"""How much may be read at once, in seconds of what is read on the average."""


class Call(Struct, frozen=True):
    """One thing to ask an API server."""

    verb: RequestVerb
    path: str
    query: str = ""
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    deadline_seconds: float | None = None
    urgent: bool = False


class CallProgress(Struct):
    """How far a call has come."""

    waiting_for: str = "a login"
    sent: bool = False
    before_sending: Callable[[], None] = lambda: None
    """Asked last, when there is a connection: making one may take longer than a term."""
    logged_in_again: bool = False
    failures: int = 0
    last: KubeError | None = None


class AttemptFailed(Exception):
    """One attempt did not work; says what is known about it."""

    def __init__(self, failure: AttemptFailure) -> None:
        super().__init__()
        self.failure = failure


async def headers_sent(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    """From here on the server may act on the request; aiohttp says so before the first byte."""
    progress = context.trace_request_ctx
    progress.before_sending()
    progress.sent = True
    progress.waiting_for = "an answer"


TRACES = aiohttp.TraceConfig()
TRACES.on_request_headers_sent.append(headers_sent)


async def send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending again what was lost: that is decided by the table in `retry`."""
    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, TimeoutError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise ConnectionLost from error


class Transport:
    """Sends calls to one API server."""

    def __init__(self, connection: Connection, options: ClientOptions) -> None:
        self.cluster = connection.cluster
        self.endpoint = connection.endpoint
        self.options = options
        self.login = CachedCredential(connection.credentials, refreshed=self.refreshed)
        self.slots = ClientSlots(options.concurrency, options.reserve)
        self.budget = MemoryBudget(options.memory_limit_bytes, options.exceeded)
        self.rate = RateLimit(options.requests_per_second, options.burst)
        reading = options.read_bytes_per_second
        self.reading = RateLimit(reading, round(BURST_SECONDS * reading))
        self.base = server_url(self.endpoint)
        self.server = authority(self.base)
        self.is_tls = self.base.startswith("https:")
        self.proxy = proxy_for(self.endpoint)
        self.timeout = aiohttp.ClientTimeout(total=None, sock_connect=options.connect_seconds)
        self.pool: ConnectionPool | None = None
        self.closing: set[asyncio.Task[None]] = set()
        self.closed = False

    def refreshed(self) -> None:
        """Tell the observer about a new credential."""
        self.options.observe.credential_refreshed(self.cluster)

    async def close(self) -> None:
        """Close all connections; calls in progress fail."""
        self.closed = True
        self.cut()
        if self.closing:
            await asyncio.wait(self.closing)
            await asyncio.sleep(0)

    def cut(self) -> None:
        """End all connections, idle ones too; calls in progress fail, later ones connect anew."""
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.cut()
            closing = asyncio.create_task(pool.close())
            self.closing.add(closing)
            closing.add_done_callback(self.closing.discard)

    def connected(self) -> bool:
        """Whether at least one connection is open."""
        return self.pool is not None and self.pool.sockets.connected()

    def where(self, call: Call) -> str:
        """What is asked, for messages."""
        return f"{self.cluster}: {call.verb.method} {call.path}"

    async def send(self, call: Call) -> HttpResponse:
        """The answer to a call; sent again as often as it is safe, before its deadline."""
        seconds = call.deadline_seconds or self.options.deadline_seconds
        progress = CallProgress()
        try:
            async with asyncio.timeout(seconds) as clock:
                while True:
                    try:
                        return await self.attempt(call, progress)
                    except AttemptFailed as attempt:
                        delay = self.next_delay(call, attempt.failure, progress)
                        if delay is None or past(clock, delay):
                            raise attempt.failure.error from attempt.failure.error.__cause__
                    progress.waiting_for = "the next attempt"
                    await asyncio.sleep(delay)
        except TimeoutError:
            raise self.timed_out(call, progress, seconds) from progress.last

    def next_delay(
        self, call: Call, failure: AttemptFailure, progress: CallProgress
    ) -> float | None:
        """How long to wait before the next attempt; None when there is none."""
        if failure.code == 401 and not progress.logged_in_again:
            progress.logged_in_again = True
            return 0
        progress.failures += 1
        if progress.failures >= self.options.attempts or not may_repeat(call.verb, failure):
            return None
        options = self.options
        jitter = backoff(
            progress.failures, base=options.backoff_seconds, limit=options.backoff_limit_seconds
        )
        return max(failure.retry_after_seconds or 0, jitter)

    def timed_out(self, call: Call, progress: CallProgress, seconds: float) -> RequestTimeout:
        """The error for a call whose deadline passed."""
        text = f"{self.where(call)}: {seconds:g} s passed waiting for {progress.waiting_for}"
        if progress.last is not None:
            text += f"; before that: {progress.last}"
        if call.verb.doubt and progress.sent:
            text += f"; {call.verb.doubt}"
        return RequestTimeout(text)

    async def attempt(self, call: Call, progress: CallProgress) -> HttpResponse:
        """One attempt at a call; raises `AttemptFailed` with all that is known when it fails."""
        await self.enter(call, progress)
        progress.waiting_for = "a login"
        credential = await self.login.current()
        if not call.urgent:
            progress.waiting_for = "its turn by the limit of requests"
            await self.rate.acquire()
        progress.waiting_for = "a free slot"
        async with self.slots.slot(urgent=call.urgent):
            await self.enter(call, progress)
            if call.verb.method not in SAFE_METHODS:
                self.options.before_write()
                progress.before_sending = self.options.before_write
            try:
                async with self.exchange(call, credential, progress) as response:
                    answer = await self.read(call, response)
            except KubeError as error:
                progress.last = error
                raise AttemptFailed(AttemptFailure(error, sent=progress.sent)) from error
        if answer.code < 300:
            return answer
        raise AttemptFailed(self.refusal(call, answer, credential, progress))

    async def enter(self, call: Call, progress: CallProgress) -> None:
        """Pass the gate, which may be closed for as long as the cluster does not answer."""
        if not call.urgent:
            progress.waiting_for = "the cluster to answer again"
            safe = call.verb.method in SAFE_METHODS
            await self.options.gate.enter(SlotUse.READ if safe else SlotUse.WRITE)

    def refusal(
        self, call: Call, answer: HttpResponse, credential: Credential, progress: CallProgress
    ) -> AttemptFailure:
        """What an answer that says no means; a credential that was not accepted is forgotten."""
        error = as_error(answer, self.where(call), call.verb.doubt)
        progress.last = error
        if answer.code == 401:
            self.login.reject(credential)
        after = error.retry_after_seconds if isinstance(error, ApiError) else None
        return AttemptFailure(error, answer.code, retry_after_seconds=after)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """An answer without end: opened before the deadline, given up after too long a silence.

        It takes no slot, and is not tried again, except once after a new login.
        """
        seconds = call.deadline_seconds or self.options.deadline_seconds
        silence = aiohttp.ClientTimeout(
            total=None,
            sock_connect=self.options.connect_seconds,
            sock_read=self.options.silence_seconds,
        )
        await self.options.gate.enter(SlotUse.WATCH)
        progress = CallProgress()
        try:
            async with asyncio.timeout(seconds) as clock:
                while True:
                    progress.waiting_for = "a login"
                    credential = await self.login.current()
                    async with self.exchange(call, credential, progress, silence) as response:
                        if response.status < 300:
                            clock.reschedule(None)
                            try:
                                yield response
                            finally:
                                abort(response)
                            return
                        answer = await self.read(call, response)
                    failure = self.refusal(call, answer, credential, progress)
                    if failure.code != 401 or progress.logged_in_again:
                        raise failure.error
                    progress.logged_in_again = True
        except TimeoutError:
            raise self.timed_out(call, progress, seconds) from progress.last

    @asynccontextmanager
    async def exchange(
        self,
        call: Call,
        credential: Credential,
        progress: CallProgress,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Send a request once; what goes wrong until its answer is read is one of our errors."""
        progress.waiting_for, progress.sent = "a connection", False
        loop = asyncio.get_running_loop()
        started, code = loop.time(), 0
        try:
            tls = await tls_context(self.endpoint, credential) if self.is_tls else True
            asking = self.opened().response(
                lambda session: session.request(
                    call.verb.method,
                    URL(self.base + call.path + call.query, encoded=True),
                    data=payload(call.body),
                    headers=with_token(call.headers, credential),
                    ssl=tls,
                    server_hostname=self.endpoint.tls_server_name,
                    proxy=self.proxy and self.proxy.url,
                    proxy_headers=self.proxy and self.proxy.headers,
                    allow_redirects=False,
                    trace_request_ctx=progress,
                    timeout=timeout or self.timeout,
                )
            )
            async with asking as response:
                code = response.status
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            doubt = call.verb.doubt if progress.sent else ""
            raise network_error(
                error, self.where(call), server=self.server, proxy=self.proxy, doubt=doubt
            ) from error
        finally:
            seconds = loop.time() - started
            self.options.observe.request(self.cluster, call.verb.name, code, seconds)

    async def read(self, call: Call, response: aiohttp.ClientResponse) -> HttpResponse:
        """The whole answer, unless it is larger than allowed."""
        limit, where = self.options.answer_limit_bytes, self.where(call)
        body = bytearray()
        try:
            if (response.content_length or 0) > limit:
                self.budget.refuse(f"{where}: the answer is larger than {limit} bytes")
            async for chunk in response.content.iter_any():
                self.budget.acquire(len(chunk), where)
                body += chunk
                if len(body) > limit:
                    self.budget.refuse(f"{where}: the answer is larger than {limit} bytes")
        except ResponseTooLarge:
            response.close()
            raise
        finally:
            self.budget.release(len(body))
        text = bytes(body)
        self.budget.check(weight(text), where)
        return HttpResponse(
            response.status, text, response.content_type, response.headers.get(hdrs.RETRY_AFTER)
        )

    def opened(self) -> ConnectionPool:
        """The connections, made when they are first needed."""
        if self.closed:
            raise KubeError(f"{self.cluster}: the client is closed")
        if self.pool is None:
            self.pool = ConnectionPool(self.new_session, self.endpoint.open_socket)
        return self.pool

    def new_session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        """A session without limits of its own: slots and deadlines are ours."""
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={hdrs.USER_AGENT: self.options.user_agent},
            trace_configs=[TRACES],
            middlewares=(send_once,),
            response_class=PendingResponse,
        )


def server_url(endpoint: Endpoint) -> str:
    """The URL in front of all paths."""
    try:
        url = URL(endpoint.server)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host or url.user is not None:
        raise ConfigError(f"{endpoint.server!r} is not the https:// URL of an API server")
    return str(url.with_query(None).with_fragment(None)).rstrip("/")


def payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """A request's body as aiohttp wants it: a large one is sent piece by piece."""
    return body if body is None or len(body) < LARGE_BODY_BYTES else io.BytesIO(body)


def with_token(headers: Mapping[str, str], credential: Credential) -> dict[str, str]:
    """Headers that say who we are."""
    token = credential.token
    if not token:
        return dict(headers)
    if not (token.isascii() and token.isprintable()):
        raise CredentialError("the token has line ends or other characters that no token has")
    return {**headers, hdrs.AUTHORIZATION: f"Bearer {token}"}


def past(clock: asyncio.Timeout, delay: float) -> bool:
    """Whether a wait would outlive the deadline, so that failing at once is kinder."""
    end = clock.when()
    return end is not None and asyncio.get_running_loop().time() + delay >= end
