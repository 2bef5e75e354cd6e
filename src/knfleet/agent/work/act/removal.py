"""Removes objects that a work does not want any more: deletes them, or lets them go.

An object goes with its UID as a precondition, so that one that another client created anew is
left alone; it stays listed until it is really gone.
"""

import asyncio
from collections.abc import Callable, Iterable

from msgspec import Struct

from knfleet.agent.work.act.applied_works import contained_kinds
from knfleet.agent.work.desired.content import WORK_LABEL
from knfleet.agent.work.desired.manifests import ObjectRef
from knfleet.agent.work.desired.owners import removal, without_owner
from knfleet.agent.work.observed.objects import Expectation, Record, SpokeObjects
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.appliedmanifestwork import AppliedManifestWork, AppliedResource
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, Invalid, KubeError, NotFound

AT_ONCE = 8

Orphaned = Callable[[ObjectRef], bool]


class Leftover(Struct, frozen=True):
    """An object that is still there."""

    applied: AppliedResource
    problem: str
    """What holds it up."""

    @property
    def path(self) -> str:
        """The path of the object."""
        each = self.applied
        return Resource(each.group, each.version, "", each.resource).path(each.namespace, each.name)

    def __str__(self) -> str:
        ref = ObjectRef.of(self.applied)
        return f"{ref} ({self.problem})" if self.problem else str(ref)


class RemovalCandidate(Struct, frozen=True):
    """An object that may have to go."""

    resource: Resource
    key: Key

    @property
    def ref(self) -> ObjectRef:
        """The object, whatever version it is read in."""
        resource = self.resource
        return ObjectRef(resource.group, resource.plural, self.key.namespace, self.key.name)

    def applied(self, uid: str) -> AppliedResource:
        """The object as an AppliedManifestWork lists it."""
        return AppliedResource(
            group=self.resource.group,
            version=self.resource.version,
            resource=self.resource.plural,
            namespace=self.key.namespace,
            name=self.key.name,
            uid=uid,
        )


class ObjectRemover:
    """Removes objects of works."""

    def __init__(self, client: Client, objects: SpokeObjects) -> None:
        self.client = client
        self.objects = objects
        self.slots = asyncio.Semaphore(AT_ONCE)

    async def candidates(self, applied: AppliedManifestWork) -> list[RemovalCandidate]:
        """All objects that an AppliedManifestWork lists or owns."""
        kinds = await asyncio.gather(
            *(self.kind(*each.rpartition("/")[::2]) for each in sorted(contained_kinds(applied)))
        )
        served = [each for each in kinds if each is not None]
        await asyncio.gather(*(self.objects.ready(each) for each in served))
        by_plural = {(each.group, each.version, each.plural): each for each in served}
        found: dict[ObjectRef, RemovalCandidate] = {}
        for each in applied.status.applied_resources:
            resource = by_plural.get((each.group, each.version, each.resource)) or Resource(
                each.group, each.version, "", each.resource, namespaced=bool(each.namespace)
            )
            candidate = RemovalCandidate(resource, Key(each.namespace, each.name))
            found[candidate.ref] = candidate
        return list(({each.ref: each for each in self.owned(applied)} | found).values())

    def owned(self, applied: AppliedManifestWork) -> list[RemovalCandidate]:
        """All objects that are known to have an AppliedManifestWork as owner."""
        return [RemovalCandidate(*each) for each in self.objects.of_owner(applied.metadata.uid)]

    async def kind(self, api_version: str, kind: str) -> Resource | None:
        """How a kind is addressed; none when the cluster does not serve it."""
        try:
            return await self.client.discovery.resource(api_version, kind)
        except NotFound:
            return None

    async def remove(
        self,
        work: str,
        candidates: Iterable[RemovalCandidate],
        applied: AppliedManifestWork,
        orphaned: Orphaned,
    ) -> list[Leftover]:
        """Have objects go that a work does not want; those that are still there."""
        owner = applied.metadata.uid
        results = await asyncio.gather(
            *(
                self.remove_one(work, each, owner, orphaned=orphaned(each.ref))
                for each in candidates
            )
        )
        return [each for each in results if each is not None]

    async def remove_one(
        self, work: str, candidate: RemovalCandidate, owner: str, *, orphaned: bool
    ) -> Leftover | None:
        """Have one object go; what is left of it."""
        async with self.slots:
            record = self.objects.get(candidate.resource, candidate.key)
            uid = record.state.uid if record is not None else ""
            try:
                # Not among those with our label: it is gone, or it never got the label.
                if record is None or not self.objects.is_followed(candidate.resource):
                    record = await self.read(candidate)
                if record is None:
                    return None
                uid = record.state.uid
                return await self.act(work, candidate, record, owner, orphaned=orphaned)
            except NotFound:
                self.objects.gone(candidate.resource, candidate.key)
                return None
            except (Conflict, Invalid):
                # Made anew or changed meanwhile; the next look shows it.
                await self.objects.read(candidate.resource, candidate.key)
                return Leftover(candidate.applied(uid), "changed meanwhile")
            except KubeError as error:
                return Leftover(candidate.applied(uid), str(error)[:300])

    async def read(self, candidate: RemovalCandidate) -> Record | None:
        """The object as it is; none when it is gone."""
        error = await self.objects.read(candidate.resource, candidate.key)
        if error is not None:
            raise error
        return self.objects.get(candidate.resource, candidate.key)

    async def act(
        self, work: str, candidate: RemovalCandidate, record: Record, owner: str, *, orphaned: bool
    ) -> Leftover | None:
        """Do what is decided about one object."""
        decision = removal(record.state, owner, orphaned=orphaned)
        if decision == "forget":
            return None
        if decision == "disown":
            await self.disown(candidate, record, owner)
            return None
        self.objects.expect(work, candidate.resource, candidate.key, Expectation())
        if decision == "delete":
            left = await self.client.delete(
                candidate.resource, candidate.key, uid=record.state.uid, propagation="Background"
            )
            if "metadata" not in left or left.get("kind") == "Status":
                self.objects.gone(candidate.resource, candidate.key)
                return None
            record = self.objects.saw(candidate.resource, left)
            if self.objects.get(candidate.resource, candidate.key) is None:
                # The watch showed its end before the answer to the deletion came.
                return None
        held = ", ".join(record.finalizers)
        problem = f"held by the finalizers {held}" if held else "being deleted"
        return Leftover(candidate.applied(record.state.uid), problem)

    async def disown(self, candidate: RemovalCandidate, record: Record, owner: str) -> None:
        """Let an object go that others own, or that is to stay."""
        owners = without_owner(record.owners, owner)
        meta: Object = {"ownerReferences": owners or None, "resourceVersion": record.version}
        if not record.state.works - {owner} and record.has_label:
            meta["labels"] = {WORK_LABEL: None}
        left = await self.client.patch(candidate.resource, candidate.key, {"metadata": meta})
        self.objects.saw(candidate.resource, left)
