"""One custom resource's objects on its target: applied, watched, repaired.

It lives as long as its custom resource is installed by this process, and holds what costs something
to build again: watches, and the memory of what was applied.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.act.writer import Deadlines
from knfleet.apply.applyset import ApplySet, Inventory, Parent
from knfleet.apply.change_set import ChangeSet
from knfleet.apply.desired import Desired, owner_reference
from knfleet.apply.engine import Engine
from knfleet.apply.observe.drift import DriftConflicts
from knfleet.apply.observe.metadata import is_newer
from knfleet.apply.observe.readiness import ObjectReadiness, ReadinessState, SetReadiness
from knfleet.apply.observe.repair import Repair, Repairer
from knfleet.apply.observe.watches import JUDGED, MemberChange, SetWatch
from knfleet.apply.refs import JOB, GroupKind, Ref
from knfleet.clusters.anchor import AnchorSpec, is_intact
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.operator.desired_objects import RenderResult
from knfleet.operator.status.messages import workloads
from knfleet.operator.targets.targets import Target
from knfleet.render.eventing.ping_source import NAME as PING_SOURCE
from knfleet.render.pipeline import Need

DEADLINES = Deadlines(passing_seconds=5, established_seconds=30, webhook_seconds=3, gone_seconds=15)
"""A pass should end soon, and be tried again; what takes longer is waited for by watch."""
SYNC_SECONDS = 10.0
LOOK_AHEAD_SECONDS = 3.0
"""How long watches may take to tell what is there; then it is asked for."""
LATE_SECONDS = 10.0
"""How long a new installation may take to be ready before everything of it is watched."""
DEPLOYMENT = GroupKind("apps", "Deployment")


class InstallationRepairs(Repairer):
    """Repairs everything but objects that others change by right, which a pass looks at."""

    leave: frozenset[Ref] = frozenset()

    def notice(self, noticed: MemberChange) -> None:
        """Handle a change of an object."""
        if noticed.ref not in self.leave:
            super().notice(noticed)


class Installation:
    """What one custom resource has on its target."""

    def __init__(
        self,
        target: Target,
        changed: Callable[[], None],
        repaired: Callable[[Repair], None],
        uprooted: Callable[[], None] = lambda: None,
    ) -> None:
        self.target = target
        self.client = target.client
        self.changed = changed
        self.uprooted = uprooted
        """Called when the anchor is gone, or no longer as it must be."""
        self.applyset = ApplySet(CONFIG_MAPS, target.parent)
        self.watch = SetWatch(target.client, self.applyset)
        self.engine = Engine(
            target.client,
            self.applyset,
            owners=target.owners,
            watch=self.watch,
            deadlines=DEADLINES,
            checks_rights=target.root is not None,
        )
        self.engine.live_state.empty = target.empty
        self.repairs = InstallationRepairs(
            self.engine, self.watch, DriftConflicts(time.monotonic), repaired
        )
        self.watch.on_change(self.notice)
        self.rendering: RenderResult | None = None
        self.resources: Sequence[Resource] = ()
        """The kinds of what this process applied last."""
        self.namespaces: Mapping[Resource, str] = {}
        """Where the members of each kind are; nothing for those in more than one namespace."""
        self.applied = asyncio.Event()
        self.is_unseen = False
        """Whether something was written before it was watched."""
        self.is_rooted = False
        self.is_leaving = False
        """Whether everything is being removed, the anchor last."""
        self.anchor = None if target.root is None else self.anchor_informer(target.root)

    async def run(self) -> None:
        """Watch and repair until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch.run())
            group.create_task(self.repairs.run())
            group.create_task(self.watch_late())
            if self.anchor is not None:
                group.create_task(self.anchor.run())

    def anchor_informer(self, root: AnchorSpec) -> Informer:
        """What tells of changes of the anchor."""
        informer = Informer(
            self.client,
            CONFIG_MAPS,
            root.key.namespace,
            fields=f"metadata.name={root.key.name}",
            metadata_only=True,
            trim=without_managed_fields,
        )
        informer.on_change(self.notice_anchor)
        return informer

    def notice_anchor(self, change: StoreChange) -> None:
        """Handle a change of the anchor; repairs would name an owner that is no more."""
        root, owner = self.target.root, self.target.owners.owner
        assert root is not None
        if change.key != root.key:
            # A server that does not keep to what it was asked for sends others, perhaps many.
            return
        is_same = (
            change.new is not None
            and owner is not None
            and change.new["metadata"].get("uid") == owner["metadata"]["uid"]
            and is_intact(root, change.new)
        )
        if not is_same and not self.is_leaving:
            self.repairs.guard(())
            self.uprooted()

    def reroot(self, target: Target) -> None:
        """Give everything to a new anchor, from the next apply on."""
        if target.owners.uids != self.target.owners.uids:
            self.engine.reown(target.owners)
            self.is_rooted = False
        self.target = target

    def recheck(self) -> None:
        """Compare everything with the target itself the next time."""
        self.engine.recheck()
        self.rendering = None

    def notice(self, noticed: MemberChange) -> None:
        """A change after which the custom resource may be ready, or no longer ready."""
        if noticed.ref.group_kind in JUDGED:
            self.changed()

    async def apply(self, objects: Sequence[Object]) -> ChangeSet:
        """Make all objects so, and keep them so from now on."""
        await self.root()
        desired = await self.engine.desired(objects)
        resources = sorted({each.resource for each in desired.objects.values()})
        self.namespaces = single_namespaces(desired.objects.values())
        await self.watch_existing(resources)
        self.repairs.leave = frozenset(ref for ref in desired.refs if is_shared(ref))
        if self.repairs.objects is not objects:
            self.repairs.guard(objects)
        changes = await self.engine.apply(objects)
        # Kinds of CRDs that were just applied can only now be watched.
        self.resources = resources
        if changes.wrote and not self.watch.follows(resources):
            self.is_unseen = True
        self.applied.set()
        return changes

    async def losses(self, objects: Sequence[Object]) -> list[Ref]:
        """The workloads that a prune would delete, if those are most of them."""
        await self.root()
        return await self.engine.losses(objects)

    def watch_all(self) -> None:
        """Watch everything that was applied, from now on."""
        self.watch.follow(self.resources, self.namespaces)

    async def watch_late(self) -> None:
        """Watch everything a while after it was applied, should it not be ready before.

        Watches do not tell of what was deleted before they began, so a pass looks for that.
        """
        while True:
            await self.applied.wait()
            self.applied.clear()
            await asyncio.sleep(LATE_SECONDS)
            self.watch_all()
            if self.is_unseen:
                self.is_unseen = False
                await self.see(map(GroupKind.of, self.resources))
                self.changed()

    async def watch_existing(self, resources: Sequence[Resource]) -> None:
        """Watch what is there before it is applied, where that spares us from asking.

        Of an installation that is there, watches tell everything to a new process. One that is new
        is not there to be watched, so that its watches would only be in the way: all but those of
        workloads begin when it is ready, or takes long.
        """
        judged = [each for each in resources if GroupKind.of(each) in JUDGED]
        self.watch.follow(judged, self.namespaces)
        parent = self.engine.parents.parent
        if self.resources or parent is None or not parent.is_marked:
            return
        built_in = [each for each in resources if not is_custom(each)]
        self.watch.follow(built_in, self.namespaces)
        await self.see(map(GroupKind.of, built_in))

    async def see(self, kinds: Iterable[GroupKind]) -> None:
        """Give watches a moment to tell what is there of some kinds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AHEAD_SECONDS):
                await self.watch.synced(kinds)

    async def root(self) -> None:
        """See to it that the parent is there, and says where our objects are."""
        if self.is_rooted:
            return
        if self.target.root is None:
            await self.root_locally()
        else:
            await self.root_in_anchor()
        self.is_rooted = True

    async def root_locally(self) -> None:
        """Make the parent go with the owner, so that not even it is left at the end."""
        key, owner = self.target.parent, self.target.owners.owner
        assert owner is not None
        parent: Object = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": {"app.kubernetes.io/managed-by": "knfleet"},
                "ownerReferences": [owner_reference(owner)],
            },
        }
        self.engine.parents.remember(await self.client.apply(CONFIG_MAPS, parent))

    async def root_in_anchor(self) -> None:
        """Write the inventory on an anchor that has none: from memory, else from the objects."""
        parents, known = self.engine.parents, self.target.just_read
        before = parents.parent
        parent = await parents.read() if known is None else parents.remember(known)
        if parent.is_marked or parent.is_foreign:
            return
        if before is not None:
            await parents.change(lambda inventory: inventory.merged(before.inventory))
        elif self.target.was_used:
            await self.engine.rediscover()

    async def summary(self, objects: Sequence[Object]) -> SetReadiness | None:
        """How the workloads and Jobs are; None while that is not known."""
        wanted = [ref for ref in self.engine.prepared_objects(objects) if ref.group_kind in JUDGED]
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                for kind in {ref.group_kind for ref in wanted}:
                    await self.watch.informers[kind].synced.wait()
        except TimeoutError:
            return None
        return self.judged(wanted, objects)

    def judged(self, wanted: Iterable[Ref], objects: Sequence[Object]) -> SetReadiness:
        """How some workloads and Jobs are, as far as watches have reported."""
        judged = self.watch.summary(ref for ref in wanted if not self.is_done(ref, objects))
        return SetReadiness(tuple(map(self.as_of_now, judged.healths)))

    def is_ready(self) -> bool:
        """Whether everything that was applied works, as far as watches have reported.

        A first installation works without its Jobs.
        """
        objects = () if self.rendering is None else self.rendering.objects
        wanted = [ref for ref in self.engine.prepared_objects(objects) if ref.group_kind in JUDGED]
        if not all(self.watch.informer(kind) for kind in {ref.group_kind for ref in wanted}):
            return False
        summary = self.judged(wanted, objects)
        return bool(wanted) and (workloads(summary) if self.is_first else summary).is_ready

    @property
    def is_first(self) -> bool:
        """Whether Jobs were never seen to be complete here, so that nothing was there before."""
        return not self.engine.context().done_jobs

    def as_of_now(self, health: ObjectReadiness) -> ObjectReadiness:
        """How an object is; one whose newest state was not seen yet is not ready."""
        record = self.engine.applied_objects.records.get(health.ref)
        known = self.watch.informers[health.ref.group_kind].get(health.ref.key)
        if record is None or known is None:
            return health
        if not is_newer(record.version, known["metadata"].get("resourceVersion", "")):
            return health
        return ObjectReadiness(
            health.ref, ReadinessState.PROGRESSING, "its change is not seen yet", 0, health.wanted
        )

    def is_done(self, ref: Ref, objects: Sequence[Object]) -> bool:
        """Whether a Job was complete before the cluster removed it."""
        if ref.group_kind != JOB or self.watch.informers[JOB].get(ref.key) is not None:
            return False
        digest = self.engine.prepared_objects(objects)[ref].digest
        return self.engine.context().done_jobs.get(str(ref.key)) == digest

    def generation_of(self, need: Need) -> int | None:
        """The generation of a live object; 0 when it is not there, None when unknown."""
        resource, key = need
        informer = self.watch.informer(GroupKind.of(resource))
        if informer is None:
            return None
        known = informer.get(key)
        return 0 if known is None else known["metadata"].get("generation", 0)

    async def prune(self, objects: Sequence[Object]) -> ChangeSet:
        """Delete what an earlier release or setting has left."""
        wanted = self.engine.prepared_objects(objects)
        pruner, parent = self.engine.pruner, self.engine.parents.parent
        if pruner.pruned is None and parent is not None and wanted:
            refs = frozenset(wanted)
            self.watch_all()
            await self.see({ref.group_kind for ref in refs})
            if is_narrow(parent, refs, self.target.parent) and self.is_all_there_is(refs):
                pruner.pruned = refs
        return await self.engine.prune(objects)

    def is_all_there_is(self, refs: frozenset[Ref]) -> bool:
        """Whether watches tell that the set has these members, and no other."""
        for kind in {ref.group_kind for ref in refs}:
            informer = self.watch.informer(kind)
            if informer is None or not all(Ref.of(each) in refs for each in informer.items()):
                return False
        return True


def is_narrow(parent: Parent, refs: frozenset[Ref], home: Key) -> bool:
    """Whether the parent has room for these members, all done, and for no others."""
    jobs = {str(ref.key) for ref in refs if ref.group_kind == JOB}
    done = parent.inventory.done_jobs
    needed = Inventory(namespaces=frozenset([home.namespace]), done_jobs=done).widened(refs)
    return parent.is_marked and jobs <= done.keys() and parent.inventory == needed


def single_namespaces(desired: Iterable[Desired]) -> dict[Resource, str]:
    """The namespace of each kind whose objects are all in the same one."""
    found: dict[Resource, set[str]] = {}
    for each in desired:
        found.setdefault(each.resource, set()).add(each.ref.namespace)
    return {resource: next(iter(some)) for resource, some in found.items() if len(some) == 1}


def is_custom(resource: Resource) -> bool:
    """Whether a kind is defined by a CRD."""
    return GroupKind.of(resource).is_custom


def is_shared(ref: Ref) -> bool:
    """Whether Knative's own controllers change an object, so that rendering reads it first."""
    return ref.group_kind == DEPLOYMENT and ref.name == PING_SOURCE
