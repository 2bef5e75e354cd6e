"""Brings the objects of a work to where it wants them, rank by rank, and notes what fails.

Each object is for itself: what is as it was left costs nothing, what fails is tried again alone.
"""

import asyncio
import time

from msgspec.structs import replace

from knfleet.agent.work.act.applied_works import AppliedWorks
from knfleet.agent.work.act.executor_check import RETRY_SECONDS, ExecutorCheck, NotAllowed
from knfleet.agent.work.act.object_writer import ObjectWriter, WriteTarget
from knfleet.agent.work.desired.ignore_fields import IgnoreFieldError
from knfleet.agent.work.desired.manifests import defined_kinds
from knfleet.agent.work.desired.owners import owner_reference
from knfleet.agent.work.observed.objects import Record, SpokeObjects
from knfleet.agent.work.plan import Entry, Located, is_drift, is_settled
from knfleet.agent.work.prerequisites import Prerequisites
from knfleet.agent.work.work_pass import NEVER, WorkPass
from knfleet.agent.work.work_planner import WorkPlanner
from knfleet.agent.work.work_status import IGNORE_FIELD_ERROR
from knfleet.apply.observe.drift import Drift, DriftConflicts
from knfleet.apply.refs import Ref
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound
from knfleet.runtime.logs import log

WRITES = 8
"""Objects of one work that are written at once."""
SLOW_SECONDS = 300.0
"""The longest wait before a manifest that the cluster refuses is tried again."""
LOOK_SECONDS = 60.0
"""The same for all others."""
KIND_SECONDS = 10.0
"""How long a kind is waited for whose CRD is in the same work."""


