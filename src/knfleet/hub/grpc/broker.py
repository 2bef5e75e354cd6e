"""Subscriptions, and what each of them is still to be sent.

A subscription remembers the names of objects that changed, not events: one that is slow gets the
last state of each object, and takes no more memory than the objects are many.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime

from knfleet.cloudevents.cloud_event import HEARTBEAT, CloudEvent
from knfleet.cloudevents.event_types import (
    BUNDLES,
    CLUSTER_NAME,
    CREATE,
    RESOURCE_ID,
    RESYNC_ID,
    RESYNC_RESPONSE,
    SPEC,
    UPDATE,
    DataType,
    EventType,
)
from knfleet.cloudevents.resync import resync_plan
from knfleet.hub.grpc.calls.caller import Caller
from knfleet.hub.grpc.object_sources import ObjectSource, Sources
from knfleet.kube.cache.informer import StoreChange

HEARTBEAT_SECONDS = 10.0
RARE_HEARTBEAT_SECONDS = 60.0
"""For agents of ours, which find a lost connection by pings of HTTP/2."""
BEAT = CloudEvent(HEARTBEAT)
MOST_ANSWERS = 100
"""That wait for one reader."""


class EventSubscription:
    """A client that follows the objects of one data type of a cluster."""

    def __init__(self, caller: Caller, cluster: str, source: ObjectSource, *, full: bool) -> None:
        self.caller = caller
        self.cluster = cluster
        self.source = source
        self.full = full
        """Whether it is an agent of ours, which gets statuses and ends of resyncs."""
        self.pending: dict[str, str | CloudEvent] = {}
        """By object: an action, or the event when the object is gone."""
        self.wake = asyncio.Event()
        self.ended = ""
        """Why it ends, if it does."""

    def put(self, name: str, what: str | CloudEvent) -> None:
        """Have something sent; what was to be sent about the same object is replaced."""
        if isinstance(what, str) and not self.source.is_visible(self.cluster, name, self.caller):
            return
        self.pending.pop(name, None)
        self.pending[name] = what
        self.wake.set()

    def end(self, reason: str) -> None:
        """End it."""
        self.ended = reason
        self.wake.set()

    async def events(self) -> AsyncGenerator[CloudEvent, None]:
        """What is to be sent, with a heartbeat now and then, until it ends."""
        clock = asyncio.get_running_loop().time
        period = RARE_HEARTBEAT_SECONDS if self.full else HEARTBEAT_SECONDS
        beat_at = clock() + period
        while not self.ended:
            if clock() >= beat_at:
                beat_at = clock() + period
                self.repeat_deletions()
                yield BEAT
            elif self.pending:
                name = next(iter(self.pending))
                what = self.pending.pop(name)
                event = what if isinstance(what, CloudEvent) else self.current(name, what)
                if event is not None:
                    yield event
            else:
                self.wake.clear()
                try:
                    async with asyncio.timeout_at(beat_at):
                        await self.wake.wait()
                except TimeoutError:
                    continue

    def repeat_deletions(self) -> None:
        """Have works sent again that still wait to be let go.

        An agent of Open Cluster Management that writes a status in the moment when the deletion
        comes may forget the deletion.
        """
        if self.source.data_type == BUNDLES:
            for name in self.source.deleting(self.cluster):
                self.pending.setdefault(name, UPDATE)

    def current(self, name: str, action: str) -> CloudEvent | None:
        """The event about an object as it is now."""
        return self.source.event(self.cluster, name, action, full=self.full)


class Broker:
    """All subscriptions of this process."""

    def __init__(self, sources: Sources, now: Callable[[], datetime] | None = None) -> None:
        self.sources = sources
        self.now = now or (lambda: datetime.now(UTC))
        self.subscriptions: dict[tuple[str, DataType], set[EventSubscription]] = {}
        self.count = 0
        """How many there are."""
        for source in sources.values():
            source.follow(lambda change, source=source: self.changed(source, change))

    def add(self, made: EventSubscription) -> None:
        """A client subscribes."""
        key = (made.cluster, made.source.data_type)
        self.subscriptions.setdefault(key, set()).add(made)
        self.count += 1

    def remove(self, ended: EventSubscription) -> None:
        """A client is gone."""
        key = (ended.cluster, ended.source.data_type)
        left = self.subscriptions.get(key, set())
        if ended in left:
            left.remove(ended)
            self.count -= 1
        if not left:
            self.subscriptions.pop(key, None)

    def of(self, cluster: str) -> list[EventSubscription]:
        """The subscriptions to objects of a cluster."""
        return [
            each
            for data_type in self.sources
            for each in self.subscriptions.get((cluster, data_type), ())
        ]

    def changed(self, source: ObjectSource, change: StoreChange) -> None:
        """An object changed: note it for everyone who follows it."""
        found = source.changed(change)
        if found is None:
            return
        cluster, name, gone = found
        for each in self.subscriptions.get((cluster, source.data_type), ()):
            each.put(name, gone or (CREATE if change.old is None else UPDATE))

    def answer(self, caller: Caller, data_type: DataType, cluster: str, event: CloudEvent) -> bool:
        """Send an event to the subscriptions of a caller; whether there is one that takes it."""
        name = event.text(RESOURCE_ID)
        taking = [
            each
            for each in self.subscriptions.get((cluster, data_type), ())
            if each.caller == caller and len(each.pending) < MOST_ANSWERS
        ]
        for each in taking:
            each.put(name, event)
        return bool(taking)

    def resync(
        self, caller: Caller, source: ObjectSource, cluster: str, request: "ResyncRequest"
    ) -> int:
        """Answer a resync request to the subscriptions of a caller; how many those are."""
        plan = resync_plan(request.known, source.versions(cluster), source.deleting(cluster))
        mine = [
            each
            for each in self.subscriptions.get((cluster, source.data_type), ())
            if each.caller == caller
        ]
        for each in mine:
            for name in plan.send:
                each.put(name, UPDATE)
            for gone in plan.gone:
                event = source.gone(cluster, gone, self.now())
                if event is not None:
                    each.put(gone.resource_id, event)
            if each.full and request.identity:
                each.put(f"resync {request.identity}", resync_end(source, cluster, request))
        return len(mine)


class ResyncRequest:
    """What an agent has when it asks for the rest."""

    def __init__(self, known: dict[str, int], identity: str) -> None:
        self.known = known
        self.identity = identity
        """By which an agent of ours knows the end of the answer; empty for others."""


def resync_end(source: ObjectSource, cluster: str, request: ResyncRequest) -> CloudEvent:
    """The event behind all that answer a resync request."""
    kind = EventType(source.data_type, SPEC, RESYNC_RESPONSE)
    extensions = {CLUSTER_NAME: cluster, RESYNC_ID: request.identity}
    return CloudEvent(str(kind), "kube", extensions=extensions)
