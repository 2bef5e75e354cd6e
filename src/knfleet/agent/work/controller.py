"""Makes the cluster match the works of its hub: apply, remove, report.

    plan (which objects, how)  →  finalizer and AppliedManifestWork  →  write, rank by rank
        →  remove what left the work  →  list what there is  →  status on the hub

Nothing is done on a schedule: works, AppliedManifestWorks, objects, and what manifests wait for,
are watched. What is as it was left costs no request. A manifest that fails is tried again by
itself, and holds up neither other manifests nor other works.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from knfleet.agent.work.applied_works import AppliedWorks, WorkOwner
from knfleet.agent.work.desired.ignore_fields import IgnoreFieldError
from knfleet.agent.work.desired.manifests import Manifest, ObjectRef, defined_kinds, read_manifests
from knfleet.agent.work.desired.options import is_orphaned
from knfleet.agent.work.desired.owners import owner_reference
from knfleet.agent.work.eviction import eviction
from knfleet.agent.work.executor_check import RETRY_SECONDS, ExecutorCheck, NotAllowed
from knfleet.agent.work.jq import JqRunner
from knfleet.agent.work.observed.objects import SpokeObjects
from knfleet.agent.work.plan import Entry, is_drift, is_protected, is_settled, make_entries
from knfleet.agent.work.prerequisites import Prerequisites
from knfleet.agent.work.removal import Leftover, ObjectRemover
from knfleet.agent.work.source import Work, WorkSource
from knfleet.agent.work.status import (
    IGNORE_FIELD_ERROR,
    Outcome,
    condition,
    deleting_condition,
    is_complete,
    previous,
    work_status,
)
from knfleet.agent.work.work_settings import DEFAULTS, WorkSettings
from knfleet.agent.work.writer import ObjectWriter, Target
from knfleet.api.conditions import put
from knfleet.api.meta import HUB, ClusterName, Key, Object, Request, Resource
from knfleet.api.schema import DecodeError
from knfleet.api.work.appliedmanifestwork import AppliedManifestWork, AppliedResource
from knfleet.api.work.manifestwork import (
    APPLIED,
    COMPLETE,
    Executor,
    ManifestWorkSpec,
    ManifestWorkStatus,
)
from knfleet.apply.observe.drift import Drift, DriftConflicts
from knfleet.apply.refs import Ref
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
)
from knfleet.runtime.controller import Controller, ControllerOptions, Result
from knfleet.runtime.logs import log
from knfleet.runtime.queue import Backoff, QueueOptions, QueueSlots

AT_ONCE = 16
"""Works that are handled at once."""
WRITES = 8
"""Objects of one work that are written at once."""
POKE_SECONDS = 1.0
"""A manifest that failed is tried again by an event at most so often."""
SLOW_SECONDS = 300.0
"""The longest wait before a manifest that failed is tried again."""
FEEDBACK_SECONDS = 1.0
"""Reports of values that change all the time are so far apart."""
HELD_SECONDS = 1.0
"""A deletion that takes longer says what holds it up."""
KIND_SECONDS = 10.0
"""How long a kind is waited for whose CRD is in the same work."""
LOOK_SECONDS = 60.0
NEVER = float("inf")
SPOKE = ClusterName("spoke")


class WorkState(Struct):
    """What is remembered of one work."""

    uid: str
    generation: int = -1
    entries: list[Entry] = []
    flaw: str = ""
    """Why the work cannot be read."""
    executor: Executor | None = None
    poked: bool = False
    """Whether something changed that manifests may have waited for."""
    swept: str = ""
    """UID of the AppliedManifestWork whose leftovers were looked for in the cluster."""
    leftovers: list[Leftover] = []
    reported_at: float = 0.0
    held_since: float | None = None


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
        self.spoke = spoke
        self.settings = settings
        self.now = now
        self.applied = AppliedWorks(spoke, WorkOwner(source.hub, agent))
        self.objects = SpokeObjects(
            spoke, feedback=settings.feedback, poll_seconds=settings.poll_seconds
        )
        self.writer = ObjectWriter(spoke, self.objects, JqRunner())
        self.remover = ObjectRemover(spoke, self.objects)
        self.executors = ExecutorCheck(spoke, caches=settings.executor_caches)
        self.prerequisites = Prerequisites(spoke, self.poke)
        self.conflicts = DriftConflicts(time.monotonic)
        self.states: dict[str, WorkState] = {}
        self.claims: dict[ObjectRef, dict[str, tuple[bool, str, str, str]]] = {}
        """Who wants an object by Update, and the precedence and digest of each."""
        queue = QueueOptions(slots=QueueSlots(per_cluster=AT_ONCE), backoff=Backoff(0.1, 30))
        options = ControllerOptions(queue=queue)
        self.works = Controller("works", self.reconcile, options)
        self.evictions = Controller("evictions", self.evict, options)
        source.on_change(self.work_changed)
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
        while not (self.source.synced and self.applied.synced):
            await asyncio.sleep(0.05)
        for request in list(self.works.queue.ready):
            work = self.source.get(request.key.name)
            if work is not None and not work.deleting:
                try:
                    await self.plan(work, self.state_of(work))
                except KubeError as error:
                    log.warning("work not planned yet", work=work.name, error=str(error))
                    break
        for manifest in self.applied.informer.items():
            self.evictions.queue.add(Request(SPOKE, Key.of(manifest)))

    def work_changed(self, name: str) -> None:
        """A work was created, changed or deleted."""
        self.works.queue.add(Request(HUB, Key("", name)))
        if self.source.get(name) is None:
            applied = Key("", self.applied.name_of(name))
            self.evictions.queue.add(Request(SPOKE, applied))

    def applied_changed(self, change: StoreChange) -> None:
        """An AppliedManifestWork changed, by us or others."""
        found = change.new or change.old
        if found is None or not self.applied.synced:
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
            state = self.states[work.name] = WorkState(work.metadata.uid, entries=[])
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
        self.claim(name, ())

    # Planning

    async def plan(self, work: Work, state: WorkState) -> None:
        """Make the plan of a work, unless there is one for this generation with all kinds."""
        current = state.generation == work.generation
        if current and all(each.ref is not None or each.flaw for each in state.entries):
            return
        try:
            spec = work.spec()
        except DecodeError as error:
            state.generation, state.entries, state.flaw = work.generation, [], error.problem
            return
        state.flaw, state.executor = "", spec.executor
        manifests = read_manifests(spec.workload.manifests)
        kinds = await self.kinds(manifests, again=not current or state.poked)
        state.entries, _ = make_entries(spec, kinds, state.entries)
        state.generation = work.generation
        reported = work.status().resource_status.manifests
        for each in state.entries:
            has_rule = any(rule.condition == COMPLETE for rule in each.options.conditions)
            each.completed = has_rule and is_complete(previous(each.meta, reported))
            if each.resource is not None and not each.flaw:
                self.objects.expect(work.name, each.resource, each.key, each.expectation)
        kept = {each.path for each in state.entries} | {path_of(each) for each in state.leftovers}
        self.objects.forget(work.name, kept)
        self.claim(
            work.name,
            [
                (
                    each.ref,
                    (not each.owned, work.metadata.creation_timestamp, work.name),
                    each.digest,
                )
                for each in state.entries
                if each.ref is not None and each.strategy == "Update"
            ],
        )

    async def kinds(
        self, manifests: Iterable[Manifest], *, again: bool
    ) -> dict[tuple[str, str], Resource | str]:
        """How the kinds of manifests are addressed, or why that is not known."""
        wanted = {(each.api_version, each.kind) for each in manifests if not each.problem}
        found: dict[tuple[str, str], Resource | str] = {}
        for api_version, kind in sorted(wanted):
            if again:
                self.spoke.discovery.ask_again(api_version)
            try:
                found[api_version, kind] = await self.spoke.discovery.resource(api_version, kind)
            except NotFound:
                found[api_version, kind] = (
                    f"the server doesn't have a resource type {kind!r} in {api_version};"
                    " applied when it is there"
                )
            except KubeError as error:
                found[api_version, kind] = f"the kind {kind} cannot be looked up: {error}"
        return found

    def claim(
        self, work: str, wanted: Iterable[tuple[ObjectRef, tuple[bool, str, str], str]]
    ) -> None:
        """Note which objects a work wants to itself; works that waited for one look again."""
        new = {ref: (*precedence, digest) for ref, precedence, digest in wanted}
        touched: set[str] = set()
        for ref in [ref for ref, works in self.claims.items() if work in works]:
            if self.claims[ref][work] != new.get(ref):
                del self.claims[ref][work]
                touched |= self.claims[ref].keys()
                if not self.claims[ref]:
                    del self.claims[ref]
        for ref, claim in new.items():
            self.claims.setdefault(ref, {})[work] = claim
        self.poke(touched)

    def rival(self, work: str, entry: Entry) -> str:
        """The work that an object belongs to first, if it wants another content."""
        works = self.claims.get(entry.ref, {}) if entry.ref is not None else {}
        own = works.get(work)
        if own is None or len(works) == 1:
            return ""
        first = min(works, key=lambda name: works[name][:3])
        return first if works[first][3] != own[3] and first != work else ""

    # Applying

    async def apply(self, work: Work) -> Result:
        """Have the cluster as the work wants it, and report."""
        state = self.state_of(work)
        await self.plan(work, state)
        kinds = {
            f"{each.resource.api_version}/{each.resource.kind}"
            for each in state.entries
            if each.resource is not None and each.strategy != "ReadOnly"
        }
        applied, _ = await asyncio.gather(self.applied.ensure(work.name, kinds), self.hold(work))
        if applied.metadata.deleting:
            return await self.renew(work, applied)
        poked, state.poked = state.poked, False
        now = asyncio.get_running_loop().time()
        bodies = Bodies(work)
        context = Pass(work, state, applied, bodies, now, poked)
        for rank in sorted({each.rank for each in state.entries}):
            await self.resolve(context, rank)
            group = [each for each in state.entries if each.rank == rank]
            slots = asyncio.Semaphore(WRITES)
            await asyncio.gather(*(self.bring(context, each, slots) for each in group))
        await self.prune(context)
        await self.list_resources(context)
        return await self.report(context)

    async def hold(self, work: Work) -> None:
        """Have our finalizer on the work."""
        if not work.is_held:
            await self.source.add_finalizer(work)

    async def renew(self, work: Work, applied: AppliedManifestWork) -> Result:
        """Remove everything of an AppliedManifestWork that was deleted; then begin anew."""
        left = await self.release(work.name, applied, lambda _: False)
        return Result.after(LOOK_SECONDS) if left else Result.now()

    async def resolve(self, context: "Pass", rank: int) -> None:
        """Wait for kinds whose CRDs this work has just applied."""
        state = context.state
        missing = [
            each
            for each in state.entries
            if each.rank == rank and not each.flaw and each.ref is None
        ]
        if not missing:
            return
        defined = defined_kinds(context.bodies.manifests())
        expected = {
            (f"{each.meta.group}/{each.meta.version}", each.meta.kind)
            for each in missing
            if (each.meta.group, each.meta.kind) in defined
        }
        ends = asyncio.get_running_loop().time() + KIND_SECONDS
        pause = 0.05
        while expected and asyncio.get_running_loop().time() < ends:
            for api_version, kind in sorted(expected):
                self.spoke.discovery.ask_again(api_version)
                try:
                    await self.spoke.discovery.resource(api_version, kind)
                except KubeError:
                    continue
                expected.discard((api_version, kind))
            if expected:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
        if any((each.meta.group, each.meta.kind) in defined for each in missing):
            await self.plan(context.work, state)
            kinds = {
                f"{each.resource.api_version}/{each.resource.kind}"
                for each in state.entries
                if each.resource is not None and each.strategy != "ReadOnly"
            }
            await self.applied.ensure(context.work.name, kinds)

    async def bring(self, context: "Pass", entry: Entry, slots: asyncio.Semaphore) -> None:
        """Have one object as the work wants it."""
        if entry.flaw or entry.resource is None:
            entry.problem = entry.flaw or entry.problem
            if not entry.flaw:
                entry.retry_at = context.now + backoff(entry.failures, LOOK_SECONDS)
                entry.failures += 1
                self.prerequisites.wait(context.work.name, "kind", entry.meta.group)
            return
        if entry.problem and not context.is_due(entry):
            return
        async with slots:
            await self.observe(context, entry)
            record = self.objects.get(entry.resource, entry.key)
            if is_settled(entry, record, context.work.name, context.owner):
                if record is not None and entry.strategy in ("Update", "ServerSideApply"):
                    entry.succeed(record)
                entry.problem = ""
                await self.refresh(context, entry)
                return
            await self.write(context, entry)

    async def observe(self, context: "Pass", entry: Entry) -> None:
        """Have it known what is there of an entry's object."""
        assert entry.resource is not None
        if entry.expectation.named:
            error = await self.objects.named_ready(entry.resource, entry.key)
        else:
            error = await self.objects.ready(entry.resource)
        entry.unknown = str(error) if error is not None else ""
        if error is None:
            entry.exists = self.objects.get(entry.resource, entry.key) is not None

    async def refresh(self, context: "Pass", entry: Entry) -> None:
        """Read an object anew whose rules changed since it was last seen."""
        assert entry.resource is not None
        record = self.objects.get(entry.resource, entry.key)
        if record is None or not (entry.options.feedback or entry.options.conditions):
            return
        view = record.views.get(context.work.name)
        if view is None or view.expectation != entry.expectation:
            error = await self.objects.read(entry.resource, entry.key)
            entry.unknown = str(error) if error is not None else ""
        entry.exists = self.objects.get(entry.resource, entry.key) is not None

    async def write(self, context: "Pass", entry: Entry) -> None:
        """Write one object, and note what became of it."""
        assert entry.resource is not None
        assert entry.ref is not None
        record = self.objects.get(entry.resource, entry.key)
        entry.tried_at = context.now
        if record is not None and record.state.deleting:
            held = f" by the finalizers {', '.join(record.finalizers)}" if record.finalizers else ""
            problem = f"{entry.ref} is being deleted, held up{held}; applied when it is gone"
            entry.fail(problem, context.now + SLOW_SECONDS)
            return
        if rival := self.rival(context.work.name, entry):
            problem = f"{entry.ref} is in the older ManifestWork {rival} with other content"
            entry.fail(problem, context.now + SLOW_SECONDS)
            return
        drifted = is_drift(entry, record)
        ref = Ref(entry.ref.group, entry.meta.kind, entry.key.namespace, entry.key.name)
        if drifted and (wait := self.conflicts.wait_seconds(ref)) > 0:
            entry.retry_at = context.now + wait
            context.soonest = min(context.soonest, wait)
            return
        try:
            body = context.bodies.body(entry.meta.ordinal)
            await self.executors.check(
                context.state.executor, entry.resource, body, owned=entry.owned
            )
            target = Target(
                entry.resource,
                entry.key,
                body,
                entry.options.strategy,
                owner_reference(context.applied.metadata.name, context.owner),
                entry.owned,
                self.applied.uids() | {context.owner},
            )
            record = await self.writer.write(target, record)
        except IgnoreFieldError as error:
            entry.fail(str(error), NEVER, IGNORE_FIELD_ERROR)
        except NotAllowed as error:
            entry.fail(str(error), context.now + RETRY_SECONDS)
        except KubeError as error:
            self.failed(context, entry, error)
        else:
            if drifted:
                conflict = self.conflicts.note(Drift(ref, "changed"))
                log.info("repaired", work=context.work.name, object=str(entry.ref))
                if conflict is not None:
                    log.warning("drift repaired again and again", object=str(entry.ref))
            entry.succeed(record)
            entry.exists, entry.unknown = True, ""
            if not record.has_label:
                entry.expectation = replace(entry.expectation, named=True)
                self.objects.expect(context.work.name, entry.resource, entry.key, entry.expectation)
            await self.refresh(context, entry)

    def failed(self, context: "Pass", entry: Entry, error: KubeError) -> None:
        """Note that an object could not be written, and when to try again."""
        text = str(error)
        limit = SLOW_SECONDS if isinstance(error, Conflict | Invalid | BadRequest) else LOOK_SECONDS
        if isinstance(error, NotFound | Forbidden) and "namespace" in text:
            self.prerequisites.wait(context.work.name, "namespace", entry.key.namespace)
            limit = LOOK_SECONDS
        elif isinstance(error, NotFound) and entry.resource is not None:
            self.spoke.discovery.ask_again(entry.resource.api_version)
            context.state.generation = -1
            self.prerequisites.wait(context.work.name, "kind", entry.resource.group)
        first = 5.0 if isinstance(error, Conflict | Invalid | BadRequest | Forbidden) else 0.5
        entry.fail(text, context.now + backoff(entry.failures, limit, first))
        log.info("manifest not applied", work=context.work.name, object=str(entry.ref), error=text)

    async def prune(self, context: "Pass") -> None:
        """Remove objects that were in the work and are no longer."""
        state, applied = context.state, context.applied
        wanted = {each.ref for each in state.entries if each.ref is not None}
        listed = {
            ObjectRef(each.group, each.resource, each.namespace, each.name)
            for each in applied.status.applied_resources
        }
        owned = {
            ObjectRef(kind.group, kind.plural, key.namespace, key.name)
            for kind, key in self.objects.of_owner(context.owner)
        }
        if state.swept == context.owner and listed | owned <= wanted:
            state.leftovers = []
            return
        candidates = [
            each
            for each in await self.remover.candidates(applied)
            if each.ref not in wanted and not is_protected(each.ref, state.entries)
        ]
        option = context.bodies.spec().delete_option
        state.leftovers = await self.remover.remove(
            context.work.name, candidates, applied, lambda ref: is_orphaned(ref, option)
        )
        state.swept = context.owner

    async def list_resources(self, context: "Pass") -> None:
        """List on the AppliedManifestWork what there is of the work."""
        listed = {
            ObjectRef(each.group, each.resource, each.namespace, each.name): each
            for each in context.applied.status.applied_resources
        }
        found: dict[ObjectRef, AppliedResource] = {}
        for entry in context.state.entries:
            if entry.resource is None or entry.ref is None or entry.strategy == "ReadOnly":
                continue
            record = self.objects.get(entry.resource, entry.key)
            if record is not None and (context.owner in record.state.works or not entry.problem):
                found[entry.ref] = AppliedResource(
                    group=entry.resource.group,
                    version=entry.resource.version,
                    resource=entry.resource.plural,
                    namespace=entry.key.namespace,
                    name=entry.key.name,
                    uid=record.state.uid,
                )
            elif record is None and entry.unknown and entry.ref in listed:
                found[entry.ref] = listed[entry.ref]
        for ref, each in listed.items():
            if is_protected(ref, context.state.entries):
                found.setdefault(ref, each)
        for each in context.state.leftovers:
            one = each.applied
            found.setdefault(ObjectRef(one.group, one.resource, one.namespace, one.name), one)
        await self.applied.write_resources(context.applied, list(found.values()))

    # Reporting

    def outcome(self, work: str, entry: Entry) -> Outcome:
        """What became of one manifest."""
        record = None
        if entry.resource is not None:
            record = self.objects.get(entry.resource, entry.key)
        view = record.views.get(work) if record is not None else None
        exists = True if record is not None else None if entry.unknown else entry.exists
        if record is None and exists:
            exists = False
        return Outcome(
            entry.meta,
            entry.problem,
            entry.reason,
            False if exists is None and not entry.unknown else exists,
            entry.unknown,
            view.feedback if view is not None else None,
            view.rules if view is not None else (),
            entry.completed,
        )

    async def report(self, context: "Pass") -> Result:
        """Write the status of the work, unless it is written already."""
        work = self.source.get(context.work.name) or context.work
        state, old = context.state, work.status()
        outcomes = [self.outcome(work.name, each) for each in state.entries]
        status = work_status(outcomes, old, context.work.generation, self.now())
        if state.flaw:
            status = flawed(state.flaw, old, context.work.generation, self.now())
        result = context.result(state.entries)
        if not any(each.problem for each in state.entries):
            self.prerequisites.stop(work.name)
        for entry, each in zip(state.entries, status.resource_status.manifests, strict=False):
            if is_complete(each) and each.resource_meta == entry.meta:
                entry.completed = True
        if status == old:
            return result
        wait = state.reported_at + FEEDBACK_SECONDS - asyncio.get_running_loop().time()
        if wait > 0 and same_conditions(status, old):
            return result.within(wait)
        await self.source.write_status(work, status)
        state.reported_at = asyncio.get_running_loop().time()
        return result

    # Removing

    async def finalize(self, work: Work) -> Result:
        """Remove what a deleted work made, then let it go."""
        if not work.is_held:
            self.forget(work.name)
            return Result.never()
        state = self.state_of(work)
        applied = self.applied.get(self.applied.name_of(work.name))
        held: list[Leftover] = []
        if applied is not None:
            try:
                option = work.spec().delete_option
            except DecodeError:
                option = None
            held = await self.release(work.name, applied, lambda ref: is_orphaned(ref, option))
        if not held:
            await self.source.remove_finalizer(work)
            self.forget(work.name)
            return Result.never()
        return await self.report_held(work, state, held)

    async def report_held(self, work: Work, state: WorkState, held: list[Leftover]) -> Result:
        """Report what holds up a deletion, once it takes longer."""
        now = asyncio.get_running_loop().time()
        state.held_since = state.held_since or now
        if (wait := state.held_since + HELD_SECONDS - now) > 0:
            return Result.after(wait)
        old = work.status()
        new = deleting_condition([str(each) for each in held], work.generation)
        status = replace(old, conditions=put(old.conditions, new, self.now()))
        if status != old:
            await self.source.write_status(work, status)
        return Result.after(LOOK_SECONDS)

    async def release(
        self, work: str, applied: AppliedManifestWork, orphaned: Callable[[ObjectRef], bool]
    ) -> list[Leftover]:
        """Remove all objects of an AppliedManifestWork, and then itself; what is still there."""
        self.claim(work, ())
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
        applied = self.applied.get(request.key.name)
        if applied is None or not self.source.synced or not self.applied.is_ours(applied):
            return Result.never()
        is_current = applied.spec.hub_hash == self.source.hub
        wanted = is_current and self.source.get(applied.spec.manifest_work_name) is not None
        if applied.metadata.deleting:
            if wanted:
                return Result.never()
            name = f"evicted/{applied.metadata.name}"
            held = await self.release(name, applied, lambda _: False)
            self.objects.forget(name)
            return Result.after(5.0) if held else Result.never()
        decision = eviction(
            wanted=wanted,
            started=applied.status.eviction_start_time,
            grace=self.settings.eviction_grace,
            now=self.now(),
        )
        if decision.action in ("mark", "unmark"):
            await self.applied.write_eviction(applied, decision.moment)
        if decision.action == "evict":
            log.info("evicting", applied=applied.metadata.name)
            await self.applied.delete(applied)
            return Result.now()
        if decision.after_seconds is None:
            return Result.never()
        return Result.after(min(decision.after_seconds, 3600.0))


