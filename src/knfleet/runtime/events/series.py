"""Which Event is written for something that happened, as client-go's recorder decides it.

The same thing again counts up the Event that is there. Many similar things (same object and reason,
other words) become one Event that says so. An object that is noisy all the same is cut short by a
token bucket. Pure bookkeeping: no network, and time is passed in.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import datetime
from itertools import count
from typing import Generic, TypeVar

from msgspec import Struct

from knfleet.api.meta import Key, Object
from knfleet.api.texts import EVENT_BYTES, bounded

SIMILAR = 10
"""So many different messages with one reason are distinguished."""
SIMILAR_SECONDS = 600.0
BURST = 25.0
REFILL_SECONDS = 300.0
"""After a burst, an object may be written about once in so long."""
REMEMBERED = 4096
COMBINED = "(combined from similar events): "


class Regarding(Struct, frozen=True):
    """The object that an Event is about."""

    api_version: str
    kind: str
    key: Key
    uid: str = ""
    resource_version: str = ""

    @classmethod
    def of(cls, manifest: Object) -> "Regarding":
        """A manifest's object."""
        meta = manifest["metadata"]
        return cls(
            manifest.get("apiVersion", ""),
            manifest.get("kind", ""),
            Key.of(manifest),
            meta.get("uid", ""),
            meta.get("resourceVersion", ""),
        )

    @property
    def identity(self) -> tuple[str, str, Key, str]:
        """The object whatever its version."""
        return (self.api_version, self.kind, self.key, self.uid)


class EventRecord(Struct, frozen=True):
    """Something that happened to an object."""

    regarding: Regarding
    type: str
    reason: str
    message: str


class EventWrite(Struct, frozen=True):
    """What to write: a whole Event, or the patch to one that was written before."""

    key: Key
    manifest: Object
    patch: Object | None = None


class EventSeries(Struct):
    """An Event that was written."""

    key: Key
    count: int
    first: str


class MessageGroup(Struct):
    """Messages of one object with one reason."""

    messages: set[str]
    last: float


class EventBudget(Struct):
    """What an object may still cause to be written."""

    tokens: float
    at: float


Value = TypeVar("Value")


class RecentMapping(Generic[Value]):
    """A mapping that remembers what was used last, and no more than its size."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self.size = size
        self.values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """What is remembered, or a new value."""
        if key in self.values:
            self.values.move_to_end(key)
            return self.values[key]
        value = self.values[key] = make()
        if len(self.values) > self.size:
            self.values.popitem(last=False)
        return value


class EventLog:
    """What was written lately by one component."""

    def __init__(self, component: str, instance: str = "") -> None:
        self.component = component
        self.instance = instance
        self.groups: RecentMapping[MessageGroup] = RecentMapping()
        self.series: RecentMapping[EventSeries] = RecentMapping()
        self.buckets: RecentMapping[EventBudget] = RecentMapping()
        self.numbers = count()

    def observe(self, happening: EventRecord, now: float, wall: datetime) -> EventWrite | None:
        """What to write for what happened; nothing when the object caused too much already."""
        key, message = self.combine(happening, now)
        stamp = wall.strftime("%Y-%m-%dT%H:%M:%SZ")
        home = happening.regarding.key.namespace or "default"
        name = event_name(happening.regarding.key.name, wall, next(self.numbers))
        series = self.series.get(key, lambda: EventSeries(Key(home, name), 0, stamp))
        series.count += 1
        if not self.may_write(happening.regarding, now):
            return None
        manifest = self.manifest(happening, message, series, stamp)
        changed = ("count", "lastTimestamp", "message")
        patch = {name: manifest[name] for name in changed} if series.count > 1 else None
        return EventWrite(series.key, manifest, patch)

    def combine(self, happening: EventRecord, now: float) -> tuple[Hashable, str]:
        """Which Event something belongs to, and the message that it gets."""
        about = (happening.regarding.identity, happening.type, happening.reason)
        message = bounded(happening.message, EVENT_BYTES)
        group = self.groups.get(about, lambda: MessageGroup(set(), now))
        if now - group.last > SIMILAR_SECONDS:
            group.messages.clear()
        group.last = now
        if message in group.messages or len(group.messages) < SIMILAR:
            group.messages.add(message)
            return (*about, message), message
        return about, bounded(COMBINED + message, EVENT_BYTES)

    def may_write(self, regarding: Regarding, now: float) -> bool:
        """Whether the object has a token left, and takes it."""
        bucket = self.buckets.get(regarding.identity, lambda: EventBudget(BURST, now))
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def manifest(
        self, happening: EventRecord, message: str, series: EventSeries, stamp: str
    ) -> Object:
        """The whole Event."""
        regarding = happening.regarding
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": series.key.namespace, "name": series.key.name},
            "involvedObject": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "namespace": regarding.key.namespace,
                "name": regarding.key.name,
                "uid": regarding.uid,
                "resourceVersion": regarding.resource_version,
            },
            "type": happening.type,
            "reason": happening.reason,
            "message": message,
            "count": series.count,
            "firstTimestamp": series.first,
            "lastTimestamp": stamp,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self.instance,
        }


def event_name(name: str, wall: datetime, number: int) -> str:
    """A name that no other Event about the object has, even at the same moment."""
    plain = re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "event"
    moment = (int(wall.timestamp()) * 1_000_000 + wall.microsecond) * 1000 + number % 1000
    return f"{plain[:230].rstrip('-.')}.{moment:x}"
