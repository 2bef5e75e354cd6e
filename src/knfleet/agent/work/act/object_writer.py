"""Writes one object of a work to the cluster, by its update strategy. Decides nothing else.

A new object is created without a look at the cluster first; one that turns out to be there is read
and updated. Every answer goes into the records, so that the watch tells nothing new about it.
"""

from collections.abc import Sequence

from msgspec import Struct

from knfleet.agent.work.act.jq import JqRunner
from knfleet.agent.work.desired.content import created, updated, writable
from knfleet.agent.work.desired.ignore_fields import (
    IgnoreFieldError,
    kept,
    marked,
    spec_hash,
    without_paths,
)
from knfleet.agent.work.desired.owners import is_work, with_owner, without_owner
from knfleet.agent.work.observed.objects import Record, SpokeObjects
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import (
    CONFIG_SPEC_HASH,
    DEFAULT_FIELD_MANAGER,
    IgnoreField,
    ServerSideApply,
    UpdateStrategy,
)
from knfleet.apply.manifest_fields import items, part
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Conflict, NotFound

TRIES = 3
"""How often an update is tried that another client got in the way of."""


class WriteTarget(Struct, frozen=True):
    """One object to write."""

    resource: Resource
    key: Key
    manifest: Object
    strategy: UpdateStrategy
    owner: Object
    """The reference of the work's AppliedManifestWork."""
    owned: bool = True
    """Whether the object goes with the work."""
    other_owners: frozenset[str] = frozenset()
    """UIDs of AppliedManifestWorks that exist."""

    def owners(self, there: Sequence[Object]) -> list[Object]:
        """The owner references that the object must have."""
        if self.owned:
            return with_owner(there, self.owner)
        return without_owner(there, self.owner["uid"])


class ObjectWriter:
    """Writes objects, and remembers how it left them."""

    def __init__(self, client: Client, objects: SpokeObjects, jq: JqRunner) -> None:
        self.client = client
        self.objects = objects
        self.jq = jq

    async def write(self, target: WriteTarget, known: Record | None) -> Record:
        """Bring one object to where its work wants it; what is known of it then.

        Raises KubeError, or IgnoreFieldError when a path of ignored fields cannot be used.
        """
        if target.strategy.type == "ServerSideApply":
            return self.saw(target, await self.apply(target, known))
        if known is None:
            try:
                return self.saw(target, await self.create(target))
            except AlreadyExists:
                pass
        if target.strategy.type == "CreateOnly":
            return await self.own(target, known)
        return self.saw(target, await self.update(target))

    def saw(self, target: WriteTarget, manifest: Object) -> Record:
        """Remember what the cluster answered."""
        return self.objects.saw(target.resource, manifest)

    async def create(self, target: WriteTarget) -> Object:
        """Create the object."""
        manifest = created(target.manifest, target.owners(()))
        if not manifest["metadata"]["ownerReferences"]:
            del manifest["metadata"]["ownerReferences"]
        return await self.client.create(target.resource, manifest, target.key.namespace)

    async def update(self, target: WriteTarget) -> Object:
        """Merge the manifest into the object that is there, unless nothing would change."""
        for attempt in range(TRIES):
            try:
                live = await self.read(target)
            except NotFound:
                return await self.create(target)
            owners = target.owners(items(live, "metadata", "ownerReferences"))
            wanted = updated(target.manifest, live, owners)
            named = {**live, "apiVersion": wanted["apiVersion"], "kind": wanted["kind"]}
            if wanted == named:
                return live
            try:
                return await self.client.replace(target.resource, writable(wanted))
            except Conflict:
                if attempt == TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    async def read(self, target: WriteTarget) -> Object:
        """The object as it is."""
        return await self.client.get(target.resource, target.key.name, target.key.namespace)

    async def own(self, target: WriteTarget, known: Record | None) -> Record:
        """See to the owner references of an object, and to nothing else."""
        if known is None:
            known = self.saw(target, await self.read(target))
        owners = target.owners(known.owners)
        if owners == list(known.owners):
            return known
        return self.saw(target, await self.patch_owners(target, known, owners))

    async def patch_owners(
        self, target: WriteTarget, known: Record, owners: list[Object]
    ) -> Object:
        """Write the owner references of an object, in the state that is known."""
        meta: Object = {"ownerReferences": owners or None, "resourceVersion": known.version}
        return await self.client.patch(target.resource, target.key, {"metadata": meta})

    async def apply(self, target: WriteTarget, known: Record | None) -> Object:
        """Apply the manifest with a field manager."""
        options = target.strategy.server_side_apply or ServerSideApply()
        manager = options.field_manager or DEFAULT_FIELD_MANAGER
        manifest, version = target.manifest, ""
        there: Sequence[Object] = known.owners if known is not None else ()
        if options.ignore_fields:
            manifest, live = await self.without_ignored(target, options.ignore_fields, manager)
            there = items(live, "metadata", "ownerReferences") if live is not None else ()
            version = str(part(live, "metadata").get("resourceVersion")) if live else ""
        # References to other works are applied too: with one manager, leaving them out would
        # remove them.
        works = [
            each for each in there if is_work(each) and str(each.get("uid")) in target.other_owners
        ]
        body = created(manifest, target.owners(works))
        if not body["metadata"]["ownerReferences"]:
            del body["metadata"]["ownerReferences"]
        if version:
            body["metadata"]["resourceVersion"] = version
        applied = await self.client.apply(
            target.resource, body, manager=manager, force=options.force
        )
        owners = items(applied, "metadata", "ownerReferences")
        wanted = target.owners(owners)
        if wanted == owners:
            return applied
        return await self.patch_owners(target, self.saw(target, applied), wanted)

    async def without_ignored(
        self, target: WriteTarget, rules: Sequence[IgnoreField], manager: str
    ) -> tuple[Object, Object | None]:
        """The manifest without the fields to leave alone, and the object that is there."""
        hashed = target.manifest
        for rule in rules:
            if rule.condition == "OnSpokePresent":
                hashed = await self.reduced(hashed, rule)
        mark = spec_hash(hashed)
        try:
            live = await self.read(target)
        except NotFound:
            return marked(target.manifest, mark), None
        unchanged = part(live, "metadata", "annotations").get(CONFIG_SPEC_HASH) == mark
        reduced = hashed
        for rule in rules:
            if unchanged and rule.condition == "OnSpokeChange":
                reduced = await self.reduced(reduced, rule)
        return marked(kept(reduced, target.manifest, live, manager), mark), live

    async def reduced(self, manifest: Object, rule: IgnoreField) -> Object:
        """A manifest without the fields of one rule."""
        result = without_paths(manifest, rule)
        if rule.jq_path_expressions:
            result = await self.jq.delete(result, rule.jq_path_expressions)
            if not isinstance(part(result, "metadata").get("name"), str):
                raise IgnoreFieldError("a jq expression removes the name of the object")
        return result
