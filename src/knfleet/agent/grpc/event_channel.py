"""Calls of an agent to a gRPC server: publish an event, follow the objects of a data type.

Errors are those of `kube.errors`, so that whoever calls need not know how the hub is reached. A
certificate that is renewed is used for the next call; the connection before it is closed then.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import msgspec
from msgspec import Struct

from knfleet.agent.grpc.grpc_config import GrpcConfig
from knfleet.cloudevents.cloud_event import (
    HEARTBEAT,
    MESSAGE_BYTES,
    SUBSCRIPTION_ID,
    CloudEvent,
    EventError,
    Subscription,
    publish_bytes,
    read_event,
    subscription_bytes,
)
from knfleet.cloudevents.event_types import (
    CLUSTER_NAME,
    EXTENDED_HEADER,
    HUB_SOURCE,
    ORIGINAL_SOURCE,
    RESYNC,
    RESYNC_ID,
    SPEC,
    DataType,
    EventType,
)
from knfleet.cloudevents.protobuf_messages import PUBLISH, SUBSCRIBE
from knfleet.cloudevents.resync import versions_bytes
from knfleet.kube.errors import (
    BadResponse,
    ConnectionInterrupted,
    ConnectionRefused,
    Forbidden,
    KubeError,
    NetworkError,
    RequestTimeout,
    Throttled,
    TlsFailed,
    Unauthorized,
    error_type,
)
from knfleet.kube.untrusted_json import decode_json

CALL_SECONDS = 30.0
OPEN_SECONDS = 15.0
SILENT_SECONDS = 35.0
"""A server sends a heartbeat every 10 seconds; after so long without anything it is gone."""
RARELY_SILENT_SECONDS = 150.0
"""The same for a server of ours, which sends one every minute; a lost connection is noticed sooner,
by pings."""
SETTLED_SECONDS = 0.5
"""After so long without an event the answer to a resync is complete, of a server that does not
say so."""
WAITING_EVENTS = 100
PROBES = 3
PROBE_SECONDS = 1.0
Code: Any = grpc.StatusCode
OPTIONS = [
    ("grpc.max_receive_message_length", 2 * MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),
]


class GrpcIdentity(Struct, frozen=True):
    """How an agent logs in: a pair of certificate and key, else a token; never printed."""

    certificate: bytes = b""
    key: bytes = b""
    token: str = ""

    def __repr__(self) -> str:
        return "GrpcIdentity()"


class ResyncEnd(Struct, frozen=True):
    """Everything is known that was there when a subscription began."""


END = ResyncEnd()


class EventChannel:
    """Calls to one gRPC server, for one cluster."""

    def __init__(
        self, config: GrpcConfig, cluster: str, source: str, identity: Callable[[], GrpcIdentity]
    ) -> None:
        self.config = config
        self.cluster = cluster
        self.source = source
        self.identity = identity
        self.used = GrpcIdentity()
        self.channel: Any = None
        self.closing: set[asyncio.Task[None]] = set()

    def current(self) -> Any:
        """The connection with the current certificate."""
        wanted = self.identity()
        if self.channel is None or wanted != self.used:
            self.retire()
            self.used = wanted
            self.channel = grpc.aio.secure_channel(
                self.config.url, credentials(self.config.ca, wanted), options=OPTIONS
            )
        return self.channel

    def retire(self) -> None:
        """Close the connection that is not used any more."""
        if self.channel is not None:
            task = asyncio.ensure_future(self.channel.close(1.0))
            self.closing.add(task)
            task.add_done_callback(self.closing.discard)
            self.channel = None

    async def close(self) -> None:
        """Close all connections."""
        self.retire()
        await asyncio.gather(*self.closing, return_exceptions=True)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        extended = (EXTENDED_HEADER, "true")
        if self.used.token:
            return (("authorization", f"Bearer {self.used.token}"), extended)
        return (extended,)

    async def publish(self, event: CloudEvent) -> None:
        """Publish an event; raises errors of `kube.errors`."""
        where = f"hub: {event.type}"
        call = self.current().unary_unary(PUBLISH)
        try:
            with closed_connection(where):
                await call(publish_bytes(event), timeout=CALL_SECONDS, metadata=self.metadata())
        except grpc.RpcError as error:
            raise await self.explained(error, where) from None

    async def ask(self, data_type: DataType, known: Mapping[str, int] | None, name: str) -> None:
        """Ask for everything that is not known yet, if anything is wanted."""
        if known is not None:
            await self.publish(self.resync_event(data_type, known, name))

    def resync_event(self, data_type: DataType, known: Mapping[str, int], name: str) -> CloudEvent:
        """The request for everything that is not known yet."""
        extensions = {CLUSTER_NAME: self.cluster, ORIGINAL_SOURCE: HUB_SOURCE, RESYNC_ID: name}
        kind = EventType(data_type, SPEC, RESYNC)
        return CloudEvent(str(kind), self.source, extensions=extensions, data=versions_bytes(known))

    @asynccontextmanager
    async def following(
        self, data_type: DataType, known: Mapping[str, int] | None
    ) -> AsyncGenerator[AsyncIterator[CloudEvent | ResyncEnd]]:
        """What changes among objects of a data type, beginning with all that is not known yet.

        Without `known`, nothing that was there before is asked for.
        """
        where = f"hub: {data_type}"
        wanted = Subscription(HUB_SOURCE, self.cluster, str(data_type))
        channel = self.current()
        call = channel.unary_stream(SUBSCRIBE)(subscription_bytes(wanted), metadata=self.metadata())
        try:
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    with closed_connection(where):
                        answered = {str(key): value for key, value in await call.initial_metadata()}
            except TimeoutError as error:
                raise RequestTimeout(f"{where}: no answer in {OPEN_SECONDS:.0f} s") from error
            except grpc.RpcError as error:
                raise await self.explained(error, where) from None
            if SUBSCRIPTION_ID not in answered:
                await self.refused(call, where)
            events = self.events(call, data_type, known, says_end=EXTENDED_HEADER in answered)
            async with aclosing(events) as stream:
                yield stream
        finally:
            call.cancel()

    async def refused(self, call: Any, where: str) -> None:
        """Raise why a server does not confirm a subscription."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await call.read()
        except grpc.RpcError as error:
            raise await self.explained(error, where) from None
        except TimeoutError:
            pass
        raise BadResponse(f"{where}: the server does not confirm the subscription")

    async def events(
        self, call: Any, data_type: DataType, known: Mapping[str, int] | None, *, says_end: bool
    ) -> AsyncGenerator[CloudEvent | ResyncEnd, None]:
        """The events of a subscription, and once the end of what was there."""
        where, name = f"hub: {data_type}", str(uuid.uuid4())
        queue: asyncio.Queue[CloudEvent | KubeError] = asyncio.Queue(WAITING_EVENTS)
        reading = asyncio.ensure_future(self.read(call, queue, where))
        asking = asyncio.ensure_future(self.ask(data_type, known, name))
        ended = known is None
        silent = RARELY_SILENT_SECONDS if says_end else SILENT_SECONDS
        try:
            while True:
                settles = asking.done() and not ended and not says_end
                try:
                    async with asyncio.timeout(SETTLED_SECONDS if not ended else silent):
                        event = await queue.get()
                except TimeoutError:
                    if asking.done():
                        asking.result()
                    if ended:
                        raise ConnectionInterrupted(f"{where}: no heartbeat") from None
                    if settles and queue.empty():
                        ended = True
                        yield END
                    continue
                if isinstance(event, KubeError):
                    raise event
                if event.type == HEARTBEAT:
                    continue
                if event.extensions.get(RESYNC_ID) == name:
                    ended = True
                    yield END
                elif RESYNC_ID not in event.extensions:
                    yield event
        finally:
            reading.cancel()
            asking.cancel()
            with suppress(asyncio.CancelledError, KubeError):
                await asking

    async def read(
        self, call: Any, queue: "asyncio.Queue[CloudEvent | KubeError]", where: str
    ) -> None:
        """Put the events of a stream into a queue; at last why it ended."""
        try:
            while True:
                with closed_connection(where):
                    body = await call.read()
                if not isinstance(body, bytes):
                    await queue.put(ConnectionInterrupted(f"{where}: the server ended the stream"))
                    return
                with suppress(EventError):
                    await queue.put(read_event(body))
        except ConnectionInterrupted as error:
            await queue.put(error)
        except grpc.RpcError as error:
            await queue.put(await self.explained(error, where))

    async def explained(self, error: Any, where: str) -> KubeError:
        """The error for a call that failed."""
        found = kube_error(error, where)
        if isinstance(found, NetworkError) and self.used.certificate:
            return await self.rejection(where) or found
        return found

    async def rejection(self, where: str) -> KubeError | None:
        """The error when the server answers others but does not accept our certificate.

        A handshake that fails says nothing about why. So the server is asked without a certificate
        and with it, several times: it must always answer the one and never the other.
        """
        for _ in range(PROBES):
            anonymous = await self.probe(GrpcIdentity())
            mine = await self.probe(self.used)
            if anonymous is not Code.UNAUTHENTICATED or mine is not Code.UNAVAILABLE:
                return None
            await asyncio.sleep(PROBE_SECONDS)
        message = "the server does not accept our certificate"
        return Unauthorized(message, code=401, reason="Unauthorized", where=where)

    async def probe(self, identity: GrpcIdentity) -> Any:
        """The status of an empty call with an identity."""
        made: Any = grpc.aio.secure_channel(
            self.config.url, credentials(self.config.ca, identity), options=OPTIONS
        )
        try:
            await made.unary_unary(PUBLISH)(b"", timeout=5.0)
        except grpc.RpcError as error:
            found: Any = error
            return found.code()
        finally:
            await made.close()
        return Code.OK


