"""Carries out a plan: adds its kinds to the parent, then writes wave after wave.

    Namespaces ┬→ CRDs ────────────┬→ theirs are served → custom ┬→ webhooks answer → gated
               ├→ Services ────────│─────────────────────────────┤
               └→ rules → material ┴→ work ──────────────────────┘

CRDs take an API server longer than everything else, so rules and material are written meanwhile.
So are Services: an API server finds their addresses one after the other, each by a request to
itself, so the last of ten waits for nine. Pods look for kinds when they run, long after they were
asked for, so only custom resources wait until their CRDs are served; all CRDs are, at the end.
"""

import asyncio
from collections.abc import Iterable, Sequence

from knfleet.apply.act.gates import Definitions, Gates, crd_refs, new_definitions, waiting_for
from knfleet.apply.act.parents import Parents
from knfleet.apply.act.refusals import reason_of
from knfleet.apply.act.writer import Writer
from knfleet.apply.change_set import (
    Action,
    FailureKind,
    ObjectFailure,
    ObjectPending,
    ObjectResult,
    Outcome,
)
from knfleet.apply.desired import DesiredSet, crd_of
from knfleet.apply.plan.steps import ApplyPlan, ApplyStep, StepAction
from knfleet.apply.plan.waves import Wave
from knfleet.apply.refs import CRD, Ref
from knfleet.kube.errors import ApiError


