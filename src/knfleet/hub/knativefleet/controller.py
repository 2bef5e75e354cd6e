"""Reconciles KnativeFleets: children for clusters, changed in waves."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.conditions import StandardCondition
from knfleet.api.fleet.fleet_names import FLEET_FINALIZER, KNATIVE_FLEETS, RETRY, ROLLED_OUT
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.fleet.knativefleet_status import KnativeFleetStatus
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.moments import as_moment
from knfleet.api.schema import DecodeError, decode
from knfleet.apply.manifest_fields import part
from knfleet.hub.context import HubContext, plain
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.knativefleet.child_writer import ChildWriter
from knfleet.hub.knativefleet.fleet_cache import FleetCache
from knfleet.hub.knativefleet.fleet_events import events_of, few, regarding
from knfleet.hub.knativefleet.fleet_status import (
    failed_status,
    new_rollout,
    record_of,
    status_of,
)
from knfleet.hub.knativefleet.fleet_view import ViewBuilder
from knfleet.hub.knativefleet.gates.gate_checks import GateChecks, GateLimits
from knfleet.hub.knativefleet.gates.gate_results import failures_of, next_check, updated
from knfleet.hub.knativefleet.gates.verify_gate import VerifyGates
from knfleet.hub.knativefleet.plan.child_state import Child
from knfleet.hub.knativefleet.plan.fleet_clusters import (
    FleetSelection,
    member,
    selection,
    selector_problem,
)
from knfleet.hub.knativefleet.plan.fleet_plan import plan_fleet
from knfleet.hub.knativefleet.plan.fleet_rollout import FleetRolloutPlan, RecordedRollout
from knfleet.hub.knativefleet.revision_store import RevisionStore
from knfleet.hub.knativefleet.rights import RULES
from knfleet.hub.knativefleet.template.fleet_template import content_hash, content_of
from knfleet.hub.knativefleet.template.revisions import Revision, fleet_of
from knfleet.hub.placement.decisions.decision_objects import placements_of
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Conflict, NotFound
from knfleet.runtime.controller import Result

PASS_SECONDS = 0.2
"""Between two passes over one fleet: many children change at once."""
PASS_SHARE = 20.0
"""How many times longer than the work on the event loop it is until the next pass, at least."""
STATUS_SECONDS = 1.0
"""Between two writes of the status of one fleet."""
RETRY_SECONDS = 15.0
"""When a child that could not be written is tried again."""
SYNC_SECONDS = 1.0
CONFLICT_SECONDS = 0.1
THREAD_CLUSTERS = 50
"""From so many clusters on, a plan takes long enough to leave the event loop."""


class FleetPass(Struct):
    """What is remembered of a fleet between passes; nothing depends on it after a restart."""

    passed_at: float = float("-inf")
    cost_seconds: float = 0.0
    """How long the last pass kept the event loop busy to read a large fleet."""
    written_at: float = float("-inf")


class KnativeFleetController:
    """Reconciles KnativeFleets."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.cache = FleetCache(context)
        self.writer = ChildWriter(context.client, self.cache, context.now)
        self.revisions = RevisionStore(context.client, self.cache)
        self.gates = GateChecks(GateLimits(loopback=context.loopback_gates))
        self.verify_gates = VerifyGates(context.client, self.cache)
        self.views = ViewBuilder(self.cache)
        self.passes: dict[Key, FleetPass] = {}

    def watches(self) -> Sequence[Watch]:
        """Fleets, their children, profiles, and Placements with their decisions."""
        cache = self.cache
        return (
            Watch(cache.fleets.on_change, self.by_fleet),
            *(Watch(each.on_change, self.by_child) for each in cache.children.values()),
            Watch(cache.profiles.on_change, self.by_profile),
            Watch(cache.placements.on_change, self.by_placement),
            Watch(cache.decisions.on_change, self.by_decision),
        )

    def by_fleet(self, change: StoreChange) -> Iterable[Request]:
        """A fleet changed; its own status concerns no other."""
        old, new = change.old, change.new
        if old is None or new is None or cause(old) != cause(new):
            yield Request(HUB, change.key)

    def by_child(self, change: StoreChange) -> Iterable[Request]:
        """A child changed, or a custom resource that could become one."""
        self.cache.drop(change)
        names = {name for each in (change.old, change.new) if each for name in fleet_of(each)}
        for name in names:
            yield Request(HUB, Key("", name))
        if not names and (change.old is None or change.new is None):
            place = part(change.new or change.old or {}, "spec", "clusterProfileRef")
            yield from self.of_namespace(str(place.get("namespace", "")))

    def by_profile(self, change: StoreChange) -> Iterable[Request]:
        """What a fleet reads of a cluster changed."""
        self.cache.drop(change)
        old, new = (None if each is None else readable(each) for each in (change.old, change.new))
        if old != new:
            yield from self.of_namespace(change.key.namespace)

    def by_placement(self, change: StoreChange) -> Iterable[Request]:
        """A Placement changed."""
        yield from self.referring(change.key)

    def by_decision(self, change: StoreChange) -> Iterable[Request]:
        """Decisions changed."""
        for each in (change.old, change.new):
            for owner in placements_of(each) if each is not None else ():
                namespace, _, name = owner.partition("/")
                yield from self.referring(Key(namespace, name))

    def of_namespace(self, namespace: str) -> Iterable[Request]:
        """The fleets whose profiles are in a namespace."""
        for key, manifest in list(self.cache.fleets.store.objects.items()):
            if part(manifest, "spec", "clusters").get("namespace") == namespace:
                yield Request(HUB, key)

    def referring(self, placement: Key) -> Iterable[Request]:
        """The fleets that refer to a Placement."""
        for key, manifest in list(self.cache.fleets.store.objects.items()):
            clusters = part(manifest, "spec", "clusters")
            named = Key(
                str(clusters.get("namespace")), str(part(clusters, "placementRef").get("name"))
            )
            if named == placement:
                yield Request(HUB, key)

    async def reconcile(self, request: Request) -> Result:
        """Bring the children of one fleet a step further."""
        if not self.cache.is_synced:
            return Result.after(SYNC_SECONDS)
        key = request.key
        manifest = self.cache.fleet(key)
        if manifest is None:
            self.passes.pop(key, None)
            self.cache.forget(key.name)
            return Result.never()
        state = self.passes.setdefault(key, FleetPass())
        now = asyncio.get_running_loop().time()
        if (wait := state.passed_at + max(PASS_SECONDS, PASS_SHARE * state.cost_seconds) - now) > 0:
            return Result.after(wait)
        state.passed_at = now
        try:
            return await self.reconcile_fleet(manifest, state)
        except Conflict:
            return Result.after(CONFLICT_SECONDS)
        except NotFound:
            return Result.after(PASS_SECONDS)

    async def reconcile_fleet(self, manifest: Object, state: FleetPass) -> Result:
        """One pass over a fleet that exists."""
        self.cache.begin_pass()
        try:
            fleet = decode(manifest, KnativeFleet)
        except DecodeError as error:
            # The CRD of a newer hub; nothing is touched.
            self.context.events.warning(manifest, "InvalidFleet", str(error))
            return Result.never()
        if fleet.metadata.deleting:
            return await self.delete(fleet, state)
        if FLEET_FINALIZER not in fleet.metadata.finalizers:
            fleet = await self.put_finalizers(fleet, [*fleet.metadata.finalizers, FLEET_FINALIZER])
        now = self.context.now()
        if problem := selector_problem(fleet.spec):
            return await self.refuse(fleet, problem, state, now)
        content = content_of(part(manifest, "spec"))
        target = content_hash(content)
        revisions = await self.revisions.put(fleet, content, target)
        retried = as_moment(fleet.metadata.annotations.get(RETRY, ""))
        record = record_of(fleet, target, retried)
        if record is None:
            return await self.begin_rollout(fleet, revisions[target], state, now)
        return await self.proceed(fleet, revisions, record, state)

    async def refuse(
        self, fleet: KnativeFleet, problem: str, state: FleetPass, now: datetime
    ) -> Result:
        """Report a spec that makes no sense; children stay as they are."""
        status = failed_status(fleet, rollout_problem("InvalidFleet", problem), now)
        return await self.write_status(fleet, status, state)

    async def begin_rollout(
        self, fleet: KnativeFleet, revision: Revision, state: FleetPass, now: datetime
    ) -> Result:
        """Record that a revision is rolled out; its clusters are looked at in the next pass."""
        before = fleet.status
        status = KnativeFleetStatus(
            observed_generation=before.observed_generation,
            observed_retry=before.observed_retry,
            conditions=before.conditions,
            phase=before.phase,
            rollout=new_rollout(revision.hash, revision.number, now),
            last_good_revision=before.last_good_revision,
            clusters=before.clusters,
            waves=before.waves,
            problems=before.problems,
        )
        wait = await self.write_status(fleet, status, state)
        if wait.after_seconds is None:
            self.context.events.normal(
                regarding(fleet), "RolloutStarted", f"revision {revision.number} is rolled out"
            )
        return wait.within(PASS_SECONDS) if wait.after_seconds is None else wait

    async def proceed(
        self,
        fleet: KnativeFleet,
        revisions: dict[str, Revision],
        record: RecordedRollout,
        state: FleetPass,
    ) -> Result:
        """Write and delete children as far as the rollout allows, and report how far it is."""
        begun = time.perf_counter()
        chosen = self.select(fleet)
        view = self.views.view(fleet, chosen, revisions, record)
        state.cost_seconds = time.perf_counter() - begun
        now = self.context.now()
        if len(view.clusters) < THREAD_CLUSTERS:
            plan = plan_fleet(view, now)
        else:
            plan = await asyncio.to_thread(plan_fleet, view, now)
        problems = await self.writer.write_all(fleet, plan.writes)
        await self.writer.remove(fleet, self.removable(fleet, plan))
        status = status_of(fleet, view, plan, chosen, now)
        status, gate_seconds = await self.check_gates(fleet, plan, status, state)
        again = await self.write_status(fleet, status, state)
        self.record_events(fleet, status, plan)
        await self.revisions.prune(fleet, view, revisions)
        if problems:
            again = again.within(RETRY_SECONDS if any(problems.values()) else CONFLICT_SECONDS)
            self.report_problems(fleet, problems)
        if gate_seconds is not None:
            again = again.within(gate_seconds)
        if plan.must_record:
            again = again.within(PASS_SECONDS)
        if plan.next_look is not None:
            again = again.within(max((plan.next_look - self.context.now()).total_seconds(), 0.1))
        return again

    async def check_gates(
        self,
        fleet: KnativeFleet,
        plan: FleetRolloutPlan,
        status: KnativeFleetStatus,
        state: FleetPass,
    ) -> tuple[KnativeFleetStatus, float | None]:
        """The status with what gates say that are due, and when to look again.

        Nothing is asked that could not be written down: it would be asked again at once.
        """
        if not plan.waits_for_gates:
            return status, None
        wait = state.written_at + STATUS_SECONDS - asyncio.get_running_loop().time()
        if wait > 0:
            return status, wait
        known = {each.name: each for each in status.rollout.gates if each.wave == plan.current}
        waiting = [each for each in fleet.spec.strategy.gates if each.name in plan.waits_for_gates]
        now = self.context.now()
        moments = {each.name: next_check(each, known.get(each.name)) for each in waiting}
        due = [each for each in waiting if (moments[each.name] or now) <= now]
        if due:
            retried = as_moment(fleet.metadata.annotations.get(RETRY, ""))
            asked = [each for each in due if each.verify is None]
            results = await self.gates.check_all(fleet, plan.current, asked)
            results |= await self.verify_gates.check_all(
                fleet,
                plan.current,
                plan.done_clusters,
                {each.name: (each, failures_of(known.get(each.name), retried)) for each in due},
            )
            gates = updated(status.rollout.gates, plan.current, results, now, retried)
            rollout = replace(status.rollout, gates=gates)
            return replace(status, rollout=rollout), PASS_SECONDS
        later = [each for each in moments.values() if each is not None]
        return status, (min(later) - now).total_seconds() if later else None

    def select(self, fleet: KnativeFleet) -> FleetSelection:
        """The clusters that a fleet has now."""
        wanted = fleet.spec.clusters
        profiles = {
            key.name: manifest
            for key, manifest in self.cache.profiles.store.objects.items()
            if key.namespace == wanted.namespace
        }
        placement: Object | None = None
        decisions: list[Object] = []
        if wanted.placement_ref is not None:
            key = Key(wanted.namespace, wanted.placement_ref.name)
            placement = self.cache.placements.get(key)
            decisions = self.cache.decisions.by_index("placement", str(key))
        return selection(wanted, profiles, placement, decisions, self.cache.member)

    def removable(self, fleet: KnativeFleet, plan: FleetRolloutPlan) -> list[Child]:
        """Children that are to be removed now; a fleet that is paused removes none."""
        return [] if fleet.spec.paused else list(plan.deletes)

    async def delete(self, fleet: KnativeFleet, state: FleetPass) -> Result:
        """Remove all children, or have them stay without the fleet; then let the fleet go."""
        if FLEET_FINALIZER not in fleet.metadata.finalizers:
            return Result.never()
        await self.writer.remove(fleet, await self.writer.children_of(fleet))
        if left := await self.writer.children_of(fleet):
            text = f"waits for {few([str(each.key) for each in left])}; see their conditions"
            status = failed_status(
                fleet, rollout_problem("FleetDeleting", text), self.context.now()
            )
            return (await self.write_status(fleet, status, state)).within(RETRY_SECONDS)
        await self.revisions.remove(fleet)
        left = [each for each in fleet.metadata.finalizers if each != FLEET_FINALIZER]
        await self.put_finalizers(fleet, left)
        return Result.never()

    async def put_finalizers(self, fleet: KnativeFleet, finalizers: list[str]) -> KnativeFleet:
        """Set the finalizers of a fleet in the state that is known."""
        version = fleet.metadata.resource_version
        patch: Object = {"metadata": {"resourceVersion": version, "finalizers": finalizers}}
        answer = await self.client.patch(KNATIVE_FLEETS, fleet.key, patch)
        self.cache.remember(answer)
        return decode(answer, KnativeFleet)

    async def write_status(
        self, fleet: KnativeFleet, status: KnativeFleetStatus, state: FleetPass
    ) -> Result:
        """Write the status, if it is news and not too soon after the last write."""
        if status == fleet.status:
            return Result.never()
        now = asyncio.get_running_loop().time()
        if (wait := state.written_at + STATUS_SECONDS - now) > 0:
            return Result.after(wait)
        state.written_at = now
        patch = [{"op": "add", "path": "/status", "value": plain(status)}]
        guard = {
            "op": "test",
            "path": "/metadata/uid",
            "value": fleet.metadata.uid,
        }
        answer = await self.client.patch(
            KNATIVE_FLEETS, fleet.key, [guard, *patch], subresource="status"
        )
        self.cache.remember(answer)
        return Result.never()

    def record_events(
        self, fleet: KnativeFleet, status: KnativeFleetStatus, plan: FleetRolloutPlan
    ) -> None:
        """Record what is new in a status as Events."""
        for each in events_of(fleet.status, status, plan):
            record = self.context.events.warning if each.is_warning else self.context.events.normal
            record(regarding(fleet), each.reason, each.message)

    def report_problems(self, fleet: KnativeFleet, problems: dict[str, str]) -> None:
        """Record children that could not be written."""
        for cluster, problem in sorted(problems.items())[:3]:
            if problem:
                self.context.events.warning(
                    regarding(fleet), "ChildNotWritten", f"cluster {cluster}: {problem}"
                )


def rollout_problem(reason: str, message: str) -> StandardCondition:
    """The condition of a fleet that is not rolled out, for a reason of its own."""
    return StandardCondition(type=ROLLED_OUT, status="False", reason=reason, message=message)


def cause(manifest: Object) -> tuple[object, ...]:
    """What of a fleet calls for a pass when it changes."""
    meta = manifest["metadata"]
    return (
        meta.get("uid"),
        meta.get("generation"),
        meta.get("deletionTimestamp"),
        meta.get("finalizers"),
        meta.get("annotations"),
    )


def readable(profile: Object) -> tuple[object, ...]:
    """What is read of a profile."""
    meta = profile["metadata"]
    return (member(meta["name"], "", profile), meta.get("deletionTimestamp"))


CONTROLLER = HubController("knativefleet", KnativeFleetController, RULES)
