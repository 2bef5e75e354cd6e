"""Makes a cluster match a set of objects: the one place in `apply` that acts.

    look (sight) → decide (plan) → widen the parent → write, wave by wave → change set
    list members → decide (prune) → delete, step by step → narrow the parent → change set

Everything it decides is decided by pure functions. It can be killed at any moment and called again:
the parent's list covers all members at all times, and each call looks at what there really is.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from knfleet.api.core import BUILT_IN, CONFIG_MAPS
from knfleet.api.meta import Object, Resource
from knfleet.apply import well_known
from knfleet.apply.act.delete import other_set
from knfleet.apply.act.executor import Executor
from knfleet.apply.act.gates import Gates
from knfleet.apply.act.missing_rights import missing_rights
from knfleet.apply.act.parents import Parents
from knfleet.apply.act.pruner import Pruner
from knfleet.apply.act.rights_review import review
from knfleet.apply.act.writer import Deadlines, Writer
from knfleet.apply.applyset import ApplySet
from knfleet.apply.change_set import (
    Action,
    ChangeSet,
    FailureKind,
    MissingRight,
    ObjectFailure,
    ObjectPending,
    ObjectResult,
    Outcome,
)
from knfleet.apply.desired import (
    NO_OWNERS,
    Desired,
    DesiredSet,
    Kinds,
    OwnerReferences,
    defined_kinds,
    kind_of,
    prepare,
)
from knfleet.apply.observe.live_state import AppliedObjects, LiveState, LiveStateReader
from knfleet.apply.observe.watches import SetWatch
from knfleet.apply.plan.steps import ApplyPlan, ApplyStep, StepAction, StepContext, make_plan
from knfleet.apply.refs import Ref
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, KubeError, NotFound

DEADLINES = Deadlines()
MANY = 50
"""Comparing more objects than this takes longer than others should wait."""
FRESH_SECONDS = 600.0
"""How long an object of a kind that is not watched is believed to be as we left it."""


class Engine:
    """Applies, repairs, prunes and uninstalls one set in one cluster."""

    def __init__(
        self,
        client: Client,
        applyset: ApplySet,
        *,
        owners: OwnerReferences = NO_OWNERS,
        watch: SetWatch | None = None,
        deadlines: Deadlines = DEADLINES,
        fresh_seconds: float = FRESH_SECONDS,
        checks_rights: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.applyset = applyset
        self.owners = owners
        self.deadlines = deadlines
        self.applied_objects = AppliedObjects(now, fresh_seconds)
        self.live_state = LiveStateReader(client, applyset, self.applied_objects, watch)
        self.parents = Parents(client, applyset)
        self.writer = Writer(client, applyset, self.applied_objects, deadlines)
        self.gates = Gates(client, applyset, self.live_state, deadlines)
        self.executor = Executor(self.parents, self.writer, self.gates)
        self.pruner = Pruner(client, self.parents, self.live_state, deadlines)
        self.checks_rights = checks_rights
        """Whether nothing is written while a right is missing that the whole set needs."""
        self.allowed: DesiredSet | None = None
        """What was found to be allowed."""
        self.prepared: tuple[Sequence[Object], DesiredSet] | None = None
        self.known_kinds: Kinds = {}
        self.doubts = False
        """Whether the next whole look must not rely on what is remembered or watched."""
        self.lock = asyncio.Lock()
        """Held by who acts: a repair must not bring back what an uninstall deletes."""

    async def desired(self, objects: Sequence[Object]) -> DesiredSet:
        """The objects ready to be applied; the same list is not made ready twice."""
        known = self.prepared[1] if self.prepared and self.prepared[0] is objects else None
        if known is not None and not known.has_unknown_kinds:
            return known
        kinds = await self.kinds(objects)
        if known is not None and kinds == self.known_kinds:
            return known
        self.known_kinds = kinds
        # Hashing a release takes longer than others should wait.
        desired = await asyncio.to_thread(prepare, objects, kinds, self.applyset, self.owners)
        self.prepared = (objects, desired)
        return desired

    async def kinds(self, objects: Iterable[Object]) -> Kinds:
        """How each kind is addressed; kinds that the cluster does not serve are left out."""
        found = BUILT_IN | defined_kinds(objects)
        wanted = sorted({kind_of(manifest) for manifest in objects} - found.keys())
        answers = await asyncio.gather(*(self.kind(*each) for each in wanted))
        return found | {
            each: resource
            for each, resource in zip(wanted, answers, strict=True)
            if resource is not None
        }

    async def kind(self, api_version: str, kind: str) -> Resource | None:
        """How one kind is addressed."""
        if not api_version or not kind:
            return None
        try:
            return await self.client.discovery.resource(api_version, kind)
        except NotFound:
            return None

    def reown(self, owners: OwnerReferences) -> None:
        """Give objects other owners, from the next apply on."""
        self.owners = owners
        self.prepared = None

    def recheck(self) -> None:
        """Believe nothing: the next apply and prune look at everything in the cluster itself."""
        self.applied_objects.records.clear()
        self.pruner.forget()
        self.parents.parent = None
        self.doubts = True

    async def rediscover(self) -> None:
        """Write on the parent again where members are, after it was lost: their labels tell."""
        async with self.lock:
            members, _ = await self.pruner.sweep()
            refs = [member.ref for member in members]
            await self.parents.change(lambda inventory: inventory.widened(refs))

    async def plan(self, objects: Sequence[Object]) -> ApplyPlan:
        """What `apply` would do; nothing is written."""
        desired = await self.desired(objects)
        _, plan = await self.observe(desired.objects.values())
        return plan

    def prepared_objects(self, objects: Sequence[Object]) -> Mapping[Ref, Desired]:
        """The objects ready to be applied, if they have been made ready before."""
        if self.prepared is None or self.prepared[0] is not objects:
            return {}
        return self.prepared[1].objects

    def context(self, adoptable: frozenset[str] = frozenset()) -> StepContext:
        """What decisions depend on."""
        parent = self.parents.parent
        if parent is None:
            return StepContext(self.applyset.id, adoptable)
        return StepContext(self.applyset.id, adoptable, parent.inventory.done_jobs)

    async def observe(self, wanted: Collection[Desired]) -> tuple[LiveState, ApplyPlan]:
        """What is there of some objects, and what must be done."""
        if self.parents.parent is None:
            await self.parents.read()
        live = await self.live_state.read(wanted, afresh=self.doubts)
        hidden = {failure.ref for failure in live.failures}
        part = DesiredSet({each.ref: each for each in wanted if each.ref not in hidden})
        context = self.context(await self.orphaned_sets(live))
        if len(live.objects) <= MANY:
            return live, make_plan(part, live.objects, context, trusted=live.trusted)
        return live, await asyncio.to_thread(
            make_plan, part, live.objects, context, trusted=live.trusted
        )

    async def orphaned_sets(self, live: LiveState) -> frozenset[str]:
        """Sets of ours, found on objects, whose parent is gone."""
        ours = {each.part_of for each in live.objects.values() if each.part_of and each.own}
        gone: set[str] = set()
        for set_id in ours - {self.applyset.id}:
            try:
                parents = await self.client.list(
                    CONFIG_MAPS, labels=f"{well_known.SET_ID}={set_id}", metadata_only=True
                )
            except Forbidden:
                continue
            if not parents.items:
                gone.add(set_id)
        return frozenset(gone)

    async def apply(
        self, objects: Sequence[Object], only: Collection[Ref] | None = None
    ) -> ChangeSet:
        """Make all objects so, or some of them; errors of single objects are in the change set.

        Raises `KubeError` when the cluster cannot be looked at, or the parent cannot be written.
        """
        async with self.lock:
            return await self.apply_now(objects, only)

    async def apply_now(self, objects: Sequence[Object], only: Collection[Ref] | None) -> ChangeSet:
        """The same, when it is our turn; a part is only applied of what was applied as a whole."""
        if only is not None and not self.prepared_objects(objects):
            return ChangeSet()
        desired = await self.desired(objects)
        wanted = [each for ref, each in desired.objects.items() if only is None or ref in only]
        if only is not None:
            self.applied_objects.forget(only)
        live, plan = await self.observe(wanted)
        self.doubts = self.doubts and only is not None
        outcomes: list[Outcome] = [
            *(each for each in desired.rejected if only is None or each.ref in only),
            *live.failures,
            *map(self.record_unchanged, plan.kept),
            *map(stopped, plan.stopped),
        ]
        if only is None and (lacking := await self.lacking_rights(plan, desired)):
            return ChangeSet.of([*outcomes, *lacking])
        if plan.is_empty:
            outcomes += await self.gates.established(())
        else:
            self.pruner.forget()
            outcomes += await self.executor.execute(plan, desired)
        return ChangeSet.of(await self.with_rights(outcomes, desired))

    async def lacking_rights(self, plan: ApplyPlan, desired: DesiredSet) -> list[ObjectFailure]:
        """What must not be begun for want of rights; asked once for what is to be written."""
        if not self.checks_rights or plan.is_empty or self.allowed is desired:
            return []
        wanted = desired.objects.values()
        found = await review(self.client, wanted, plan.steps, self.applyset.key.namespace)
        self.allowed = None if found else desired
        return found

    def record_unchanged(self, step: ApplyStep) -> ObjectResult:
        """Remember that an object is as it should be."""
        if step.observed is not None:
            self.applied_objects.note(
                step.desired.ref,
                step.desired.digest,
                step.observed.version,
                is_member=step.observed.part_of == self.applyset.id,
            )
        return ObjectResult(step.desired.ref, Action.UNCHANGED)

    async def with_rights(self, outcomes: list[Outcome], desired: DesiredSet) -> list[Outcome]:
        """Failures for want of rights, completed by all rights that are missing there."""
        forbidden = {
            each.ref: desired.objects[each.ref]
            for each in outcomes
            if isinstance(each, ObjectFailure)
            and each.why == FailureKind.FORBIDDEN
            and each.ref in desired.objects
        }
        if not forbidden:
            return outcomes
        places = {ref: (each.resource, ref.namespace) for ref, each in forbidden.items()}
        try:
            missing = await missing_rights(self.client, places.values())
        except KubeError:
            return outcomes
        return [
            with_denials(each, missing[places[each.ref]])
            if isinstance(each, ObjectFailure) and each.ref in places
            else each
            for each in outcomes
        ]

    async def prune(self, objects: Sequence[Object]) -> ChangeSet:
        """Delete members that are no longer wanted, then narrow the parent.

        To be called when what is wanted works. When nothing was applied since the last time, it
        asks the cluster nothing.
        """
        async with self.lock:
            return await self.pruner.prune(await self.desired(objects), self.owners)

    async def losses(self, objects: Sequence[Object]) -> list[Ref]:
        """The workloads that a prune would delete, if those are most of the set's."""
        return await self.pruner.losses(await self.desired(objects))

    async def uninstall(self) -> ChangeSet:
        """Delete all members; CRDs stay, and Namespaces that were there before."""
        async with self.lock:
            self.applied_objects.records.clear()
            self.prepared = None
            return await self.pruner.uninstall(self.owners)


def stopped(step: ApplyStep) -> Outcome:
    """The outcome for an object that cannot be written now."""
    observed = step.observed
    assert observed is not None
    if step.verdict == StepAction.REFUSE:
        return ObjectFailure(step.desired.ref, FailureKind.OTHER_SET, other_set(observed))
    held = f", and held by the finalizers {', '.join(observed.finalizers)}"
    return ObjectPending(
        step.desired.ref, "it is being deleted" + (held if observed.finalizers else "")
    )


def with_denials(failure: ObjectFailure, denials: Iterable[MissingRight]) -> ObjectFailure:
    """A failure that names more rights that are missing."""
    return replace(failure, denials=tuple(sorted({*failure.denials, *denials})))
