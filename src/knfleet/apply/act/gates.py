"""Waiting until what later waves need is there: CRDs that are served, webhooks that answer."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from collections.abc import Collection as Some
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from knfleet.api.core import CRDS, ENDPOINT_SLICES
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.apply.act.writer import Deadlines
from knfleet.apply.applyset import ApplySet
from knfleet.apply.change_set import FailureKind, ObjectFailure, ObjectPending, Outcome
from knfleet.apply.desired import Desired, DesiredSet, crd_of
from knfleet.apply.observe.collection import Collection, follow
from knfleet.apply.observe.live_state import LiveStateReader
from knfleet.apply.observe.readiness import ReadinessState, absent, health, ready_endpoints
from knfleet.apply.plan.steps import ApplyStep
from knfleet.apply.plan.webhooks import webhooks_of
from knfleet.apply.refs import CRD, WEBHOOK_CONFIGURATIONS, Ref
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound

A_LOOK_SECONDS = 5.0
SOON_SECONDS = 5.0
"""A watch that tells nothing of awaited CRDs for longer than this may be broken."""
WATCH_SECONDS = 600.0
TOUCHED = "knfleet.dev/touched"
"""On a CRD that was not served for long: when we wrote it for that."""


class Gates:
    """Waits for CRDs and webhooks of one set."""

    def __init__(
        self, client: Client, applyset: ApplySet, live_state: LiveStateReader, deadlines: Deadlines
    ) -> None:
        self.client = client
        self.applyset = applyset
        self.live_state = live_state
        self.deadlines = deadlines
        self.definitions = Collection(CRDS, labels=applyset.selector, trim=status_alone)
        self.unserved: frozenset[Ref] = frozenset()
        """CRDs that were there and not served when last looked at."""

    @asynccontextmanager
    async def watching(self, steps: Iterable[ApplyStep]) -> AsyncGenerator["Definitions | None"]:
        """Watch the CRDs of the set while some are written that are new.

        A watch that begins after they were written would first have to catch up with the cluster.
        """
        if not any(step.observed is None for step in steps):
            yield None
            return
        seen = Definitions(self.deadlines.established_seconds)
        watch = asyncio.create_task(
            follow(self.client, self.definitions, seen.note, seconds=WATCH_SECONDS)
        )
        watch.add_done_callback(seen.end)
        try:
            yield seen
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def established(
        self, definitions: Iterable[Ref], seen: "Definitions | None" = None
    ) -> list[ObjectFailure]:
        """Wait until CRDs are served, and those that were not; the ones that still are not."""
        await self.touch(self.unserved)
        wanted = self.unserved.union(definitions)
        if seen is not None and await seen.has_told(wanted):
            failures = seen.not_ready(wanted)
        else:
            failures = await self.not_established(wanted)
        self.unserved = frozenset(each.ref for each in failures)
        return failures

    async def touch(self, definitions: Iterable[Ref]) -> None:
        """Write CRDs that were not served in time, so that the API server looks at them again.

        One that was killed after it accepted a CRD's names, and before it served it, does not go on
        by itself for minutes after its return: it waits for a change.
        """
        annotations = {TOUCHED: timestamp(datetime.now(UTC))}
        for ref in definitions:
            with suppress(KubeError):
                await self.client.patch(CRDS, ref.key, {"metadata": {"annotations": annotations}})

    async def not_established(self, definitions: Some[Ref]) -> list[ObjectFailure]:
        """The CRDs that are not served when time is up, or that never will be as they are."""
        wanted = {ref.key: ref for ref in definitions}
        if not wanted:
            return []
        try:
            found = await follow(
                self.client,
                self.definitions,
                lambda found: are_ready(wanted.values(), found),
                seconds=self.deadlines.established_seconds,
            )
        except KubeError as error:
            return [
                ObjectFailure(ref, FailureKind.NOT_ESTABLISHED, str(error))
                for ref in wanted.values()
            ]
        return not_ready(wanted.values(), found)

    async def blamed(self, outcomes: Some[Outcome], desired: DesiredSet) -> list[Outcome]:
        """The outcomes, with objects of a kind that is not served waiting for their CRD."""
        waiting = {
            each.ref: crd_of(desired.objects[each.ref])
            for each in outcomes
            if isinstance(each, ObjectFailure) and each.why == FailureKind.UNKNOWN_KIND
        }
        known = desired.refs.intersection(waiting.values())
        found = await self.established(known) if known else []
        broken = crd_refs(found)
        return [
            *found,
            *(
                ObjectPending(each.ref, f"it waits for {waiting[each.ref]}")
                if waiting.get(each.ref) in broken
                else each
                for each in outcomes
            ),
        ]

    async def silent(self, services: Some[Key], seconds: float) -> list[Key]:
        """Wait until Services have an endpoint that takes requests; those that have none."""
        answers = await asyncio.gather(*(self.answers(each, seconds) for each in services))
        return [each for each, answers in zip(services, answers, strict=True) if not answers]

    async def answers(self, service: Key, seconds: float) -> bool:
        """Whether a Service gets an endpoint in time."""
        slices = await follow(
            self.client,
            Collection(
                ENDPOINT_SLICES,
                service.namespace,
                f"kubernetes.io/service-name={service.name}",
            ),
            lambda found: ready_endpoints(found.values()) > 0,
            seconds=seconds,
        )
        return ready_endpoints(slices.values()) > 0

    async def clear_stale(self, wanted: Iterable[Desired]) -> list[Desired]:
        """Delete webhook configurations of the set without a ready backend, to be made anew.

        One that an earlier install left behind, with the rules that its webhook filled in, would
        refuse the very objects that the webhook needs to start. They are returned.
        """
        cleared: list[Desired] = []
        for desired in wanted:
            if desired.ref.group_kind not in WEBHOOK_CONFIGURATIONS:
                continue
            services = list(webhooks_of([desired]).services)
            if not services or len(await self.silent(services, A_LOOK_SECONDS)) < len(services):
                continue
            observed = await self.live_state.get(desired.resource, desired.ref.key)
            if observed is None or observed.part_of not in {"", self.applyset.id}:
                continue
            with suppress(NotFound):
                await self.client.delete(desired.resource, desired.ref.key, uid=observed.uid)
            cleared.append(desired)
        return cleared


class Definitions:
    """What a watch tells of the CRDs of a set."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        """How long CRDs may take, from the first wait for them."""
        self.ends: float | None = None
        self.found: Mapping[Key, Object] = {}
        self.changed = asyncio.Event()
        self.ended = False

    def end(self, _: object) -> None:
        """No more changes will be reported."""
        self.ended = True
        self.changed.set()

    def note(self, found: Mapping[Key, Object]) -> bool:
        """Store their current state; the watch goes on."""
        self.found = found
        self.changed.set()
        return False

    async def has_told(self, definitions: Some[Ref]) -> bool:
        """Wait until CRDs are served, or never will be, or time is up; False when it falls silent.

        On a busy cluster CRDs take long. A second watch beside this one would make it take longer.
        """
        now = asyncio.get_running_loop().time
        if self.ends is None:
            self.ends = now() + self.seconds
        while not are_ready(definitions, self.found):
            left = self.ends - now()
            if self.ended or left <= 0:
                return not self.ended
            self.changed.clear()
            try:
                async with asyncio.timeout(min(left, SOON_SECONDS)):
                    await self.changed.wait()
            except TimeoutError:
                if left > SOON_SECONDS:
                    return False
        return True

    async def are_ready(self, definitions: Some[Ref]) -> bool:
        """Wait until CRDs are served; False when some are not in time."""
        return await self.has_told(definitions) and not self.not_ready(definitions)

    def not_ready(self, definitions: Some[Ref]) -> list[ObjectFailure]:
        """The CRDs that are not served."""
        return not_ready(definitions, self.found)


def status_alone(manifest: Object) -> Object:
    """A CRD without its schemas, which are all but a little of it."""
    return {name: value for name, value in manifest.items() if name != "spec"}


def are_ready(definitions: Iterable[Ref], found: Mapping[Key, Object]) -> bool:
    """Whether CRDs are served, or will not be by waiting."""
    return all(
        ref.key in found and health(found[ref.key]).state != ReadinessState.PROGRESSING
        for ref in definitions
    )


def not_ready(definitions: Iterable[Ref], found: Mapping[Key, Object]) -> list[ObjectFailure]:
    """The CRDs that are not served, and why."""
    judged = [health(found[ref.key]) if ref.key in found else absent(ref) for ref in definitions]
    return [
        ObjectFailure(each.ref, FailureKind.NOT_ESTABLISHED, each.message)
        for each in judged
        if each.state != ReadinessState.READY
    ]


def waiting_for(services: Sequence[Key]) -> str:
    """What to say of objects that wait for webhooks."""
    names = ", ".join(map(str, services))
    return f"it waits until the webhook answers: the Service {names} has no ready endpoint"


def new_definitions(steps: Iterable[ApplyStep], outcomes: Iterable[Outcome]) -> list[Ref]:
    """The CRDs that were just made; one that was refused is not waited for."""
    refused = {each.ref for each in outcomes if isinstance(each, ObjectFailure)}
    return [
        step.desired.ref
        for step in steps
        if step.desired.ref.group_kind == CRD
        and step.observed is None
        and step.desired.ref not in refused
    ]


def crd_refs(failures: Iterable[ObjectFailure]) -> set[Ref]:
    return {failure.ref for failure in failures if failure.ref.group_kind == CRD}
