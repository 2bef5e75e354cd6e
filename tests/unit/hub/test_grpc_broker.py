"""Subscriptions: the last state of each object, for those who may see it, in bounded memory."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import grpc
import pytest

from knfleet.api.cluster.managedcluster import CLUSTERS, agent_user, cluster_groups
from knfleet.api.meta import Key, Object
from knfleet.cloudevents.cloud_event import (
    CloudEvent,
    Subscription,
    publish_bytes,
    subscription_bytes,
)
from knfleet.cloudevents.event_types import (
    BUNDLES,
    CLUSTER_NAME,
    RESYNC_ID,
    STATUS,
    UPDATE,
    EventType,
    data_type,
    read_event_type,
)
from knfleet.cloudevents.object_events import read_object
from knfleet.cloudevents.work_events import read_bundle
from knfleet.hub.grpc.broker import Broker, EventSubscription, ResyncRequest
from knfleet.hub.grpc.calls.access_rules import Access
from knfleet.hub.grpc.calls.caller import Caller
from knfleet.hub.grpc.calls.publications import Publications
from knfleet.hub.grpc.event_service import (
    LARGE_AT_ONCE,
    LARGE_REQUEST_BYTES,
    SUBSCRIBE_BYTES,
    CallRefused,
    EventService,
)
from knfleet.hub.grpc.object_sources import (
    BundleSource,
    ObjectSource,
    Sources,
    namespace_index,
    pack,
    uid_index,
)
from knfleet.hub.grpc.tls_relay import Peer
from knfleet.kube.cache.store import Store, StoreChange
from testbed.waiting import until

CALLER = Caller("me")
NOW = datetime(2026, 11, 18, tzinfo=UTC)


class Objects:
    """An informer without an API server."""

    def __init__(self, **indexes: Any) -> None:
        self.store = Store(indexes)
        self.handlers: list[Callable[[StoreChange], None]] = []

    def on_change(self, handler: Callable[[StoreChange], None]) -> None:
        """Call a function with every change."""
        self.handlers.append(handler)

    def get(self, key: Key) -> Object | None:
        """One object."""
        return self.store.objects.get(key)

    def by_index(self, index: str, value: str) -> list[Object]:
        """The objects in which an index finds a value."""
        return self.store.by_index(index, value)

    def put(self, manifest: Object) -> None:
        """An object is new or changed."""
        change = self.store.put(Key.of(manifest), manifest)
        for handler in self.handlers:
            if change is not None:
                handler(change)

    def remove(self, manifest: Object) -> None:
        """An object is gone."""
        change = self.store.remove(Key.of(manifest), manifest)
        for handler in self.handlers:
            if change is not None:
                handler(change)


def work(name: str, generation: int = 1, **meta: Any) -> Object:
    """A work as it is kept."""
    meta = {
        "name": name,
        "namespace": "c1",
        "uid": f"u-{name}",
        "generation": generation,
        "resourceVersion": str(generation),
        **meta,
    }
    return pack({"metadata": meta, "spec": {"workload": {"manifests": [{"kind": "A"}]}}})


def works() -> tuple[Objects, BundleSource, Broker]:
    """A broker of works."""
    objects = Objects(cluster=namespace_index, uid=uid_index)
    informer: Any = objects
    source = BundleSource(informer, lambda: NOW)
    sources: Sources = {source.data_type: source}
    return objects, source, Broker(sources, lambda: NOW)


def subscribed(broker: Broker, source: ObjectSource, *, full: bool = False) -> EventSubscription:
    """A subscription to the objects of c1."""
    made = EventSubscription(CALLER, "c1", source, full=full)
    broker.add(made)
    return made


async def waiting(made: EventSubscription) -> list[CloudEvent]:
    """What a subscription would be sent now."""
    found: list[CloudEvent] = []
    events = made.events()
    while made.pending:
        found.append(await anext(events))
    await events.aclose()
    return found


async def test_a_slow_reader_gets_the_last_state_of_each_work_once():
    objects, source, broker = works()
    slow = subscribed(broker, source)
    for generation in range(1, 1001):
        objects.put(work("a", generation))
    objects.put(work("b"))

    assert len(slow.pending) == 2
    found = [read_bundle(each)["metadata"] for each in await waiting(slow)]
    assert [(each["name"], each["generation"]) for each in found] == [("a", 1000), ("b", 1)]


async def test_a_change_of_the_status_alone_is_not_sent():
    objects, source, broker = works()
    objects.put(work("a"))
    made = subscribed(broker, source)

    objects.put(work("a", resourceVersion="2", finalizers=["x"]))
    assert not made.pending
    objects.put(work("a", resourceVersion="3", labels={"x": "y"}))
    assert list(made.pending) == ["u-a"]


async def test_a_work_that_is_deleted_is_sent_with_the_time_and_only_to_its_cluster():
    objects, source, broker = works()
    objects.put(work("a"))
    made = subscribed(broker, source)
    other = EventSubscription(CALLER, "c2", source, full=False)
    broker.add(other)

    objects.remove(work("a"))

    (event,) = await waiting(made)
    assert read_event_type(event.type).action == "delete_request"
    assert read_bundle(event)["metadata"]["deletionTimestamp"] == "2026-11-18T00:00:00Z"
    assert not other.pending


async def test_a_resync_sends_what_is_newer_and_what_is_gone_to_its_caller():
    objects, source, broker = works()
    for name, generation in (("a", 1), ("b", 2), ("c", 1)):
        objects.put(work(name, generation))
    mine, full = subscribed(broker, source), subscribed(broker, source, full=True)
    foreign = EventSubscription(Caller("other"), "c1", source, full=False)
    broker.add(foreign)
    known = {"u-a": 1, "u-b": 1, "u-x": 3}

    assert broker.resync(CALLER, source, "c1", ResyncRequest(known, "r1")) == 2

    assert list(mine.pending) == ["u-b", "u-c", "u-x"]
    assert not foreign.pending
    *_, last = await waiting(full)
    assert last.extensions[RESYNC_ID] == "r1"


async def test_a_subscription_that_ended_is_counted_no_more():
    _, source, broker = works()
    made = subscribed(broker, source)
    assert broker.count == 1

    broker.remove(made)
    broker.remove(made)

    assert (broker.count, broker.subscriptions) == (0, {})


async def test_a_cluster_that_is_deleted_is_sent_once_more():
    objects = Objects()
    informer: Any = objects
    source = ObjectSource(CLUSTERS, informer)
    broker = Broker({data_type(CLUSTERS): source}, lambda: NOW)
    made = subscribed(broker, source)
    objects.put({"metadata": {"name": "c1", "resourceVersion": "1"}})
    objects.remove({"metadata": {"name": "c1", "resourceVersion": "2"}})

    (event,) = await waiting(made)
    assert read_event_type(event.type).action == "delete_request"
    assert read_object(event)["metadata"]["deletionTimestamp"]


async def test_a_deletion_that_an_agent_forgot_is_sent_again():
    objects, source, broker = works()
    objects.put(work("a", deletionTimestamp="2026-11-18T00:00:00Z"))
    objects.put(work("b"))
    made = subscribed(broker, source)

    made.repeat_deletions()

    (event,) = await waiting(made)
    assert read_event_type(event.type).action == "delete_request"
    assert read_bundle(event)["metadata"]["name"] == "a"


class Aborted(Exception):
    """A call was refused."""


class Call:
    """A call of the agent of c1, by its certificate or by a token."""

    def __init__(self, token: str = "") -> None:
        self.token = token

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    async def abort(self, code: grpc.StatusCode, message: str) -> None:
        raise Aborted(code, message)


class Known:
    """A relay with one connection, of the agent of c1."""

    def __init__(self) -> None:
        self.only = Peer(Caller(agent_user("c1", "a1"), cluster_groups("c1")))

    def peer(self, name: str) -> Peer:
        del name
        return self.only


class Busy:
    """An API server that answers when it is told to."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.asked = 0

    async def may(self, caller: Caller, access: Access) -> bool:
        del caller, access
        self.asked += 1
        await self.answers.wait()
        return False

    async def caller(self, token: str) -> Caller | None:
        del token
        self.asked += 1
        await self.answers.wait()
        return None