class Bodies:
    """The manifests of a work, unpacked when the first one is needed."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.unpacked: ManifestWorkSpec | None = None
        self.read: list[Manifest] = []

    def spec(self) -> ManifestWorkSpec:
        """What the work wants; nothing when it cannot be read."""
        if self.unpacked is None:
            try:
                self.unpacked = self.work.spec()
            except DecodeError:
                self.unpacked = ManifestWorkSpec()
            self.read = read_manifests(self.unpacked.workload.manifests)
        return self.unpacked

    def manifests(self) -> list[Manifest]:
        """All manifests."""
        self.spec()
        return self.read

    def body(self, ordinal: int) -> Object:
        """The manifest at an index."""
        return self.manifests()[ordinal].body


class Pass(Struct):
    """One look at a work."""

    work: Work
    state: WorkState
    applied: AppliedManifestWork
    bodies: Bodies
    now: float
    poked: bool
    soonest: float = NEVER

    @property
    def owner(self) -> str:
        """UID of the AppliedManifestWork."""
        return self.applied.metadata.uid

    def is_due(self, entry: Entry) -> bool:
        """Whether a manifest that failed is tried again now."""
        if self.poked:
            return self.now >= min(entry.retry_at, entry.tried_at + POKE_SECONDS)
        return self.now >= entry.retry_at

    def result(self, entries: Iterable[Entry]) -> Result:
        """When to look again."""
        waits = [each.retry_at - self.now for each in entries if each.problem and not each.flaw]
        if self.poked:
            waits += [
                max(each.tried_at + POKE_SECONDS - self.now, 0.05)
                for each in entries
                if each.problem and not each.flaw and each.tried_at < self.now
            ]
        soonest = min([*waits, self.soonest], default=NEVER)
        return Result.never() if soonest == NEVER else Result.after(max(soonest, 0.05))


def backoff(failures: int, limit: float, first: float = 1.0) -> float:
    """How long a manifest waits after so many failures."""
    return min(first * 2.0 ** min(failures, 20), limit)


def path_of(leftover: Leftover) -> str:
    """The path of an object that is still there."""
    each = leftover.applied
    resource = Resource(each.group, each.version, "", each.resource)
    return resource.path(each.namespace, each.name)


def same_conditions(one: ManifestWorkStatus, other: ManifestWorkStatus) -> bool:
    """Whether two statuses of a work differ in values of objects at most."""
    return [(each.type, each.status, each.observed_generation) for each in one.conditions] == [
        (each.type, each.status, each.observed_generation) for each in other.conditions
    ]


def flawed(
    problem: str, old: ManifestWorkStatus, generation: int, now: datetime
) -> ManifestWorkStatus:
    """The status of a work that cannot be read."""
    text = f"Failed to apply manifest work: {problem}"
    new = condition(APPLIED, "False", "AppliedManifestWorkFailed", text, generation)
    return replace(old, conditions=put(old.conditions, new, now))
