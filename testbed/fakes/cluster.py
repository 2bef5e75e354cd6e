"""What a fake cluster holds: objects, versions, and a history for watches."""

import asyncio
import copy
import uuid
from collections import deque
from typing import cast

from msgspec import Struct

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, LEASES, NAMESPACES, SECRETS
from knfleet.api.meta import Key, Object, Resource

HISTORY = 1000


class Event(Struct, frozen=True):
    """One thing that happened."""

    version: int
    resource: Resource
    type: str
    object: Object
    old: Object | None = None


class Gone(Exception):
    """The history does not reach back so far."""


class Faults(Struct):
    """What goes wrong at the moment."""

    latency_seconds: float = 0
    fail: int = 0
    """How many of the next requests get `code`."""
    code: int = 503
    tokens: set[str] | None = None
    """The tokens that are accepted; None accepts everybody."""
    streams_lists: bool = True


class Cluster:
    """The state of one fake cluster."""

    def __init__(
        self, *resources: Resource, bookmark_seconds: float = 5, first_version: int = 1
    ) -> None:
        known = resources or (NAMESPACES, CONFIG_MAPS, SECRETS, DEPLOYMENTS, LEASES)
        self.resources = {(r.group, r.version, r.plural): r for r in known}
        self.objects: dict[Resource, dict[Key, Object]] = {r: {} for r in known}
        self.version = first_version
        self.history: deque[Event] = deque(maxlen=HISTORY)
        self.forgotten = first_version
        self.changed: set[asyncio.Event] = set()
        self.watches: set[asyncio.Task[None]] = set()
        self.faults = Faults()
        self.bookmark_seconds = bookmark_seconds
        self.requests: list[str] = []

    def put(self, resource: Resource, manifest: Object) -> Object:
        """Write an object, new or not."""
        key = Key.of(manifest)
        old = self.objects[resource].get(key)
        new = copy.deepcopy(manifest)
        meta = new["metadata"]
        meta["uid"] = old["metadata"]["uid"] if old else str(uuid.uuid4())
        self.record("MODIFIED" if old else "ADDED", resource, new, old)
        self.objects[resource][key] = new
        return new

    def delete(self, resource: Resource, key: Key) -> Object | None:
        """Remove an object."""
        old = self.objects[resource].pop(key, None)
        if old is not None:
            self.record("DELETED", resource, copy.deepcopy(old), old)
        return old

    def record(self, kind: str, resource: Resource, manifest: Object, old: Object | None) -> None:
        """Give a change its version, and wake all watches."""
        self.version += 1
        manifest["apiVersion"], manifest["kind"] = resource.api_version, resource.kind
        manifest["metadata"]["resourceVersion"] = str(self.version)
        if len(self.history) == HISTORY:
            self.forgotten = self.history[0].version
        self.history.append(Event(self.version, resource, kind, manifest, old))
        for event in self.changed:
            event.set()

    def forget(self) -> None:
        """Compact: no watch can begin before now."""
        self.history.clear()
        self.forgotten = self.version

    def since(self, version: int) -> list[Event]:
        """What happened after a version."""
        if version < self.forgotten:
            raise Gone
        return [event for event in self.history if event.version > version]

    def select(self, resource: Resource, namespace: str, labels: str) -> list[Object]:
        """Objects in order of their keys."""
        return [
            manifest
            for _, manifest in sorted(self.objects[resource].items())
            if is_selected(manifest, namespace, labels)
        ]

    async def cut(self) -> None:
        """End all watches in the middle."""
        watches = list(self.watches)
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


def is_selected(manifest: Object, namespace: str, labels: str) -> bool:
    """Whether an object is in a namespace and has some labels."""
    meta = manifest["metadata"]
    if namespace and meta.get("namespace", "") != namespace:
        return False
    own: dict[str, str] = meta.get("labels") or {}
    for term in filter(None, labels.split(",")):
        name, equals, value = term.partition("=")
        if name not in own or (equals and own[name] != value):
            return False
    return True


def merged(old: Object, patch: Object) -> Object:
    """A merge patch, applied."""
    new = dict(old)
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        elif isinstance(value, dict) and isinstance(new.get(name), dict):
            new[name] = merged(new[name], cast("Object", value))
        else:
            new[name] = value
    return new


def metadata_of(manifest: Object) -> Object:
    """Nothing but the metadata."""
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": manifest["metadata"],
    }