class WorkApplier:
    """Applies the entries of works."""

    def __init__(
        self,
        client: Client,
        applied: AppliedWorks,
        planner: WorkPlanner,
        writer: ObjectWriter,
        executors: ExecutorCheck,
        prerequisites: Prerequisites,
    ) -> None:
        self.client = client
        self.applied = applied
        self.planner = planner
        self.writer = writer
        self.executors = executors
        self.prerequisites = prerequisites
        self.conflicts = DriftConflicts(time.monotonic)

    @property
    def objects(self) -> SpokeObjects:
        """What the cluster has."""
        return self.planner.objects

    async def apply(self, context: WorkPass) -> None:
        """Bring all objects of a work to where it wants them."""
        state = context.state
        for rank in sorted({each.rank for each in state.entries}):
            await self.resolve(context, rank)
            slots = asyncio.Semaphore(WRITES)
            group = [each for each in state.entries if each.rank == rank]
            await asyncio.gather(*(self.bring(context, each, slots) for each in group))

    async def resolve(self, context: WorkPass, rank: int) -> None:
        """Wait for kinds whose CRDs this work has just applied."""
        missing = [
            each
            for each in context.state.entries
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
        if expected:
            await self.served(expected)
            await self.planner.plan(context.work, context.state)
            await self.applied.ensure(context.name, context.state.kinds())

    async def served(self, kinds: set[tuple[str, str]]) -> None:
        """Wait until the cluster serves some kinds, or for long enough."""
        missing, pause = set(kinds), 0.05
        ends = asyncio.get_running_loop().time() + KIND_SECONDS
        while missing and asyncio.get_running_loop().time() < ends:
            for api_version, kind in sorted(missing):
                self.client.discovery.ask_again(api_version)
                try:
                    await self.client.discovery.resource(api_version, kind)
                except KubeError:
                    continue
                missing.discard((api_version, kind))
            if missing:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)

    async def bring(self, context: WorkPass, entry: Entry, slots: asyncio.Semaphore) -> None:
        """Bring one object to where the work wants it."""
        if entry.flaw:
            entry.problem = entry.flaw
            return
        if (located := entry.located) is None:
            entry.tried_at = context.now
            entry.fail(entry.problem, context.now + backoff(entry.failures, LOOK_SECONDS))
            self.prerequisites.wait(context.name, "kind", entry.meta.group)
            return
        if entry.retry_at > context.now:
            return
        async with slots:
            await self.observe(entry, located)
            record = self.objects.get(located.resource, located.key)
            if is_settled(entry, record, context.name, context.owner):
                entry.settle(record)
            else:
                await self.write(context, entry, located)
            await self.refresh(context, entry, located)

    async def observe(self, entry: Entry, located: Located) -> None:
        """Have it known what is there of an entry's object."""
        if entry.expectation.named:
            error = await self.objects.named_ready(located.resource, located.key)
        else:
            error = await self.objects.ready(located.resource)
        entry.unknown = str(error) if error is not None else ""

    async def refresh(self, context: WorkPass, entry: Entry, located: Located) -> None:
        """Read an object anew whose rules changed since it was last seen."""
        record = self.objects.get(located.resource, located.key)
        if record is None or not (entry.options.feedback or entry.options.conditions):
            return
        view = record.views.get(context.name)
        if view is None or view.expectation != entry.expectation:
            error = await self.objects.read(located.resource, located.key)
            entry.unknown = str(error) if error is not None else ""

    async def write(self, context: WorkPass, entry: Entry, located: Located) -> None:
        """Write one object, unless something speaks against it, and note what became of it."""
        entry.tried_at = context.now
        record = self.objects.get(located.resource, located.key)
        if problem := self.obstacle(context, located, record):
            entry.fail(problem, context.now + SLOW_SECONDS)
            return
        drifted = is_drift(entry, record)
        ref = Ref(located.ref.group, entry.meta.kind, located.key.namespace, located.key.name)
        if drifted and (wait := self.conflicts.wait_seconds(ref)) > 0:
            entry.retry_at = context.now + wait
            return
        before = record.version if record is not None else ""
        try:
            record = await self.attempt(context, entry, located, record)
        except IgnoreFieldError as error:
            entry.fail(str(error), NEVER, IGNORE_FIELD_ERROR)
        except NotAllowed as error:
            entry.fail(str(error), context.now + RETRY_SECONDS)
        except KubeError as error:
            self.failed(context, entry, located, error)
        else:
            entry.settle(record)
            entry.unknown = ""
            if drifted and record.version != before:
                self.repaired(context, located, ref)
            if not record.has_label:
                entry.expectation = replace(entry.expectation, named=True)
                self.objects.expect(context.name, located.resource, located.key, entry.expectation)

    def obstacle(self, context: WorkPass, located: Located, record: Record | None) -> str:
        """Why an object cannot be written now, whatever the cluster says."""
        if record is not None and record.state.deleting:
            held = f" by the finalizers {', '.join(record.finalizers)}" if record.finalizers else ""
            return f"{located.ref} is being deleted, held up{held}; applied when it is gone"
        if rival := self.planner.claims.rival(context.name, located.ref):
            return f"{located.ref} is in the older ManifestWork {rival} with other content"
        return ""

    async def attempt(
        self, context: WorkPass, entry: Entry, located: Located, record: Record | None
    ) -> Record:
        """Write one object in the name of the work's executor."""
        body = context.bodies.body(entry.meta.ordinal)
        executor = context.state.executor
        await self.executors.check(executor, located.resource, body, owned=entry.owned)
        target = WriteTarget(
            located.resource,
            located.key,
            body,
            entry.options.strategy,
            owner_reference(context.applied.metadata.name, context.owner),
            entry.owned,
            self.applied.uids() | {context.owner},
        )
        return await self.writer.write(target, record)

    def repaired(self, context: WorkPass, located: Located, ref: Ref) -> None:
        """Note that an object was changed by another client, and is as it was again."""
        log.info("object repaired", work=context.name, object=str(located.ref))
        if self.conflicts.note(Drift(ref, "changed")) is not None:
            log.warning(
                "object changed again as often as it is repaired",
                work=context.name,
                object=str(located.ref),
                retry_seconds=round(self.conflicts.wait_seconds(ref)),
            )

    def failed(self, context: WorkPass, entry: Entry, located: Located, error: KubeError) -> None:
        """Note that an object could not be written, and when to try again."""
        text = str(error)
        refused = isinstance(error, Conflict | Invalid | BadRequest)
        limit = SLOW_SECONDS if refused else LOOK_SECONDS
        if isinstance(error, NotFound | Forbidden) and "namespace" in text:
            self.prerequisites.wait(context.name, "namespace", located.key.namespace)
        elif isinstance(error, NotFound):
            self.client.discovery.forget_version(located.resource.api_version)
            context.state.generation = -1
            self.prerequisites.wait(context.name, "kind", located.resource.group)
        first = 5.0 if refused or isinstance(error, Forbidden) else 0.5
        entry.fail(text, context.now + backoff(entry.failures, limit, first))
        log.info("manifest not applied", work=context.name, object=str(located.ref), error=text)


def backoff(failures: int, limit: float, first: float = 1.0) -> float:
    """How long a manifest waits after so many failures."""
    return min(first * 2.0 ** min(failures, 20), limit)
