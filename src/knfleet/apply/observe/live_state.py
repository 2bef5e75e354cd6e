"""What is there: from informers, else from memory while it is fresh, else by lists.

Only metadata is read. What no informer knows is looked up by name, since an object that is no
member yet may be the Go operator's, or another client's.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.act.refusals import refusal
from knfleet.apply.applyset import ApplySet
from knfleet.apply.change_set import ObjectFailure
from knfleet.apply.desired import Desired
from knfleet.apply.observe.metadata import ObservedObject, is_newer, observe
from knfleet.apply.observe.watches import SetWatch
from knfleet.apply.refs import Ref
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, NotFound

FEW = 3
"""So many objects of a kind and namespace are looked up one by one; more, by one list of all."""


class AppliedObject(Struct, frozen=True):
    """What we know of an object because we wrote or checked it ourselves."""

    digest: str
    version: str
    checked_at: float
    is_member: bool = True
    """Whether watches tell of it: an administrator's object is no member of the set."""


class AppliedObjects:
    """The objects that this process knows to be as they should be, and since when."""

    def __init__(self, now: Callable[[], float], fresh_seconds: float) -> None:
        self.now = now
        self.fresh_seconds = fresh_seconds
        self.records: dict[Ref, AppliedObject] = {}

    def note(self, ref: Ref, digest: str, version: str, *, is_member: bool = True) -> None:
        """An object is as it should be at this version."""
        self.records[ref] = AppliedObject(digest, version, self.now(), is_member)

    def forget(self, refs: Iterable[Ref]) -> None:
        """Look at these again."""
        for ref in refs:
            self.records.pop(ref, None)

    def is_fresh(self, record: AppliedObject) -> bool:
        """Whether a record is young enough to be believed without a look."""
        return self.now() - record.checked_at < self.fresh_seconds


class LiveState(Struct, frozen=True):
    """What is there, and what is known to be right without a look."""

    objects: dict[Ref, ObservedObject]
    trusted: frozenset[Ref]
    failures: tuple[ObjectFailure, ...] = ()
    """Objects that we may not even look at."""


class LiveStateReader:
    """Looks at one set in one cluster."""

    def __init__(
        self,
        client: Client,
        applyset: ApplySet,
        applied_objects: AppliedObjects,
        watch: SetWatch | None = None,
    ) -> None:
        self.client = client
        self.applyset = applyset
        self.applied_objects = applied_objects
        self.watch = watch
        self.empty: frozenset[str] = frozenset()
        """Namespaces in which the next look need not look: they were made just now."""

    async def read(self, wanted: Collection[Desired], *, afresh: bool = False) -> LiveState:
        """What is there of the wanted objects; afresh, everything is asked for."""
        empty, self.empty = self.empty, frozenset()
        by_resource: defaultdict[Resource, list[Desired]] = defaultdict(list)
        for desired in wanted:
            if afresh or desired.ref.namespace not in empty:
                by_resource[desired.resource].append(desired)
        objects: dict[Ref, ObservedObject] = {}
        trusted: set[Ref] = set()
        unseen: list[tuple[Resource, list[Desired]]] = []
        for resource, members in by_resource.items():
            rest = members if afresh else self.remembered(members, objects, trusted)
            if rest:
                unseen.append((resource, rest))
        failures: list[ObjectFailure] = []
        looks = [self.try_look_up(resource, rest) for resource, rest in unseen]
        for found, failed in await asyncio.gather(*looks):
            objects.update(found)
            failures += failed
        return LiveState(objects, frozenset(trusted), tuple(failures))

    async def try_look_up(
        self, resource: Resource, members: list[Desired]
    ) -> tuple[dict[Ref, ObservedObject], list[ObjectFailure]]:
        """Some objects of one kind, or why we may not look."""
        try:
            return await self.look_up(resource, members), []
        except Forbidden as error:
            return {}, [refusal(desired.ref, error, "list") for desired in members]

    def remembered(
        self, members: list[Desired], objects: dict[Ref, ObservedObject], trusted: set[Ref]
    ) -> list[Desired]:
        """Sort objects into seen and trusted; what remains must be asked for."""
        kind = members[0].ref.group_kind
        informer = self.watch.informer(kind) if self.watch is not None else None
        rest: list[Desired] = []
        for desired in members:
            record = self.applied_objects.records.get(desired.ref)
            is_right = record is not None and record.digest == desired.digest
            if informer is None or (record is not None and not record.is_member):
                if record is not None and is_right and self.applied_objects.is_fresh(record):
                    trusted.add(desired.ref)
                else:
                    rest.append(desired)
                continue
            known = informer.get(desired.ref.key)
            reached = informer.resource_version if known is None else version_of(known)
            is_behind = record is not None and is_newer(record.version, reached)
            is_same = record is not None and known is not None and record.version == reached
            if is_right and (is_same or is_behind):
                trusted.add(desired.ref)
            elif known is not None and not is_behind:
                objects[desired.ref] = observe(known)
            else:
                rest.append(desired)
        return rest

    async def look_up(
        self, resource: Resource, members: list[Desired]
    ) -> dict[Ref, ObservedObject]:
        """Some objects of one kind, by name, or by lists where there are many."""
        by_namespace: defaultdict[str, list[str]] = defaultdict(list)
        for desired in members:
            by_namespace[desired.ref.namespace].append(desired.ref.name)
        looks = [
            self.list_some(resource, namespace, names) for namespace, names in by_namespace.items()
        ]
        found = [each for part in await asyncio.gather(*looks) for each in part]
        refs = {desired.ref for desired in members}
        return {each.ref: each for each in found if each.ref in refs}

    async def list_some(
        self, resource: Resource, namespace: str, names: list[str]
    ) -> list[ObservedObject]:
        """Objects of one kind and namespace."""
        if len(names) > FEW:
            return await self.list(resource, namespace)
        selectors = [f"metadata.name={name}" for name in names]
        parts = await asyncio.gather(
            *(self.list(resource, namespace, fields=each) for each in selectors)
        )
        return [each for part in parts for each in part]

    async def get(self, resource: Resource, key: Key) -> ObservedObject | None:
        found = await self.list(resource, key.namespace, fields=f"metadata.name={key.name}")
        return found[0] if found else None

    async def members(self, resource: Resource, namespace: str = "") -> list[ObservedObject]:
        return await self.list(resource, namespace, labels=self.applyset.selector)

    async def list(
        self, resource: Resource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[ObservedObject]:
        """Objects of one kind; none when the cluster does not serve it."""
        try:
            listing = await self.client.list(
                resource, namespace, labels=labels, fields=fields, metadata_only=True
            )
        except NotFound:
            return []
        return [observe(item) for item in listing.items]


def version_of(manifest: Object) -> str:
    """The resource version of an object."""
    return str(manifest["metadata"].get("resourceVersion", ""))
