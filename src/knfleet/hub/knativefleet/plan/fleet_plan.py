"""What to do for a fleet now: which children are written, what is waited for, and why. Pure.

Nothing is kept between two plans but the record, which is a part of the fleet's status. A plan that
changes the record begins nothing that follows from the change: it is written first, and the next
plan goes on from there. So a hub that ends at any moment has begun nothing that is not recorded.

A cluster has a slot from the moment that its child is written until it is ready for long enough,
has failed, has taken too long, or is suspended. Slots are counted over the whole fleet.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from knfleet.hub.knativefleet.plan.child_state import BY_ACCESS, BY_PROFILE, Child
from knfleet.hub.knativefleet.plan.cluster_state import (
    LOST_SECONDS,
    RevisionState,
    all_writes,
    drift,
    has_slot,
    latest,
    lost,
    own_revision,
    state_of,
    unwanted,
    write_of,
)
from knfleet.hub.knativefleet.plan.fleet_reports import report_of
from knfleet.hub.knativefleet.plan.fleet_rollout import (
    ChildWrite,
    ClusterView,
    Completed,
    FleetRolloutPlan,
    FleetRolloutView,
    Rollback,
    RolloutWave,
    WavePlan,
)
from knfleet.hub.knativefleet.plan.wave_judge import WaveJudge, WaveResult
from knfleet.hub.knativefleet.template.fleet_template import DesiredChildren
from knfleet.hub.rollout.rollout_model import Progress, State
from knfleet.hub.rollout.rollout_plan import concurrency


def plan_fleet(view: FleetRolloutView, now: datetime) -> FleetRolloutPlan:
    """What to do for a fleet now."""
    return FleetPlanner(view, now).plan()


class RolloutCandidate(Struct, frozen=True):
    """A cluster that is to get a revision."""

    cluster: str
    revision: str


class FleetPlanner:
    """One look at a fleet."""

    def __init__(self, view: FleetRolloutView, now: datetime) -> None:
        self.view = view
        self.now = now
        self.moments: list[datetime] = []
        self.own = {name: own_revision(each) for name, each in view.clusters.items()}
        self.lost = {name: self.reason_lost(each) for name, each in view.clusters.items()}
        self.drifted = {
            name: drift(each, self.own_desired(name)) for name, each in view.clusters.items()
        }
        self.states = {name: self.state(name, view.target) for name in view.clusters}
        deadline = view.strategy.deadline_seconds
        self.wave_of = {name: wave for wave in reversed(view.waves) for name in wave.clusters}
        self.changing = {
            name
            for name, each in view.clusters.items()
            if has_slot(each, self.own_desired(name), self.deadline(name, deadline), now)
        }

    def deadline(self, name: str, default: float | None) -> float | None:
        """How long a cluster may take."""
        wave = self.wave_of.get(name)
        return default if wave is None else wave.strategy.deadline_seconds

    def own_desired(self, name: str) -> DesiredChildren:
        """What the revision that a cluster has means for it."""
        own = self.own[name]
        return self.view.desired(own, name) if own else DesiredChildren()

    def reason_lost(self, cluster: ClusterView) -> str:
        """Why a cluster cannot be changed now; empty when it can."""
        wanted = self.view.desired(self.view.target, cluster.name).components
        for component, child in cluster.children.items():
            if child.deleting and component in wanted:
                return f"{child.key} is being deleted"
        reason, again = lost(cluster, self.now)
        if again is not None:
            self.moments.append(again)
        return reason

    def state(self, name: str, revision: str) -> RevisionState:
        """How far a cluster is with a revision."""
        view, cluster = self.view, self.view.clusters[name]
        # A revision that comes again, or is tried again, gets its time anew.
        begun = latest([view.retried, view.record.started])
        found = state_of(cluster, revision, view.desired(revision, name), begun)
        kept = not view.enforces and self.drifted[name] and self.own[name] == revision
        if kept and all(child.is_settled for child in cluster.children.values()):
            return replace(found, progress=Progress(State.SKIPPED), pending=())
        if self.lost[name] and found.progress.state is State.PROGRESSING:
            # No failure: it is suspended, or back in a moment.
            return replace(found, progress=Progress(State.PROGRESSING), message=self.lost[name])
        return found

    def plan(self) -> FleetRolloutPlan:
        """What to do now."""
        view = self.view
        completed = {
            wave.name: view.record.completed[wave.name]
            for wave in view.waves
            if wave.name in view.record.completed
        }
        is_new = False
        waves: list[WavePlan] = []
        current: RolloutWave | None = None
        result: WaveResult | None = None
        previous: Completed | None = None
        rollback = view.record.rollback
        judge = WaveJudge(view, self.now, self.states, deferred=self.deferred())
        for wave in view.waves:
            if wave.name in completed:
                previous = completed[wave.name]
                waves.append(WavePlan(wave, "Complete"))
                continue
            if current is not None:
                waves.append(WavePlan(wave, "Waiting", f"wave {current.name} must be complete"))
                continue
            judged = judge.judge(wave, previous, rollback)
            waves.append(WavePlan(wave, judged.state, judged.message))
            if judged.is_complete:
                previous = Completed(wave.name, self.now, judge.was_changed(wave))
                completed[wave.name] = previous
                is_new = True
                waves[-1] = WavePlan(wave, "Complete")
            else:
                current, result = wave, judged
        self.moments += judge.moments
        failure = "" if result is None else result.failure
        if failure and rollback is None and current is not None and self.can_roll_back():
            scope = view.rollback_scope or "Wave"
            rollback = Rollback(view.good, scope, current.name, self.now, failure)
            is_new = True
        is_complete = current is None and rollback is None and bool(view.clusters)
        is_new = is_new or is_complete != view.record.is_complete
        acts = [] if is_new else self.acts(current, result, completed, rollback)
        writes, begun = self.begin(acts, current, rollback)
        writes = [*self.continued(rollback), *self.suspensions(), *self.reverted(), *writes]
        gates = () if result is None else result.gates
        return FleetRolloutPlan(
            writes=unique(writes),
            deletes=(*self.deletes(writes), *view.leaving),
            completed=completed,
            rollback=rollback,
            is_rolling_back=rollback is not None and self.is_rolling_back(rollback),
            is_complete=is_complete,
            must_record=is_new,
            halted=failure,
            reports={
                name: report_of(
                    view.clusters[name],
                    self.states[name],
                    State.PROGRESSING if name in begun else self.judged_state(name),
                    lost=self.lost[name],
                    is_drifted=bool(self.drifted[name]) and not view.enforces,
                    is_back=rollback is not None and self.own[name] == rollback.to,
                )
                for name in view.clusters
            },
            waves=tuple(waves),
            current="" if current is None else current.name,
            waits_for_gates=gates,
            changing=frozenset(self.changing | begun),
            next_look=min((each for each in self.moments if each > self.now), default=None),
        )

    def deferred(self) -> frozenset[str]:
        """Clusters that are left out until they can be reached."""
        return frozenset(
            name
            for name, reason in self.lost.items()
            if reason
            and self.states[name].progress.state is not State.SUCCEEDED
            and (name not in self.changing or self.states[name].progress.state is State.TO_APPLY)
        )

    def judged_state(self, name: str) -> State:
        """What a cluster counts as, the deadline of its wave taken into account."""
        progress = self.states[name].progress
        if progress.state is State.PROGRESSING and progress.since is not None:
            deadline = self.deadline(name, self.view.strategy.deadline_seconds)
            if deadline is not None:
                moment = progress.since + timedelta(seconds=deadline)
                if moment <= self.now:
                    return State.TIMED_OUT
                self.moments.append(moment)
        return progress.state

    def can_roll_back(self) -> bool:
        """Whether there is a revision to return to, and that is wanted."""
        view = self.view
        return view.rollback_scope is not None and bool(view.good) and view.good != view.target

    def acts(
        self,
        current: RolloutWave | None,
        result: WaveResult | None,
        completed: dict[str, Completed],
        rollback: Rollback | None,
    ) -> list[RolloutCandidate]:
        """Clusters that are to get a revision, in the order in which they get slots."""
        view = self.view
        if view.paused:
            return []
        resumed = [
            RolloutCandidate(name, own)
            for name, own in self.own.items()
            if (own not in ("", view.target) and self.is_suspended(name))
            or (name not in self.changing and self.pending(name))
            if not self.is_unfit(name, own)
        ]
        if rollback is not None:
            return resumed + [
                RolloutCandidate(name, rollback.to)
                for name in view.clusters
                if self.is_taken_back(name, rollback) and not self.is_unfit(name, rollback.to)
            ]
        found = resumed + [
            RolloutCandidate(name, view.target)
            for wave in view.waves
            if wave.name in completed
            for name in wave.clusters
            if self.states[name].progress.state is State.TO_APPLY and not self.lost[name]
        ]
        if view.joins_at_once and view.good and view.good != view.target:
            now = frozenset(result.plan.act) if result is not None and not result.failure else ()
            found += [
                RolloutCandidate(name, view.good)
                for wave in view.waves
                if wave.name not in completed
                for name in wave.clusters
                if name not in now
                and not view.clusters[name].children
                and not self.is_unfit(name, view.good)
            ]
        if result is not None and not result.failure:
            found += [RolloutCandidate(name, view.target) for name in result.plan.act]
        return found

    def is_suspended(self, name: str) -> bool:
        """Whether the change of a cluster is suspended."""
        return any(child.suspended for child in self.view.clusters[name].children.values())

    def is_unfit(self, name: str, revision: str) -> bool:
        """Whether a cluster cannot get a revision now."""
        return bool(
            self.lost[name]
            or self.view.clusters[name].conflict
            or self.view.desired(revision, name).problem
        )

    def is_rolling_back(self, rollback: Rollback) -> bool:
        """Whether a cluster that can be reached is not back at the last good revision."""
        return bool(self.changing) or any(
            cluster.children
            and self.is_taken_back(name, rollback)
            and not self.is_unfit(name, rollback.to)
            for name, cluster in self.view.clusters.items()
        )

    def is_taken_back(self, name: str, rollback: Rollback) -> bool:
        """Whether a cluster gets the last good revision back."""
        cluster = self.view.clusters[name]
        if not cluster.children:
            return self.view.joins_at_once
        if self.own[name] != self.view.target:
            return False
        if rollback.scope == "All" or self.is_suspended(name):
            return True
        if rollback.scope == "Wave":
            return any(
                name in wave.clusters for wave in self.view.waves if wave.name == rollback.wave
            )
        return self.judged_state(name) in (State.FAILED, State.TIMED_OUT)

    def begin(
        self,
        acts: Iterable[RolloutCandidate],
        current: RolloutWave | None,
        rollback: Rollback | None,
    ) -> tuple[list[ChildWrite], set[str]]:
        """Writes for as many clusters as there are slots; a cluster in change keeps its own."""
        view = self.view
        if current is None or rollback is not None:
            limit = concurrency(view.strategy.max_concurrency, len(view.clusters))
        else:
            limit = concurrency(current.strategy.max_concurrency, len(current.clusters))
        writes: list[ChildWrite] = []
        begun: set[str] = set()
        for candidate in acts:
            name = candidate.cluster
            if name in begun:
                continue
            if name not in self.changing and len(self.changing | begun) >= limit:
                continue
            desired = view.desired(candidate.revision, name)
            writes += all_writes(view.clusters[name], candidate.revision, desired)
            begun.add(name)
        return writes, begun

    def continued(self, rollback: Rollback | None) -> list[ChildWrite]:
        """Writes for clusters that have a part of a revision; they have their slot already."""
        return [
            write
            for name in sorted(self.changing)
            if rollback is None
            or self.own[name] == rollback.to
            or not self.is_taken_back(name, rollback)
            for write in self.pending(name)
        ]

    def pending(self, name: str) -> tuple[ChildWrite, ...]:
        """Writes that are left for a cluster that has a part of a revision, or of the way to it."""
        own = self.own[name]
        if self.lost[name] or own not in (self.view.target, self.view.good) or not own:
            return ()
        return (self.states[name] if own == self.view.target else self.state(name, own)).pending

    def suspensions(self) -> list[ChildWrite]:
        """Writes that suspend the change of clusters that are lost."""
        found: list[ChildWrite] = []
        for name in sorted(self.changing):
            cluster = self.view.clusters[name]
            if not self.lost[name]:
                continue
            reason = BY_PROFILE
            if not cluster.problem:
                reason = BY_ACCESS
                since = [
                    child.lost_since for child in cluster.children.values() if child.lost_since
                ]
                moments = [*since, *(c.started for c in cluster.children.values() if c.started)]
                limit = max(moments, default=self.now) + timedelta(seconds=LOST_SECONDS)
                if self.now < limit:
                    self.moments.append(limit)
                    continue
            own = self.own_desired(name)
            found += [
                replace(
                    write_of(cluster, component, child.revision, rendered, suspended=reason),
                    rendered=rendered.with_version(child.version),
                )
                for component, rendered in own.components.items()
                if (child := cluster.children.get(component)) is not None
                and child.hash == rendered.hash
                and not child.suspended
                and not child.is_settled
                and not child.deleting
            ]
        return found

    def reverted(self) -> list[ChildWrite]:
        """Writes that take back what others edited."""
        if not self.view.enforces or self.view.paused:
            return []
        return [
            write_of(self.view.clusters[name], component, self.own[name], rendered, reverts=True)
            for name, components in self.drifted.items()
            for component in components
            if (rendered := self.own_desired(name).components.get(component)) is not None
        ]

    def deletes(self, writes: Iterable[ChildWrite]) -> list[Child]:
        """Children whose component the revision of their cluster does not have."""
        given = {each.cluster: each.revision for each in writes if not each.suspended}
        return [
            child
            for name, cluster in self.view.clusters.items()
            if (revision := given.get(name) or self.own[name])
            and not (desired := self.view.desired(revision, name)).problem
            and desired.components
            for child in unwanted(cluster, desired)
        ]


def unique(writes: Iterable[ChildWrite]) -> tuple[ChildWrite, ...]:
    """The writes, of several for one child the last: it is the one for a revision."""
    return tuple({(each.cluster, each.component): each for each in writes}.values())