class WriteResults:
    """What became of objects so far, and which are tried again at the end."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.late: list[ApplyStep] = []
        """Objects that a webhook held up."""
        self.defined = asyncio.Event()
        """Whether CRDs are written."""


class Executor:
    """Writes the objects of one set in their order."""

    def __init__(self, parents: Parents, writer: Writer, gates: Gates) -> None:
        self.parents = parents
        self.applyset = parents.applyset
        self.writer = writer
        self.gates = gates
        self.deadlines = writer.deadlines

    async def execute(self, plan: ApplyPlan, desired: DesiredSet) -> list[Outcome]:
        """Write everything that a plan says, after adding its kinds to the parent."""
        parent = self.parents.parent
        if parent is not None and parent.is_foreign:
            message = f"another tool keeps its set there: {parent.tooling}"
            return [ObjectFailure(self.applyset.ref, FailureKind.OTHER_SET, message)]
        refs = [step.desired.ref for step in plan.steps]
        outcomes: list[Outcome] = []
        try:
            await self.parents.change(lambda inventory: inventory.widened(refs))
        except ApiError as error:
            # The parent is a ConfigMap as well, so a stale webhook may hold it up, too.
            if reason_of(error) != FailureKind.WEBHOOK:
                raise
            outcomes += await self.renew_stale(desired)
            await self.parents.change(lambda inventory: inventory.widened(refs))
        renewed = {each.ref for each in outcomes}
        written = await self.write_waves(plan, desired)
        return [*outcomes, *(each for each in written if each.ref not in renewed)]

    async def write_waves(self, plan: ApplyPlan, desired: DesiredSet) -> list[Outcome]:
        """Write wave after wave; what a webhook holds up is tried again at the end."""
        foundation = plan.waves.get(Wave.FOUNDATION, ())
        definitions = [each for each in foundation if each.desired.ref.group_kind == CRD]
        places = [each for each in foundation if each.desired.ref.group_kind != CRD]
        written = WriteResults()
        await self.write_wave(places, desired, written)
        async with self.gates.watching(definitions) as seen:
            awaited, *_ = await asyncio.gather(
                self.write_custom(definitions, plan, desired, written, seen),
                self.write_wave(plan.waves.get(Wave.ADDRESSES, ()), desired, written),
                self.write_built_in(plan, desired, written),
            )
            await asyncio.gather(
                self.wait_established(awaited, seen, written),
                self.write_last(plan, desired, written),
            )
        return written.outcomes

    async def write_custom(
        self,
        definitions: Sequence[ApplyStep],
        plan: ApplyPlan,
        desired: DesiredSet,
        written: WriteResults,
        seen: Definitions | None,
    ) -> Sequence[Ref] | None:
        """Write CRDs, and objects when their own are served; all CRDs that are still awaited.

        An API server takes CRDs up one after the other, so those with objects are written first.
        """
        custom = work_of(plan, custom=True)
        needed = {crd_of(each.desired) for each in (*custom, *plan.waves.get(Wave.GATED, ()))}
        try:
            first = sorted(definitions, key=lambda step: step.desired.ref not in needed)
            await self.write_wave(first, desired, written)
        finally:
            written.defined.set()
        made = new_definitions(definitions, written.outcomes)
        own = needed.intersection(made)
        is_early = seen is not None and await seen.are_ready(own)
        if not is_early:
            await self.wait_established(made, seen, written)
        await self.write_wave(custom, desired, written)
        return made if is_early else None

    async def wait_established(
        self, made: Sequence[Ref] | None, seen: Definitions | None, written: WriteResults
    ) -> None:
        """Wait until CRDs are served, unless that was done, or the cluster is away."""
        if made is not None and not is_away(written.outcomes):
            written.outcomes += await self.gates.established(made, seen)

    async def write_built_in(
        self, plan: ApplyPlan, desired: DesiredSet, written: WriteResults
    ) -> None:
        """Write what pods need to start, wave after wave, and then what starts them."""
        for wave in (Wave.RULES, Wave.MATERIAL):
            await self.write_wave(plan.waves.get(wave, ()), desired, written)
        await written.defined.wait()
        await self.write_wave(work_of(plan, custom=False), desired, written)

    async def write_wave(
        self, steps: Sequence[ApplyStep], desired: DesiredSet, written: WriteResults
    ) -> None:
        """Write some objects; those that a webhook holds up are left for later."""
        done = await self.gates.blamed(await self.write(steps, written.outcomes), desired)
        blocked = {each.ref for each in done if is_held_up(each)}
        written.late += [step for step in steps if step.desired.ref in blocked]
        written.outcomes += [each for each in done if each.ref not in blocked]

    async def write_last(self, plan: ApplyPlan, desired: DesiredSet, written: WriteResults) -> None:
        """Write what webhooks look at, and what they held up."""
        outcomes, late = written.outcomes, written.late
        if late and not is_away(outcomes):
            late = await self.past_stale(late, desired, outcomes)
        gated = [*plan.waves.get(Wave.GATED, ()), *late]
        if is_away(outcomes):
            outcomes += await self.write(gated, outcomes)
        elif gated:
            outcomes += await self.write_gated(gated, plan, outcomes)

    async def write(self, steps: Sequence[ApplyStep], before: Sequence[Outcome]) -> list[Outcome]:
        """Write objects at the same time, unless the cluster is away or their CRD is not there."""
        if is_away(before):
            return [
                ObjectPending(each.desired.ref, "the cluster stopped answering") for each in steps
            ]
        broken = crd_refs(each for each in before if isinstance(each, ObjectFailure))
        ready = [each for each in steps if crd_of(each.desired) not in broken]
        waiting: list[Outcome] = [
            ObjectPending(each.desired.ref, f"it waits for {crd_of(each.desired)}")
            for each in steps
            if crd_of(each.desired) in broken
        ]
        is_new = [each.desired.ref.group_kind.is_custom for each in ready]
        written = await asyncio.gather(
            *(
                self.writer.write(each, is_new_kind=new)
                for each, new in zip(ready, is_new, strict=True)
            )
        )
        return [*written, *waiting]

    async def past_stale(
        self, late: list[ApplyStep], desired: DesiredSet, outcomes: list[Outcome]
    ) -> list[ApplyStep]:
        """Make webhook configurations anew without a ready backend; what is still held up then."""
        renewed = await self.renew_stale(desired)
        if not renewed:
            return late
        refs = {each.ref for each in renewed}
        outcomes[:] = [each for each in outcomes if each.ref not in refs] + renewed
        done = await self.write(late, ())
        blocked = {each.ref for each in done if is_held_up(each)}
        outcomes += [each for each in done if each.ref not in blocked]
        return [step for step in late if step.desired.ref in blocked]

    async def renew_stale(self, desired: DesiredSet) -> list[Outcome]:
        """Make webhook configurations of the set anew without a ready backend."""
        cleared = await self.gates.clear_stale(desired.objects.values())
        anew = await self.write([ApplyStep(each, StepAction.CREATE) for each in cleared], ())
        return [
            ObjectResult(each.ref, Action.RECREATED) if isinstance(each, ObjectResult) else each
            for each in anew
        ]

    async def write_gated(
        self, steps: Sequence[ApplyStep], plan: ApplyPlan, before: Sequence[Outcome]
    ) -> list[Outcome]:
        """Write objects when the webhooks answer; those that must still wait when time is up."""
        ends = asyncio.get_running_loop().time() + self.deadlines.webhook_seconds
        services = sorted(plan.webhooks.services)
        silent = await self.gates.silent(services, self.deadlines.webhook_seconds)
        if silent:
            return [ObjectPending(each.desired.ref, waiting_for(silent)) for each in steps]
        outcomes: list[Outcome] = []
        rest = list(steps)
        delay = 0.1
        while True:
            done = await self.write(rest, before)
            blocked = {each.ref for each in done if is_held_up(each)}
            outcomes += [each for each in done if each.ref not in blocked]
            if not blocked:
                return outcomes
            if asyncio.get_running_loop().time() + delay > ends:
                return [*outcomes, *(each for each in done if each.ref in blocked)]
            rest = [step for step in rest if step.desired.ref in blocked]
            await asyncio.sleep(delay)
            delay = min(2.0, delay * 2)


def work_of(plan: ApplyPlan, *, custom: bool) -> list[ApplyStep]:
    """The work of a plan that is of kinds which CRDs define, or of others."""
    work = plan.waves.get(Wave.WORK, ())
    return [each for each in work if each.desired.ref.group_kind.is_custom == custom]


def is_away(outcomes: Iterable[Outcome]) -> bool:
    """Whether the cluster stopped answering on the way."""
    return any(
        isinstance(each, ObjectFailure) and each.why == FailureKind.UNANSWERED for each in outcomes
    )


def is_held_up(outcome: Outcome) -> bool:
    """Whether an object failed only because a webhook did not answer."""
    return isinstance(outcome, ObjectFailure) and outcome.why == FailureKind.WEBHOOK