def publish(service: EventService, size: int, token: str = "") -> asyncio.Task[bytes]:
    """A status event of so many bytes and some."""
    status = EventType(BUNDLES, STATUS, UPDATE)
    event = CloudEvent(str(status), extensions={CLUSTER_NAME: "c1"}, data=b"x" * size)
    return asyncio.ensure_future(service.publish(publish_bytes(event), Call(token)))


def service_of(busy: Busy) -> EventService:
    """A service without an API server."""
    _, source, _ = works()
    clusters: Any = Objects()
    broker = Broker({each.data_type: each for each in (source, ObjectSource(CLUSTERS, clusters))})
    relay, none = Known(), object()
    parts: list[Any] = [relay, busy, broker, Publications(cast("Any", none), source, broker)]
    return EventService(*parts)


@pytest.mark.parametrize(
    ("user", "calls"), [(agent_user("c1", "a1"), 500), ("system:serviceaccount:hub:join", 5000)]
)
async def test_hundreds_of_clusters_may_join_by_the_same_token_at_once(user: str, calls: int):
    """An agent has its own limit, which is lower."""
    service = service_of(Busy())
    for _ in range(calls):
        service.limit_rate(Caller(user))

    def call_too_often() -> None:
        for _ in range(calls):
            service.limit_rate(Caller(user))

    with pytest.raises(CallRefused, match="too many calls"):
        call_too_often()
    service.limit_rate(Caller(agent_user("c2", "a1")))


