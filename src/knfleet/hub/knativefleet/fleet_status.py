"""The status of a fleet: counts, waves, a few clusters with problems, conditions. Pure.

What each cluster does is in its children; the status has a bounded size however many there are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from knfleet.api.conditions import StandardCondition, put
from knfleet.api.fleet.fleet_names import CLUSTERS_SELECTED, IN_SYNC, READY, ROLLED_OUT
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.fleet.knativefleet_status import (
    ClusterCounts,
    ClusterProblem,
    CompletedWave,
    KnativeFleetStatus,
    RollbackStatus,
    RolloutRecord,
    WaveStatus,
)
from knfleet.api.knative.conditions import Status, timestamp
from knfleet.api.moments import as_moment
from knfleet.api.texts import bounded
from knfleet.hub.knativefleet.fleet_events import few
from knfleet.hub.knativefleet.plan.fleet_clusters import FleetSelection
from knfleet.hub.knativefleet.plan.fleet_rollout import (
    ClusterPhase,
    ClusterReport,
    Completed,
    FleetRolloutPlan,
    FleetRolloutView,
    RecordedRollout,
    Rollback,
    WavePlan,
)

WAVES_SHOWN = 100
PROBLEMS_SHOWN = 50
PROBLEM_BYTES = 400
MESSAGE_BYTES = 800

FAILED = (ClusterPhase.FAILED, ClusterPhase.TIMED_OUT, ClusterPhase.INVALID)
PROBLEMS = (*FAILED, ClusterPhase.UNREACHABLE)


def record_of(fleet: KnativeFleet, target: str, retried: datetime | None) -> RecordedRollout | None:
    """What the status remembers of the rollout of a revision; None when that has not begun."""
    rollout = fleet.status.rollout
    if rollout.revision != target:
        return None
    rollback = rollout.rollback
    since = None if rollback is None else as_moment(rollback.since)
    # Not before: what is recorded has no fractions of a second.
    if rollback is not None and retried is not None and since is not None and since <= retried:
        return None
    return RecordedRollout(
        started=as_moment(rollout.started),
        completed={
            each.name: Completed(each.name, at, each.changed)
            for each in rollout.completed_waves
            if (at := as_moment(each.at)) is not None
        },
        rollback=None if rollback is None else read_rollback(rollback),
        is_complete=bool(rollout.completed),
    )


def read_rollback(written: RollbackStatus) -> Rollback:
    """A rollback as the status has it."""
    scope = written.scope
    return Rollback(
        to=written.to,
        scope="All" if scope == "All" else "Failed" if scope == "Failed" else "Wave",
        wave=written.wave,
        since=as_moment(written.since),
        message=written.message,
    )


def new_rollout(target: str, number: int, now: datetime) -> RolloutRecord:
    """The record of a rollout that begins."""
    return RolloutRecord(revision=target, number=number, started=timestamp(now))


def rollout_record(before: RolloutRecord, plan: FleetRolloutPlan, now: datetime) -> RolloutRecord:
    """The record of a rollout after a plan."""
    rollback = plan.rollback
    return RolloutRecord(
        revision=before.revision,
        number=before.number,
        started=before.started,
        completed_waves=[
            CompletedWave(name=each.name, at=timestamp(each.at), changed=each.changed)
            for each in plan.completed.values()
        ],
        rollback=None
        if rollback is None
        else RollbackStatus(
            to=rollback.to,
            scope=rollback.scope,
            wave=rollback.wave,
            since="" if rollback.since is None else timestamp(rollback.since),
            message=bounded(rollback.message, MESSAGE_BYTES),
        ),
        completed=(before.completed or timestamp(now)) if plan.is_complete else "",
        gates=before.gates,
    )


def status_of(
    fleet: KnativeFleet,
    view: FleetRolloutView,
    plan: FleetRolloutPlan,
    chosen: FleetSelection,
    now: datetime,
) -> KnativeFleetStatus:
    """The status after a plan."""
    reports = plan.reports
    rolled_out = rollout_condition(view, plan, fleet)
    conditions: list[StandardCondition] = list(fleet.status.conditions)
    for each in (
        readiness(view),
        selected(chosen),
        rolled_out,
        in_sync(reports),
    ):
        conditions = put(conditions, generation(each, fleet), now)
    return KnativeFleetStatus(
        observed_generation=fleet.metadata.generation,
        observed_retry=fleet.retry,
        conditions=conditions,
        phase=rolled_out.reason,
        rollout=rollout_record(fleet.status.rollout, plan, now),
        last_good_revision=view.target if plan.is_complete else fleet.status.last_good_revision,
        clusters=counts(reports.values()),
        waves=[wave_status(each, plan) for each in plan.waves[:WAVES_SHOWN]],
        problems=problems(plan),
    )


def failed_status(
    fleet: KnativeFleet, condition: StandardCondition, now: datetime
) -> KnativeFleetStatus:
    """The status of a fleet for which nothing can be planned."""
    old = fleet.status
    conditions = put(old.conditions, generation(condition, fleet), now)
    return KnativeFleetStatus(
        observed_generation=fleet.metadata.generation,
        observed_retry=fleet.retry,
        conditions=conditions,
        phase=condition.reason,
        rollout=old.rollout,
        last_good_revision=old.last_good_revision,
        clusters=old.clusters,
        waves=old.waves,
        problems=old.problems,
    )


def generation(condition: StandardCondition, fleet: KnativeFleet) -> StandardCondition:
    """A condition about the spec as it is."""
    return StandardCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=bounded(condition.message, MESSAGE_BYTES),
        observed_generation=fleet.metadata.generation,
    )


def condition(type_: str, status: Status, reason: str, message: str) -> StandardCondition:
    """A condition."""
    return StandardCondition(type=type_, status=status, reason=reason, message=message)


def rollout_condition(
    view: FleetRolloutView, plan: FleetRolloutPlan, fleet: KnativeFleet
) -> StandardCondition:
    """How far the rollout is."""
    number = fleet.status.rollout.number
    total, done = (
        len(plan.reports),
        sum(each.phase is ClusterPhase.DONE for each in plan.reports.values()),
    )
    progress = f"revision {number}: {done} of {total} clusters"
    if plan.rollback is not None:
        reason = "RollbackProgressing" if plan.is_rolling_back else "RolledBack"
        text = (
            f"revision {number} is taken back ({plan.rollback.scope.lower()}):"
            f" {plan.rollback.message}; change the spec, or run knfleet fleet retry"
            f" {fleet.metadata.name}"
        )
        return condition(ROLLED_OUT, "False", reason, text)
    if plan.is_complete and plan.reports:
        left = describe(plan)
        return condition(ROLLED_OUT, "True", "RolloutComplete", progress + left)
    if not plan.reports:
        return condition(ROLLED_OUT, "False", "NoClustersSelected", "the fleet has no clusters")
    if view.paused:
        return condition(ROLLED_OUT, "False", "RolloutPaused", f"{progress}; spec.paused is true")
    if plan.halted:
        text = f"{progress}; {plan.halted}; correct that, or run knfleet fleet retry"
        return condition(ROLLED_OUT, "False", "RolloutHalted", f"{text} {fleet.metadata.name}")
    current = next((each for each in plan.waves if each.wave.name == plan.current), None)
    detail = "" if current is None else f"; wave {current.wave.name}"
    detail += f": {current.message}" if current is not None and current.message else ""
    waits = current is not None and current.state in ("Soaking", "Gated", "Waiting")
    reason = "RolloutWaiting" if waits else "RolloutProgressing"
    return condition(ROLLED_OUT, "False", reason, progress + detail)


def describe(plan: FleetRolloutPlan) -> str:
    """Which clusters a complete rollout has not reached."""
    found = Counter(
        each.phase for each in plan.reports.values() if each.phase is not ClusterPhase.DONE
    )
    parts = [f"{count} {phase.value.lower()}" for phase, count in sorted(found.items())]
    return f"; {', '.join(parts)}" if parts else ""


def readiness(view: FleetRolloutView) -> StandardCondition:
    """Whether all clusters have what they were given, and that is ready."""
    missing = [
        name
        for name, cluster in view.clusters.items()
        if not cluster.children
        or not all(child.is_settled and child.fleet for child in cluster.children.values())
    ]
    if not view.clusters:
        return condition(READY, "False", "NoClustersSelected", "the fleet has no clusters")
    if missing:
        return condition(READY, "False", "ClustersNotReady", f"not ready: {few(missing)}")
    return condition(READY, "True", "FleetReady", f"{len(view.clusters)} clusters are ready")


def selected(chosen: FleetSelection) -> StandardCondition:
    """Whether it is known which clusters the fleet has."""
    status: Status = "True" if chosen.reason == "ClustersFound" else "False"
    return condition(CLUSTERS_SELECTED, status, chosen.reason, chosen.message)


def in_sync(reports: Mapping[str, ClusterReport]) -> StandardCondition:
    """Whether children are as the fleet wrote them."""
    edited = [name for name, each in reports.items() if each.is_drifted]
    if edited:
        text = f"children were edited, and are kept by driftPolicy Keep: {few(edited)}"
        return condition(IN_SYNC, "False", "ChildrenEdited", text)
    return condition(IN_SYNC, "True", "ChildrenInSync", "")


def counts(reports: Iterable[ClusterReport]) -> ClusterCounts:
    """How many clusters are how far."""
    known = list(reports)
    found = Counter(each.phase for each in known)
    return ClusterCounts(
        total=len(known),
        done=found[ClusterPhase.DONE],
        progressing=found[ClusterPhase.PROGRESSING],
        waiting=found[ClusterPhase.WAITING],
        failed=sum(found[phase] for phase in FAILED),
        unreachable=found[ClusterPhase.UNREACHABLE],
        drifted=sum(each.is_drifted for each in known),
    )


def wave_status(wave: WavePlan, plan: FleetRolloutPlan) -> WaveStatus:
    """How far a wave is."""
    own = counts(plan.reports[name] for name in wave.wave.clusters)
    return WaveStatus(
        name=wave.wave.name,
        state=wave.state,
        message=bounded(wave.message, MESSAGE_BYTES),
        total=own.total,
        done=own.done,
        progressing=own.progressing,
        waiting=own.waiting,
        failed=own.failed,
        unreachable=own.unreachable,
        drifted=own.drifted,
    )


def problems(plan: FleetRolloutPlan) -> list[ClusterProblem]:
    """A few clusters with problems, those that failed first."""
    ranked = sorted(
        (PROBLEMS.index(each.phase), name)
        for name, each in plan.reports.items()
        if each.phase in PROBLEMS
    )
    return [
        ClusterProblem(
            cluster=name,
            state=PROBLEMS[rank].value,
            message=bounded(plan.reports[name].message, PROBLEM_BYTES),
            since=moment(plan.reports[name].since),
        )
        for rank, name in ranked[:PROBLEMS_SHOWN]
    ]


def moment(value: datetime | None) -> str:
    """A moment as Kubernetes writes it; empty when it is not known."""
    return "" if value is None else timestamp(value)
