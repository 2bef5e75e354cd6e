"""AppliedManifestWorks of the cluster: the record of what each work made, and its owner.

One is created before anything is applied, with the kinds that the work contains, so that an agent
that was killed at any moment finds every object again: listed in the status, or by its owner
reference among the objects of those kinds.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from knfleet.agent.work.act.own_writes import OwnWrites
from knfleet.api.meta import Key, Object
from knfleet.api.schema import decode
from knfleet.api.work.appliedmanifestwork import (
    APPLIED_WORK_FINALIZER,
    APPLIED_WORKS,
    AppliedManifestWork,
    AppliedResource,
    applied_work_name,
)
from knfleet.kube.cache.informer import Informer, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Invalid, NotFound

CONTAINED_KINDS = "knfleet.dev/contained-kinds"
"""Annotation: kinds of the objects that a work contains or contained, as `apps/v1/Deployment`."""


class WorkOwner(Struct, frozen=True):
    """Who applies works on this cluster."""

    hub: str
    agent: str


class AppliedWorks:
    """Reads and writes AppliedManifestWorks."""

    def __init__(self, client: Client, owner: WorkOwner) -> None:
        self.client = client
        self.owner = owner
        self.informer = Informer(client, APPLIED_WORKS, trim=without_managed_fields)
        self.own = OwnWrites(self.informer)

    def name_of(self, work: str) -> str:
        """The name of the one that belongs to a work of this hub."""
        return applied_work_name(self.owner.hub, work)

    def get(self, name: str) -> AppliedManifestWork | None:
        """One by name."""
        found = self.own.get(Key("", name))
        return None if found is None else decode(found, AppliedManifestWork)

    def is_ours(self, applied: AppliedManifestWork) -> bool:
        """Whether this agent made it, for this hub or another."""
        return applied.spec.agent_id in (self.owner.agent, self.owner.hub, "")

    def uids(self) -> frozenset[str]:
        """UIDs of all that exist."""
        return frozenset(each["metadata"]["uid"] for each in self.informer.items())

    async def ensure(self, work: str, kinds: Iterable[str]) -> AppliedManifestWork:
        """Have the one for a work there, with some kinds on it."""
        name = self.name_of(work)
        wanted = set(kinds)
        found = self.get(name)
        if found is None:
            try:
                return self.noted(await self.client.create(APPLIED_WORKS, self.new(work, wanted)))
            except AlreadyExists:
                found = self.noted(await self.client.get(APPLIED_WORKS, name))
        patch = self.patch_for(found, wanted)
        if patch and not found.metadata.deleting:
            patched = await self.client.patch(APPLIED_WORKS, Key("", name), patch)
            return self.noted(patched)
        return found

    def new(self, work: str, kinds: Iterable[str]) -> Object:
        """The manifest of a new one."""
        return {
            "apiVersion": APPLIED_WORKS.api_version,
            "kind": APPLIED_WORKS.kind,
            "metadata": {
                "name": self.name_of(work),
                "finalizers": [APPLIED_WORK_FINALIZER],
                "annotations": {CONTAINED_KINDS: ",".join(sorted(kinds))},
            },
            "spec": {
                "hubHash": self.owner.hub,
                "agentID": self.owner.agent,
                "manifestWorkName": work,
            },
        }

    def patch_for(self, found: AppliedManifestWork, kinds: set[str]) -> Object:
        """The merge patch that makes one ours with some more kinds; empty when it is so."""
        meta: Object = {}
        known = contained_kinds(found)
        if not kinds <= known:
            meta["annotations"] = {CONTAINED_KINDS: ",".join(sorted(known | kinds))}
        if APPLIED_WORK_FINALIZER not in found.metadata.finalizers:
            meta["finalizers"] = [*found.metadata.finalizers, APPLIED_WORK_FINALIZER]
        spec: Object = {}
        if found.spec.agent_id != self.owner.agent:
            spec["agentID"] = self.owner.agent
        return {
            **({"metadata": {**meta, "uid": found.metadata.uid}} if meta else {}),
            **({"spec": spec} if spec else {}),
        }

    async def write_resources(
        self, applied: AppliedManifestWork, resources: list[AppliedResource]
    ) -> None:
        """Write which objects there are, unless that is written already."""
        wanted = sorted(resources)
        if wanted == applied.status.applied_resources:
            return
        await self.patch_status(applied, {"appliedResources": msgspec.to_builtins(wanted)})

    async def write_eviction(self, applied: AppliedManifestWork, moment: str) -> None:
        """Write since when no work wants it; nothing when one does."""
        if applied.status.eviction_start_time != moment:
            await self.patch_status(applied, {"evictionStartTime": moment or None})

    async def patch_status(self, applied: AppliedManifestWork, status: Object) -> None:
        """Write a part of the status."""
        patch = {"metadata": {"uid": applied.metadata.uid}, "status": status}
        key = applied.metadata.key
        self.noted(await self.client.patch(APPLIED_WORKS, key, patch, subresource="status"))

    async def delete(self, applied: AppliedManifestWork) -> None:
        """Begin its deletion, which our finalizer holds up."""
        if applied.metadata.deleting:
            return
        key, uid = applied.metadata.key, applied.metadata.uid
        try:
            left = await self.client.delete(APPLIED_WORKS, key, uid=uid, propagation="Background")
        except NotFound:
            self.own.note_gone(key, uid)
            return
        if left.get("kind") == APPLIED_WORKS.kind:
            self.noted(left)

    async def release(self, name: str, uid: str) -> None:
        """Remove our finalizer: all objects are gone."""
        applied = self.get(name)
        if applied is None or applied.metadata.uid != uid:
            return
        key = applied.metadata.key
        if APPLIED_WORK_FINALIZER in applied.metadata.finalizers:
            index = applied.metadata.finalizers.index(APPLIED_WORK_FINALIZER)
            path = f"/metadata/finalizers/{index}"
            patch = [
                {"op": "test", "path": "/metadata/uid", "value": uid},
                {"op": "test", "path": path, "value": APPLIED_WORK_FINALIZER},
                {"op": "remove", "path": path},
            ]
            try:
                left = await self.client.patch(APPLIED_WORKS, key, patch)
            except NotFound:
                left: Object = {"metadata": {}}
            except Invalid:
                # The finalizers are others than we know; the watch is behind.
                self.noted(await self.client.get(APPLIED_WORKS, name))
                raise
            if left["metadata"].get("finalizers"):
                self.noted(left)
                return
        self.own.note_gone(key, uid)

    def noted(self, manifest: Object) -> AppliedManifestWork:
        """What a write returned, remembered."""
        self.own.note(manifest)
        return decode(manifest, AppliedManifestWork)


def contained_kinds(applied: AppliedManifestWork) -> set[str]:
    """The kinds that are noted on one."""
    text = applied.metadata.annotations.get(CONTAINED_KINDS, "")
    return {each for each in text.split(",") if each}