async def test_one_agent_has_few_large_events_wait_at_once():
    """They are kept until the API server has answered; small ones pass beside them."""
    busy = Busy()
    service = service_of(busy)
    waiting = [publish(service, LARGE_REQUEST_BYTES) for _ in range(LARGE_AT_ONCE)]
    await until(lambda: busy.asked == LARGE_AT_ONCE, "large events wait")
    with pytest.raises(Aborted, match="too many large events"):
        await publish(service, LARGE_REQUEST_BYTES)
    small = publish(service, 10)
    await until(lambda: busy.asked == LARGE_AT_ONCE + 1, "a small one is asked about")
    busy.answers.set()
    done = await asyncio.gather(*waiting, small, return_exceptions=True)
    assert [type(each) for each in done] == [Aborted] * (LARGE_AT_ONCE + 1)
    with pytest.raises(Aborted, match="may not"):
        await publish(service, LARGE_REQUEST_BYTES)


async def test_few_events_wait_for_the_review_of_their_tokens():
    """Whoever has a connection may show any token, and the API server may be slow."""
    busy = Busy()
    service = service_of(busy)
    peer = service.relay.peer("")
    assert peer is not None
    calls = [publish(service, peer.waiting.limit // 4, f"any-{n}") for n in range(6)]
    await until(lambda: busy.asked >= 3, "the API server is asked about tokens")
    held = peer.waiting.held
    busy.answers.set()

    ends = [str(each) for each in await asyncio.gather(*calls, return_exceptions=True)]

    assert 0 < held <= peer.waiting.limit
    assert sum("review of their tokens" in each for each in ends) == 3
    assert sum("neither a valid token" in each for each in ends) == 3
    assert peer.waiting.held == 0


def subscribe(service: EventService, source: str = "a") -> asyncio.Task[None]:
    """A subscription of the agent of c1."""
    request = subscription_bytes(Subscription(source, "c1", str(BUNDLES)))
    return asyncio.ensure_future(service.subscribe(request, Call()))


async def test_a_large_request_to_subscribe_is_refused_before_anybody_is_asked():
    """It would be kept as long as the stream."""
    busy = Busy()
    busy.answers.set()
    service = service_of(busy)
    with pytest.raises(Aborted, match="larger than"):
        await subscribe(service, "x" * SUBSCRIBE_BYTES)
    assert busy.asked == 0
    with pytest.raises(Aborted, match="may not"):
        await subscribe(service)


async def test_streams_count_while_it_is_asked_whether_they_are_permitted():
    busy = Busy()
    service = service_of(busy)
    most = service.limits.streams_per_caller
    calls = [subscribe(service) for _ in range(most + 3)]
    await until(lambda: busy.asked >= most, "the API server is asked about streams")
    busy.answers.set()

    ends = [str(each) for each in await asyncio.gather(*calls, return_exceptions=True)]

    assert sum("too many subscriptions" in each for each in ends) == 3
    assert sum("may not" in each for each in ends) == most
    assert service.broker.count == 0
