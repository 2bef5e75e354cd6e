"""A fleet as a person looks at it: rollout, waves, clusters. Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from knfleet.api.conditions import find, is_true
from knfleet.api.fleet.fleet_names import READY, ROLLED_OUT
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.knative.resources import Component
from knfleet.apply.manifest_fields import part
from knfleet.hub.knativefleet.plan.child_state import Child
from knfleet.hub.knativefleet.template.fleet_template import COMPONENTS
from knfleet.hub.knativefleet.template.revisions import Revision
from knfleet.view.fleet_model import Stand
from knfleet.view.knativefleet.fleet_snapshot import FleetSnapshot

FAILED_PHASES = ("RolloutHalted", "RolledBack", "RollbackProgressing", "InvalidFleet")


class WaveRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One wave of a rollout."""

    name: str
    state: str
    total: int
    done: int
    progressing: int
    waiting: int
    failed: int
    unreachable: int
    message: str = ""


class FleetClusterRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One cluster of a fleet, as its children say."""

    cluster: str
    stand: Stand
    revision: int = 0
    """The number of its revision; 0: it is not in the history."""
    version: str = ""
    state: str = ""
    message: str = ""
    since: str = ""


class FleetOverview(Struct, frozen=True, kw_only=True, rename="camel"):
    """A fleet."""

    name: str
    stand: Stand
    phase: str
    message: str
    revision: int = 0
    last_good: int = 0
    total: int = 0
    done: int = 0
    failed: int = 0
    is_ready: bool = False
    is_complete: bool = False
    is_stopped: bool = False
    """Whether nothing goes on without a user."""
    paused: bool = False
    current: str = ""
    """The current wave."""
    waves: tuple[WaveRow, ...] = ()
    clusters: tuple[FleetClusterRow, ...] = ()
    created: str = ""


class HistoryRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One revision."""

    number: int
    revision: str
    serving: str = ""
    eventing: str = ""
    overrides: int = 0
    created: str = ""
    state: str = ""


def overview(
    fleet: KnativeFleet, revisions: Iterable[Revision] = (), snapshot: FleetSnapshot | None = None
) -> FleetOverview:
    """A fleet as its status says; with a snapshot, with its clusters."""
    status = fleet.status
    numbers = {each.hash: each.number for each in revisions}
    rolled_out = find(status.conditions, ROLLED_OUT)
    is_current = fleet.is_observed
    phase = status.phase if is_current else "RolloutProgressing"
    is_complete = is_current and is_true(status.conditions, ROLLED_OUT)
    stopped = is_current and phase in FAILED_PHASES and phase != "RollbackProgressing"
    stand: Stand = "ok" if is_complete else "busy"
    if phase in FAILED_PHASES or status.clusters.failed:
        stand = "bad"
    message = "" if rolled_out is None else rolled_out.message
    open_waves = [each.name for each in status.waves if each.state != "Complete"]
    return FleetOverview(
        name=fleet.metadata.name,
        stand=stand,
        phase=phase or "Unknown",
        message=message if is_current else "the hub has not looked at the change yet",
        revision=status.rollout.number,
        last_good=numbers.get(status.last_good_revision, 0),
        total=status.clusters.total,
        done=status.clusters.done,
        failed=status.clusters.failed,
        is_ready=is_true(status.conditions, READY),
        is_complete=is_complete,
        is_stopped=stopped,
        paused=fleet.spec.paused,
        current=open_waves[0] if open_waves and not is_complete else "",
        waves=tuple(
            WaveRow(
                name=each.name,
                state=each.state,
                total=each.total,
                done=each.done,
                progressing=each.progressing,
                waiting=each.waiting,
                failed=each.failed,
                unreachable=each.unreachable,
                message=each.message,
            )
            for each in status.waves
        ),
        clusters=() if snapshot is None else cluster_rows(fleet, numbers, snapshot),
        created=fleet.metadata.creation_timestamp,
    )


def cluster_rows(
    fleet: KnativeFleet, numbers: dict[str, int], snapshot: FleetSnapshot
) -> tuple[FleetClusterRow, ...]:
    """A row for each cluster that has a child, and for each with a problem."""
    found: dict[str, dict[Component, Child]] = {}
    for component in COMPONENTS:
        for each in snapshot.of_fleet(component, fleet.metadata.name):
            child = snapshot.child(each, component)
            found.setdefault(child.profile.name, {})[component] = child
    problems = {each.cluster: each for each in fleet.status.problems}
    rows: list[FleetClusterRow] = []
    for name in sorted({*found, *problems}):
        children = found.get(name, {})
        ready = bool(children) and all(child.is_settled for child in children.values())
        first = next(iter(children.values()), None)
        problem = problems.get(name)
        late = [each.message for each in children.values() if not each.is_settled and each.message]
        stand: Stand = "bad" if problem is not None else "ok" if ready else "busy"
        rows.append(
            FleetClusterRow(
                cluster=name,
                stand=stand,
                revision=0 if first is None else numbers.get(first.revision, 0),
                version=", ".join(sorted({each.installed for each in children.values()} - {""})),
                state=problem.state if problem else "Ready" if ready else "Progressing",
                message=problem.message if problem else next(iter(late), ""),
                since=written(first.started if first is not None else None),
            )
        )
    return tuple(rows)


def written(moment: datetime | None) -> str:
    """A moment for programs; empty when it is not known."""
    return "" if moment is None else moment.astimezone(UTC).isoformat()


def history(fleet: KnativeFleet, revisions: Sequence[Revision]) -> tuple[HistoryRow, ...]:
    """The revisions of a fleet, the newest last."""
    rollback = fleet.status.rollout.rollback
    rows: list[HistoryRow] = []
    for each in revisions:
        states: list[str] = []
        if each.hash == fleet.status.rollout.revision:
            states.append("rolled back" if rollback is not None else "current")
        if each.hash == fleet.status.last_good_revision:
            states.append("last good")
        rows.append(
            HistoryRow(
                number=each.number,
                revision=each.hash,
                serving=version_in(each, "serving"),
                eventing=version_in(each, "eventing"),
                overrides=len(each.content.get("overrides") or []),
                created=each.created,
                state=", ".join(states),
            )
        )
    return tuple(rows)


def version_in(revision: Revision, component: Component) -> str:
    """The version that a revision has for a component; empty when it does not have it."""
    if not revision.content.get(component):
        return ""
    return str(part(revision.content, component, "spec").get("version") or "newest")