@contextmanager
def closed_connection(where: str) -> Generator[None]:
    """Tell a call that ends because its connection was closed from a task that is cancelled."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ConnectionInterrupted(f"{where}: the connection was closed") from None


def credentials(ca: bytes, identity: GrpcIdentity) -> Any:
    """TLS with what a server is verified by, and what a client shows."""
    return grpc.ssl_channel_credentials(
        ca or None, identity.key or None, identity.certificate or None
    )


class StatusMessage(Struct, frozen=True, rename="camel"):
    """The status of an API server in the message of an error."""

    message: str = ""
    reason: str = ""
    code: int = 0


class ErrorMessage(Struct, frozen=True):
    """An error of an API server, as gRPC servers pass it on."""

    status: StatusMessage = msgspec.field(name="ErrStatus")


def kube_error(error: Any, where: str) -> KubeError:
    """The error of `kube.errors` for a failed call."""
    code, details = error.code(), str(error.details() or "")
    if code is Code.UNAUTHENTICATED:
        return Unauthorized(details, code=401, reason="Unauthorized", where=where)
    if code in (Code.PERMISSION_DENIED, Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED):
        return Forbidden(details, code=403, reason="Forbidden", where=where)
    if code is Code.RESOURCE_EXHAUSTED:
        return Throttled(details, code=429, reason="TooManyRequests", where=where)
    if code is Code.DEADLINE_EXCEEDED:
        return RequestTimeout(f"{where}: no answer in {CALL_SECONDS:.0f} s")
    if code is Code.FAILED_PRECONDITION:
        return passed_on(details, where)
    return network_error(details, where)


def passed_on(details: str, where: str) -> KubeError:
    """The error of the hub's API server that a gRPC server passes on."""
    try:
        status = decode_json(details, ErrorMessage).status
    except msgspec.DecodeError:
        return ConnectionInterrupted(f"{where}: {details}")
    kind = error_type(status.code, status.reason)
    return kind(status.message, code=status.code, reason=status.reason, where=where)


def network_error(details: str, where: str) -> NetworkError:
    """The error for a server that cannot be reached."""
    text = details.lower()
    if "certificate" in text or "handshake" in text:
        return TlsFailed(f"{where}: {details}")
    if "refused" in text:
        return ConnectionRefused(f"{where}: {details}")
    return ConnectionInterrupted(f"{where}: {details}")
