"""The gRPC service: every call is authenticated, authorised as its caller, and limited.

    Publish    who → which event → may the caller do that on the API server → is the object its own
    Subscribe  who → which objects → may the caller list and watch them → what changes

Requests stay bytes until it is known who sent them.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from typing import Any

import grpc
import msgspec
from msgspec import Struct

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.meta import Object
from knfleet.cloudevents.cloud_event import (
    SUBSCRIPTION_ID,
    CloudEvent,
    EventError,
    event_bytes,
    read_publish,
    read_subscription,
)
from knfleet.cloudevents.event_types import (
    BUNDLES,
    CLUSTER_NAME,
    EXTENDED_HEADER,
    RESYNC,
    RESYNC_ID,
    EventType,
    data_type,
    read_data_type,
    read_event_type,
)
from knfleet.cloudevents.object_events import read_object
from knfleet.cloudevents.protobuf_messages import PUBLISH, SUBSCRIBE, Empty
from knfleet.cloudevents.resync import read_versions
from knfleet.hub.grpc.broker import BEAT, Broker, EventSubscription, ResyncRequest
from knfleet.hub.grpc.calls.access_check import AccessCheck
from knfleet.hub.grpc.calls.access_rules import publication_access, subscription_access
from knfleet.hub.grpc.calls.caller import Caller
from knfleet.hub.grpc.calls.publications import Publications, off_loop_if_large
from knfleet.hub.grpc.object_sources import ObjectSource
from knfleet.hub.grpc.tls_relay import Peer, TlsRelay
from knfleet.hub.grpc.token_bucket import TokenBucket
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import ApiError, KubeError
from knfleet.runtime.logs import log

SEND_SECONDS = 30.0
"""A client that does not take an event for so long is cut off."""
HEARTBEAT_BYTES = event_bytes(BEAT)
OBJECT_BYTES = 256 * 1024
"""Of an object that is not the status of a work."""
LARGE_REQUEST_BYTES = OBJECT_BYTES + 64 * 1024
SUBSCRIBE_BYTES = 4 * 1024
"""Of a request to subscribe, which is kept as long as the stream."""
LARGE_AT_ONCE = 4
"""So many larger requests of one caller are kept at once."""
Code: Any = grpc.StatusCode


class ServiceLimits(Struct, frozen=True):
    """What callers may take of the server."""

    streams_per_caller: int = 64
    streams: int = 20_000
    publications_at_once: int = 64
    calls_per_second: float = 100.0
    """Of one caller, after a burst."""
    burst: int = 500
    joining: int = 10
    """So many times as much for callers that are no agents: clusters that join share a name."""
    recheck_seconds: float = 600.0
    """How often identity and rights of a subscriber are looked at when nothing changes."""


class CallRefused(Exception):
    """A call that is not answered."""

    def __init__(self, code: Any, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class EventService:
    """Answers Publish and Subscribe."""

    def __init__(
        self,
        relay: TlsRelay,
        check: AccessCheck,
        broker: Broker,
        publications: Publications,
        limits: ServiceLimits | None = None,
    ) -> None:
        self.relay = relay
        self.check = check
        self.broker = broker
        self.publications = publications
        self.limits = limits or ServiceLimits()
        self.slots = asyncio.Semaphore(self.limits.publications_at_once)
        self.rates: dict[str, TokenBucket] = {}
        self.large: Counter[str] = Counter()
        """Large requests that are kept, by user."""
        clusters = broker.sources[data_type(CLUSTERS)].informer
        clusters.on_change(self.cluster_changed)

    # Calls of gRPC

    def handlers(self) -> Any:
        """What a gRPC server answers with."""
        return Handlers(self)

    async def publish(self, request: bytes, context: Any) -> bytes:
        """Write what a client publishes."""
        try:
            with self.unknown(request, context):
                caller = await self.authenticate(context)
            self.limit_rate(caller)
            with self.kept(caller, request):
                async with self.slots:
                    await self.handle(caller, request)
        except CallRefused as error:
            await refuse(context, error)
        except EventError as error:
            await context.abort(Code.INVALID_ARGUMENT, str(error))
        except ApiError as error:
            await context.abort(Code.FAILED_PRECONDITION, status_text(error))
        except KubeError as error:
            log.warning("the hub's API server does not answer", error=str(error))
            await context.abort(Code.UNAVAILABLE, "the hub's API server does not answer")
        return Empty().SerializeToString()

    async def subscribe(self, request: bytes, context: Any) -> None:
        """Send what changes, until the client goes."""
        try:
            check_size(request)
            caller = await self.authenticate(context)
            self.limit_rate(caller)
            with self.subscribed(caller, request, context) as made:
                await self.follow(made, context)
            await context.abort(Code.PERMISSION_DENIED, made.ended)
        except CallRefused as error:
            await refuse(context, error)
        except EventError as error:
            await context.abort(Code.INVALID_ARGUMENT, str(error))
        except KubeError as error:
            log.warning("the hub's API server does not answer", error=str(error))
            await context.abort(Code.UNAVAILABLE, "the hub's API server does not answer")

    # What they do

    async def follow(self, made: EventSubscription, context: Any) -> None:
        """Confirm a subscription if it is permitted, and send its events until it ends."""
        if problem := await self.denial(made):
            raise CallRefused(Code.PERMISSION_DENIED, problem)
        header = (SUBSCRIPTION_ID, str(uuid.uuid4()))
        await context.send_initial_metadata((header, (EXTENDED_HEADER, "true")))
        async with aclosing(made.events()) as events:
            await self.send(events, made, context)

    async def send(
        self, events: AsyncGenerator[CloudEvent, None], made: EventSubscription, context: Any
    ) -> None:
        """Send events, each within its time, and look at the client's rights now and then."""
        clock = asyncio.get_running_loop().time
        recheck_at = clock() + self.limits.recheck_seconds
        async for event in events:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await context.write(HEARTBEAT_BYTES if event is BEAT else event_bytes(event))
            except TimeoutError:
                log.warning("client too slow", user=made.caller.user, cluster=made.cluster)
                made.end("events were not taken in time")
            if clock() >= recheck_at:
                recheck_at = clock() + self.limits.recheck_seconds
                await self.recheck(made, context)

    def peer(self, context: Any) -> Peer:
        """The connection by which a call came."""
        found = self.relay.peer(context.peer())
        if found is None:
            raise CallRefused(Code.UNAUTHENTICATED, "the connection did not come by TLS")
        return found

    async def authenticate(self, context: Any) -> Caller:
        """Who calls: by token, else by certificate."""
        peer = self.peer(context)
        metadata: dict[str, Any] = dict(context.invocation_metadata() or ())
        scheme, _, token = str(metadata.get("authorization", "")).partition(" ")
        if token and scheme.lower() == "bearer":
            try:
                caller = await self.check.caller(token)
            except KubeError as error:
                raise CallRefused(Code.UNAVAILABLE, "tokens cannot be reviewed now") from error
        else:
            caller = peer.caller
        if caller is None or not caller.user:
            raise CallRefused(
                Code.UNAUTHENTICATED, "neither a valid token nor a client certificate"
            )
        peer.authenticated.set()
        return caller

    def limit_rate(self, caller: Caller) -> None:
        """Refuse a caller that calls too often."""
        now = asyncio.get_running_loop().time()
        times = 1 if caller.is_agent else self.limits.joining
        rate = self.rates.get(caller.user)
        if rate is None:
            limits = self.limits
            rate = TokenBucket(times * limits.calls_per_second, times * limits.burst, now)
            self.rates[caller.user] = rate
        if not rate.take(now):
            raise CallRefused(Code.RESOURCE_EXHAUSTED, "too many calls; wait and try again")
        if len(self.rates) > 2 * self.limits.streams:
            self.rates = {user: rate for user, rate in self.rates.items() if not rate.is_full(now)}

    @contextmanager
    def unknown(self, request: bytes, context: Any) -> Generator[None]:
        """Count a request for its connection while it is not known who sent it."""
        waiting = self.peer(context).waiting
        fits = waiting.take(len(request))
        try:
            if not fits:
                raise CallRefused(
                    Code.RESOURCE_EXHAUSTED,
                    "too many events wait for the review of their tokens; try again",
                )
            yield
        finally:
            waiting.release(len(request))

    @contextmanager
    def kept(self, caller: Caller, request: bytes) -> Generator[None]:
        """Count a large request while it is kept; refuse one too many of a caller."""
        if len(request) <= LARGE_REQUEST_BYTES:
            yield
            return
        if self.large[caller.user] >= LARGE_AT_ONCE:
            raise CallRefused(
                Code.RESOURCE_EXHAUSTED, "too many large events at once; wait and try again"
            )
        self.large[caller.user] += 1
        try:
            yield
        finally:
            self.large[caller.user] -= 1
            if not self.large[caller.user]:
                del self.large[caller.user]

    async def handle(self, caller: Caller, request: bytes) -> None:
        """Authorise an event, and do what it says."""
        event = await off_loop_if_large(read_publish, request)
        kind = read_event_type(event.type)
        cluster = event.text(CLUSTER_NAME)
        if not cluster:
            raise EventError(f"extension {CLUSTER_NAME} is missing")
        if problem := caller.problem(cluster):
            raise CallRefused(Code.PERMISSION_DENIED, problem)
        if kind.action == RESYNC:
            await self.resync(caller, kind, cluster, event)
            return
        if kind.data_type != BUNDLES and len(event.data) > OBJECT_BYTES:
            raise EventError(f"the object in the event is larger than {OBJECT_BYTES} bytes")
        handler = self.publications.handler(kind)
        name = "" if kind.data_type == BUNDLES else object_name(event)
        needed = publication_access(kind, cluster, name)
        if not await self.check.may(caller, needed):
            raise CallRefused(Code.PERMISSION_DENIED, f"{caller.user} may not {needed}")
        await handler(event, cluster, caller)

    async def resync(
        self, caller: Caller, kind: EventType, cluster: str, event: CloudEvent
    ) -> None:
        """Send a client what it lacks."""
        source = self.source(str(kind.data_type))
        needed = publication_access(kind, cluster, "")
        if not await self.check.may(caller, needed):
            raise CallRefused(Code.PERMISSION_DENIED, f"{caller.user} may not {needed}")
        known = await off_loop_if_large(read_versions, event.data)
        request = ResyncRequest(known, event.text(RESYNC_ID))
        if not self.broker.resync(caller, source, cluster, request):
            raise CallRefused(Code.FAILED_PRECONDITION, "there is no subscription to answer to")

    @contextmanager
    def subscribed(
        self, caller: Caller, request: bytes, context: Any
    ) -> Generator[EventSubscription]:
        """A subscription, which counts from before anybody is asked whether it is permitted."""
        wanted = read_subscription(request)
        if problem := caller.problem(wanted.cluster):
            raise CallRefused(Code.PERMISSION_DENIED, problem)
        source = self.source(wanted.data_type)
        mine = sum(each.caller == caller for each in self.broker.of(wanted.cluster))
        if self.broker.count >= self.limits.streams or mine >= self.limits.streams_per_caller:
            raise CallRefused(Code.RESOURCE_EXHAUSTED, "too many subscriptions")
        metadata: dict[str, Any] = dict(context.invocation_metadata() or ())
        made = EventSubscription(caller, wanted.cluster, source, full=EXTENDED_HEADER in metadata)
        self.broker.add(made)
        try:
            yield made
        finally:
            self.broker.remove(made)

    def source(self, name: str) -> ObjectSource:
        """The objects of a data type; raises `EventError` when they cannot be followed."""
        found = self.broker.sources.get(read_data_type(name))
        if found is None:
            raise EventError(f"objects of data type {name} cannot be followed")
        return found

    async def denial(self, made: EventSubscription) -> str:
        """Why a caller may not follow some objects; empty when it may."""
        for needed in subscription_access(made.source.data_type, made.cluster):
            if not await self.check.may(made.caller, needed):
                return f"{made.caller.user} may not {needed}"
        return ""

    async def recheck(self, made: EventSubscription, context: Any) -> None:
        """End a subscription whose caller has lost its token or its rights."""
        try:
            caller = await self.authenticate(context)
            problem = await self.denial(made)
        except CallRefused as error:
            if error.code is not Code.UNAVAILABLE:
                made.end(error.message)
            return
        except KubeError as error:
            log.warning("rights of a subscriber not checked", error=str(error))
            return
        if caller != made.caller:
            problem = "the token has become that of another user"
        if problem:
            made.end(problem)

    def cluster_changed(self, change: StoreChange) -> None:
        """Look at the rights of a cluster's subscribers when it is denied or deleted."""
        accepted = [
            bool((each or {}).get("spec", {}).get("hubAcceptsClient"))
            for each in (change.old, change.new)
        ]
        if accepted[0] and not accepted[1]:
            self.check.forget(change.key.name)
            for each in self.broker.of(change.key.name):
                if each.caller.is_agent:
                    each.end("the cluster is not accepted any more")


