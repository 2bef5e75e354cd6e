"""Makes the cluster match the works of its hub: apply, remove, report.

    plan (which objects, how)  →  finalizer and AppliedManifestWork  →  write, rank by rank
        →  remove what left the work  →  list what there is  →  status on the hub

Nothing is done on a schedule: works, AppliedManifestWorks, objects, and what manifests wait for,
are watched. What is as it was left costs no request. A manifest that fails is tried again by
itself, and holds up neither other manifests nor other works.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from knfleet.agent.work.act.applied_works import AppliedWorks, WorkOwner
from knfleet.agent.work.act.executor_check import ExecutorCheck
from knfleet.agent.work.act.jq import JqRunner
from knfleet.agent.work.act.object_writer import ObjectWriter
from knfleet.agent.work.act.removal import Leftover, ObjectRemover
from knfleet.agent.work.applier import WorkApplier
from knfleet.agent.work.desired.manifest_options import is_orphaned
from knfleet.agent.work.desired.manifests import ObjectRef
from knfleet.agent.work.eviction import eviction
from knfleet.agent.work.observed.objects import SpokeObjects
from knfleet.agent.work.plan import Entry, is_protected
from knfleet.agent.work.prerequisites import Prerequisites
from knfleet.agent.work.source import Work, WorkSource
from knfleet.agent.work.work_pass import Bodies, WorkPass, WorkState
from knfleet.agent.work.work_planner import WorkPlanner
from knfleet.agent.work.work_settings import DEFAULTS, WorkSettings
from knfleet.agent.work.work_status import (
    Outcome,
    deleting_condition,
    flawed_status,
    is_complete,
    same_conditions,
    work_status,
)
from knfleet.api.conditions import put
from knfleet.api.meta import HUB, ClusterName, Key, Request
from knfleet.api.schema import DecodeError
from knfleet.api.work.appliedmanifestwork import AppliedManifestWork, AppliedResource
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.runtime.controller import Controller, ControllerOptions, Result
from knfleet.runtime.logs import log
from knfleet.runtime.queue import Backoff, QueueOptions, QueueSlots

AT_ONCE = 16
"""Works that are handled at once."""
FEEDBACK_SECONDS = 1.0
"""Reports of values that change all the time are so far apart."""
HELD_SECONDS = 1.0
"""A deletion that takes longer says what holds it up."""
BUSY_SECONDS = 0.1
"""How long to wait for a pass over a work that is gone."""
HELD_LOOK_SECONDS = 5.0
"""How often a deletion is looked at that is held up: the kind of the last object may be gone."""
EVICTION_SECONDS = 3600.0
"""An eviction in the future is looked at so often."""
SPOKE = ClusterName("spoke")


class WorkController:
    """Handles all works of a cluster."""

    def __init__(
        self,
        source: WorkSource,
        spoke: Client,
        agent: str,
        settings: WorkSettings = DEFAULTS,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.source = source
        self.settings = settings
        self.now = now
        self.applied = AppliedWorks(spoke, WorkOwner(source.hub, agent))
        self.objects = SpokeObjects(
            spoke, feedback=settings.feedback, poll_seconds=settings.poll_seconds
        )
        self.planner = WorkPlanner(spoke, self.objects)
        self.remover = ObjectRemover(spoke, self.objects)
        self.prerequisites = Prerequisites(spoke, self.poke)
        self.applier = WorkApplier(
            spoke,
            self.applied,
            self.planner,
            ObjectWriter(spoke, self.objects, JqRunner()),
            ExecutorCheck(spoke, caches=settings.executor_caches),
            self.prerequisites,
        )
        self.states: dict[str, WorkState] = {}
        self.dropped: set[str] = set()
        """AppliedManifestWorks whose works were deleted before our finalizer could hold them."""
        queue = QueueOptions(slots=QueueSlots(per_cluster=AT_ONCE), backoff=Backoff(0.1, 30))
        options = ControllerOptions(queue=queue)
        self.works = Controller("works", self.reconcile, options)
        self.evictions = Controller("evictions", self.evict, options)
        source.on_change(self.work_changed)
        source.on_drop(self.work_dropped)
        self.applied.informer.on_change(self.applied_changed)
        self.objects.on_change(self.poke)

    async def run(self) -> None:
        """Handle works until cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in (self.source, self.applied.informer, self.objects, self.prerequisites):
                group.create_task(each.run())
            await self.start()
            group.create_task(self.works.run())
            group.create_task(self.evictions.run())

    async def start(self) -> None:
        """Know all works and their plans before the first watch of a kind begins."""
        await self.objects.started.wait()
        await self.source.synced.wait()
        await self.applied.informer.synced.wait()
        for request in list(self.works.queue.ready):
            work = self.source.get(request.key.name)
            if work is not None and not work.deleting:
                await self.planner.plan(work, self.state_of(work))
        for manifest in self.applied.informer.items():
            self.evictions.queue.add(Request(SPOKE, Key.of(manifest)))

    def work_changed(self, name: str) -> None:
        """A work was created, changed or deleted."""
        self.works.queue.add(Request(HUB, Key("", name)))
        applied = Key("", self.applied.name_of(name))
        if self.source.get(name) is not None:
            self.dropped.discard(applied.name)
        if self.source.get(name) is None or self.is_evicted(applied):
            self.evictions.queue.add(Request(SPOKE, applied))

    def work_dropped(self, name: str) -> None:
        """A work was deleted at once: what it made goes as with any deletion, and not later."""
        applied = self.applied.name_of(name)
        self.dropped.add(applied)
        self.evictions.queue.add(Request(SPOKE, Key("", applied)))

    def is_evicted(self, key: Key) -> bool:
        """Whether an AppliedManifestWork was marked because it had no work."""
        applied = self.applied.get(key.name)
        return applied is not None and bool(applied.status.eviction_start_time)

    def applied_changed(self, change: StoreChange) -> None:
        """An AppliedManifestWork changed, by us or others."""
        found = change.new or change.old
        if found is None or not self.applied.informer.synced.is_set():
            return
        work = str(found.get("spec", {}).get("manifestWorkName", ""))
        gone = change.new is None or "deletionTimestamp" in change.new["metadata"]
        if found["metadata"]["name"] == self.applied.name_of(work) and gone:
            self.works.queue.add(Request(HUB, Key("", work)))
        if change.new is not None and (gone or change.old is None):
            self.evictions.queue.add(Request(SPOKE, change.key))

    def poke(self, names: Iterable[str]) -> None:
        """Something changed that concerns works."""
        for name in names:
            if (state := self.states.get(name)) is not None:
                state.poked = True
            self.works.queue.add(Request(HUB, Key("", name)))

    def state_of(self, work: Work) -> WorkState:
        """What is remembered of a work; nothing of an earlier one of its name."""
        state = self.states.get(work.name)
        if state is None or state.uid != work.metadata.uid:
            state = self.states[work.name] = WorkState(work.metadata.uid)
        return state

    async def reconcile(self, request: Request) -> Result:
        """Handle one work."""
        work = self.source.get(request.key.name)
        if work is None:
            self.forget(request.key.name)
            return Result.never()
        if work.deleting:
            return await self.finalize(work)
        return await self.apply(work)

    def forget(self, name: str) -> None:
        """A work is gone."""
        self.states.pop(name, None)
        self.objects.forget(name)
        self.prerequisites.stop(name)
        self.poke(self.planner.forget(name))

    async def apply(self, work: Work) -> Result:
        """Have the cluster as the work wants it, and report."""
        state = self.state_of(work)
        self.poke(await self.planner.plan(work, state))
        if not work.is_held:
            await self.source.add_finalizer(work)
        applied = await self.applied.ensure(work.name, state.kinds())
        if applied.metadata.deleting:
            left = await self.release(work.name, applied, lambda _: False)
            return Result.after(HELD_LOOK_SECONDS) if left else Result.now()
        now = asyncio.get_running_loop().time()
        context = WorkPass(work, state, applied, Bodies(work), now)
        if state.poked:
            state.poked = False
            context.poke()
        await self.applier.apply(context)
        await self.prune(context)
        await self.applied.write_resources(applied, self.resources(context))
        return await self.report(context)

    async def prune(self, context: WorkPass) -> None:
        """Remove objects that were in the work and are no longer."""
        state, applied = context.state, context.applied
        wanted = {each.ref for each in state.entries if each.ref is not None}
        listed = {ObjectRef.of(each) for each in applied.status.applied_resources}
        owned = {each.ref for each in self.remover.owned(applied)}
        if state.swept == context.owner and listed | owned <= wanted:
            state.leftovers = []
            return
        candidates = [
            each
            for each in await self.remover.candidates(applied)
            if each.ref not in wanted and not is_protected(each.ref, state.entries)
        ]
        option = context.bodies.spec().delete_option if candidates else None
        state.leftovers = await self.remover.remove(
            context.name, candidates, applied, lambda ref: is_orphaned(ref, option)
        )
        state.swept = context.owner

    def resources(self, context: WorkPass) -> list[AppliedResource]:
        """What there is of a work: applied, being deleted, or not known now."""
        listed = {ObjectRef.of(each): each for each in context.applied.status.applied_resources}
        found: dict[ObjectRef, AppliedResource] = {}
        for entry in context.state.entries:
            located = entry.located
            if located is None or entry.strategy == "ReadOnly":
                continue
            record = self.objects.get(located.resource, located.key)
            if record is None:
                if entry.unknown and located.ref in listed:
                    found[located.ref] = listed[located.ref]
            elif context.owner in record.state.works or not entry.problem:
                found[located.ref] = located.applied(record.state.uid)
        for ref, each in listed.items():
            if is_protected(ref, context.state.entries):
                found.setdefault(ref, each)
        for each in context.state.leftovers:
            found.setdefault(ObjectRef.of(each.applied), each.applied)
        return list(found.values())

    def outcome(self, work: str, entry: Entry) -> Outcome:
        """What became of one manifest."""
        located = entry.located
        record = self.objects.get(located.resource, located.key) if located is not None else None
        view = record.views.get(work) if record is not None else None
        return Outcome(
            entry.meta,
            entry.problem,
            entry.reason,
            True if record is not None else None if entry.unknown else False,
            entry.unknown,
            view.feedback if view is not None else None,
            view.rules if view is not None else (),
            entry.completed,
        )

    async def report(self, context: WorkPass) -> Result:
        """Write the status of the work, unless it is written already."""
        work = self.source.get(context.name) or context.work
        state, old, generation = context.state, work.status(), context.work.generation
        if state.flaw:
            status = flawed_status(state.flaw, old, generation, self.now())
        else:
            outcomes = [self.outcome(work.name, each) for each in state.entries]
            status = work_status(outcomes, old, generation, self.now())
        if not any(each.problem for each in state.entries):
            self.prerequisites.stop(work.name)
        for entry, each in zip(state.entries, status.resource_status.manifests, strict=False):
            entry.completed = each.resource_meta == entry.meta and is_complete(each)
        result = context.result(state.entries)
        if status == old:
            return result
        now = asyncio.get_running_loop().time()
        wait = state.reported_at + FEEDBACK_SECONDS - now
        if wait > 0 and same_conditions(status, old):
            return result.within(wait)
        await self.source.write_status(work, status)
        state.reported_at = now
        return result

    async def finalize(self, work: Work) -> Result:
        """Remove what a deleted work made, then let it go."""
        if not work.is_held:
            self.forget(work.name)
            return Result.never()
        applied = self.applied.get(self.applied.name_of(work.name))
        held: list[Leftover] = []
        if applied is not None:
            try:
                option = work.spec().delete_option
            except DecodeError:
                option = None
            held = await self.release(work.name, applied, lambda ref: is_orphaned(ref, option))
        if held:
            return await self.report_held(work, held)
        await self.source.remove_finalizer(work)
        self.forget(work.name)
        return Result.never()

    async def report_held(self, work: Work, held: list[Leftover]) -> Result:
        """Report what holds up a deletion, once it takes longer."""
        state, now = self.state_of(work), asyncio.get_running_loop().time()
        state.held_since = state.held_since or now
        if (wait := state.held_since + HELD_SECONDS - now) > 0:
            return Result.after(wait)
        old = work.status()
        new = deleting_condition([str(each) for each in held], work.generation)
        status = replace(old, conditions=put(old.conditions, new, self.now()))
        if status != old:
            await self.source.write_status(work, status)
        return Result.after(HELD_LOOK_SECONDS)

    async def release(
        self, work: str, applied: AppliedManifestWork, orphaned: Callable[[ObjectRef], bool]
    ) -> list[Leftover]:
        """Remove all objects of an AppliedManifestWork, and then itself; what is still there."""
        self.poke(self.planner.forget(work))
        candidates = await self.remover.candidates(applied)
        stay = [each for each in candidates if orphaned(each.ref)]
        go = [each for each in candidates if not orphaned(each.ref)]
        held = await self.remover.remove(work, stay, applied, lambda _: True)
        if not held:
            _, held = await asyncio.gather(
                self.applied.delete(applied),
                self.remover.remove(work, go, applied, lambda _: False),
            )
        if not held:
            await self.applied.release(applied.metadata.name, applied.metadata.uid)
        return held

    async def evict(self, request: Request) -> Result:
        """Handle an AppliedManifestWork without a work of this hub."""
        name = request.key.name
        applied = self.applied.get(name)
        if applied is None or not self.applied.is_ours(applied):
            return Result.never()
        if Request(HUB, Key("", applied.spec.manifest_work_name)) in self.works.queue.running:
            return Result.after(BUSY_SECONDS)
        is_current = applied.spec.hub_hash == self.source.hub
        wanted = is_current and self.source.get(applied.spec.manifest_work_name) is not None
        if applied.metadata.deleting:
            return Result.never() if wanted else await self.clear(applied)
        decision = eviction(
            wanted=wanted,
            started=applied.status.eviction_start_time,
            grace=timedelta(0) if name in self.dropped else self.settings.eviction_grace,
            now=self.now(),
        )
        if decision.action in ("mark", "unmark"):
            await self.applied.write_eviction(applied, decision.moment)
        if decision.action == "evict":
            log.info("objects of a work that is gone are removed", applied=applied.metadata.name)
            await self.applied.delete(applied)
            return Result.now()
        if decision.after_seconds is None:
            return Result.never()
        return Result.after(min(decision.after_seconds, EVICTION_SECONDS))

    async def clear(self, applied: AppliedManifestWork) -> Result:
        """Remove everything of an AppliedManifestWork that no work wants."""
        held = await self.release(applied.metadata.name, applied, lambda _: False)
        if held:
            return Result.after(HELD_LOOK_SECONDS)
        self.dropped.discard(applied.metadata.name)
        self.objects.forget(applied.metadata.name)
        return Result.never()
