"""Where works come from, and where their status goes: an interface, and the hub's API server.

A work keeps its manifests as packed bytes, because they are needed only when something is written.
"""

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from knfleet.agent.work.act.own_writes import OwnWrites, uid_of, version_of
from knfleet.agent.work.desired.content import digest
from knfleet.api.meta import Key, Object
from knfleet.api.schema import DecodeError, ObjectMeta, in_words, without_nulls
from knfleet.api.work.appliedmanifestwork import hub_hash
from knfleet.api.work.manifestwork import (
    WORK_FINALIZER,
    WORKS,
    ManifestWorkSpec,
    ManifestWorkStatus,
)
from knfleet.apply.manifest_fields import part
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.memory_budget import weight
from knfleet.kube.client.verbs import Client
from knfleet.kube.nesting import DEEPEST, TOO_DEEP

PACKED = "packed"
META = ("name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp")
MORE_META = ("deletionTimestamp", "finalizers")


class Work(Struct, frozen=True):
    """A ManifestWork."""

    metadata: ObjectMeta
    packed: bytes
    raw_status: Object

    @property
    def name(self) -> str:
        """Its name, also in that of its AppliedManifestWork."""
        return self.metadata.name

    @property
    def generation(self) -> int:
        """Changes with the spec."""
        return self.metadata.generation

    @property
    def deleting(self) -> bool:
        """Whether it waits for its finalizers."""
        return self.metadata.deleting

    @property
    def is_held(self) -> bool:
        """Whether our finalizer is there."""
        return WORK_FINALIZER in self.metadata.finalizers

    def spec(self) -> ManifestWorkSpec:
        """What the work wants; manifests are as the user wrote them. Raises DecodeError."""
        text = zlib.decompress(self.packed)
        if TOO_DEEP.encode() in text:
            problem = f"spec: values are nested deeper than {DEEPEST} levels; flatten the manifests"
            raise DecodeError("ManifestWork", self.metadata.key, problem)
        raw: Object = msgspec.json.decode(text)
        manifests: list[Any] = part(raw, "workload").get("manifests") or []
        others = {name: value for name, value in raw.items() if name != "workload"}
        try:
            spec = msgspec.convert(without_nulls(others), ManifestWorkSpec)
        except msgspec.ValidationError as error:
            problem = in_words(str(error))
            raise DecodeError("ManifestWork", self.metadata.key, problem) from error
        return replace(spec, workload=replace(spec.workload, manifests=manifests))

    def status(self) -> ManifestWorkStatus:
        """What was last reported; nothing when that cannot be read."""
        try:
            return msgspec.convert(without_nulls(self.raw_status), ManifestWorkStatus)
        except msgspec.ValidationError:
            return ManifestWorkStatus()


WorkHandler = Callable[[str], None]


class WorkSource(Protocol):
    """Where works come from."""

    hub: str
    """The hash that tells hubs apart."""

    @property
    def synced(self) -> asyncio.Event:
        """Set when all works are known."""
        ...

    def get(self, name: str) -> Work | None:
        """A work."""
        ...

    def on_change(self, handler: WorkHandler) -> None:
        """Call a function with the name of each work that changed."""
        ...

    def on_drop(self, handler: WorkHandler) -> None:
        """Call a function with the name of each work that was deleted without waiting for us."""
        ...

    async def add_finalizer(self, work: Work) -> None:
        """Keep the work from going before its objects have gone."""
        ...

    async def remove_finalizer(self, work: Work) -> None:
        """Let the work go."""
        ...

    async def write_status(self, work: Work, status: ManifestWorkStatus) -> None:
        """Report what became of the work."""
        ...

    async def run(self) -> None:
        """Follow the works until cancelled."""
        ...


def pack(manifest: Object) -> Object:
    """A work as it is kept."""
    meta = manifest["metadata"]
    kept = {name: meta[name] for name in (*META, *MORE_META) if name in meta}
    spec = msgspec.json.encode(manifest.get("spec") or {})
    return {
        "metadata": kept,
        "status": manifest.get("status") or {},
        PACKED: zlib.compress(spec, 1),
    }


def weight_of(kept: Object) -> int:
    """About how much memory a work takes as it is kept."""
    return len(kept[PACKED]) + weight(msgspec.json.encode(kept["status"]))