class Handlers(grpc.GenericRpcHandler):  # pyright: ignore[reportUntypedBaseClass]
    """Finds the function for a call; messages stay bytes."""

    def __init__(self, service: EventService) -> None:
        self.calls: dict[str, Any] = {
            PUBLISH: grpc.unary_unary_rpc_method_handler(service.publish),
            SUBSCRIBE: grpc.unary_stream_rpc_method_handler(service.subscribe),
        }

    def service(self, handler_call_details: Any) -> Any:
        """The function for a call; None when there is none."""
        return self.calls.get(handler_call_details.method)


def object_name(event: CloudEvent) -> str:
    """The name of the object in an event."""
    return str(read_object(event)["metadata"].get("name", ""))


def check_size(request: bytes) -> None:
    """Refuse a large request to subscribe."""
    if len(request) > SUBSCRIBE_BYTES:
        raise EventError(f"the request is larger than {SUBSCRIBE_BYTES} bytes")


async def refuse(context: Any, error: CallRefused) -> None:
    """Answer a call with why it is refused."""
    await context.abort(error.code, error.message)


def status_text(error: ApiError) -> str:
    """An error of the API server as agents of Open Cluster Management read it."""
    status: Object = {
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason or type(error).__name__,
        "code": error.code,
    }
    return msgspec.json.encode({"ErrStatus": status}).decode()