class KubeSource:
    """Works of the cluster's namespace on the hub's API server."""

    def __init__(self, client: Client, server: str, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.hub = hub_hash(server)
        self.informer = Informer(client, WORKS, namespace, trim=pack, kept_weight=weight_of)
        self.works = OwnWrites(self.informer)
        self.handlers: list[WorkHandler] = []
        self.drop_handlers: list[WorkHandler] = []
        self.reported: dict[Key, str] = {}
        """Digests of the statuses that we wrote last."""
        self.versions: dict[Key, str] = {}
        """Resource versions of all works, as the watch last showed them."""
        self.informer.on_change(self.changed)

    @property
    def synced(self) -> asyncio.Event:
        """Set when all works are known."""
        return self.informer.synced

    def get(self, name: str) -> Work | None:
        """A work."""
        found = self.works.get(Key(self.namespace, name))
        if found is None:
            return None
        meta = msgspec.convert(found["metadata"], ObjectMeta)
        return Work(meta, found[PACKED], found["status"])

    def on_change(self, handler: WorkHandler) -> None:
        """Call a function with the name of each work that changed."""
        self.handlers.append(handler)

    def changed(self, change: StoreChange) -> None:
        """Pass on what is not merely our own write coming back."""
        if self.is_dropped(change):
            for handler in self.drop_handlers:
                handler(change.key.name)
        if change.old is not None and change.new is not None:
            same = all(of(change.old) == of(change.new) for of in (wanted, uid_of))
            if same and self.reported.get(change.key) == digest(change.new["status"]):
                return
        if change.new is None:
            self.reported.pop(change.key, None)
        for handler in self.handlers:
            handler(change.key.name)

    def is_dropped(self, change: StoreChange) -> bool:
        """Whether a work was deleted without a time to wait for finalizers.

        An API server does that to one that got its first finalizer in the same moment. The event of
        a deletion has a version of its own; a work that is missing in a list has not.
        """
        if change.new is not None:
            self.versions[change.key] = version_of(change.new)
            return False
        known = self.versions.pop(change.key, "")
        old = change.old
        return (
            old is not None
            and version_of(old) != known
            and "deletionTimestamp" not in (old["metadata"])
        )

    def on_drop(self, handler: WorkHandler) -> None:
        """Call a function with the name of each work that was deleted without waiting for us."""
        self.drop_handlers.append(handler)

    async def add_finalizer(self, work: Work) -> None:
        """Keep the work from going before its objects have gone."""
        step: Any = {"op": "add", "path": "/metadata/finalizers", "value": [WORK_FINALIZER]}
        guard: Any = {"op": "test", "path": "/metadata/uid", "value": work.metadata.uid}
        if work.metadata.finalizers:
            step = {"op": "add", "path": "/metadata/finalizers/-", "value": WORK_FINALIZER}
        patch = [guard, step]
        self.works.note(await self.client.patch(WORKS, work.metadata.key, patch))

    async def remove_finalizer(self, work: Work) -> None:
        """Let the work go."""
        index = work.metadata.finalizers.index(WORK_FINALIZER)
        path = f"/metadata/finalizers/{index}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": work.metadata.uid},
            {"op": "test", "path": path, "value": WORK_FINALIZER},
            {"op": "remove", "path": path},
        ]
        left = await self.client.patch(WORKS, work.metadata.key, patch)
        if left["metadata"].get("finalizers"):
            self.works.note(left)
        else:
            self.works.note_gone(work.metadata.key, work.metadata.uid)

    async def write_status(self, work: Work, status: ManifestWorkStatus) -> None:
        """Report what became of the work.

        The agent is the only one to write it, so no version is asked for; by the UID a work that
        was made anew meanwhile is left alone.
        """
        written = msgspec.to_builtins(status)
        written.setdefault("resourceStatus", {}).setdefault("manifests", [])
        patch = {"metadata": {"uid": work.metadata.uid}, "status": written}
        key = work.metadata.key
        answer = await self.client.patch(WORKS, key, patch, subresource="status")
        self.reported[key] = digest(answer.get("status") or {})
        self.works.note(answer)

    async def run(self) -> None:
        """Follow the works until cancelled."""
        await self.informer.run()


def wanted(manifest: Object) -> object:
    """What of a work calls for action."""
    meta = manifest["metadata"]
    return meta.get("generation"), meta.get("deletionTimestamp"), meta.get("finalizers")
