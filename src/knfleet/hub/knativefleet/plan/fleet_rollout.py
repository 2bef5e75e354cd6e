"""What the plan of a fleet is made from, and what it says."""

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from knfleet.api.knative.resources import Component
from knfleet.hub.knativefleet.plan.child_state import Child
from knfleet.hub.knativefleet.template.fleet_template import DesiredChildren, RenderedChild
from knfleet.hub.rollout.rollout_model import Strategy

Scope = Literal["Failed", "Wave", "All"]


class ClusterPhase(StrEnum):
    """How far a cluster is, as the status counts it."""

    DONE = "Done"
    PROGRESSING = "Progressing"
    WAITING = "Waiting"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    INVALID = "Invalid"
    """Template and overrides make no sense for it, or another fleet has it."""
    UNREACHABLE = "Unreachable"


class ClusterView(Struct, frozen=True, kw_only=True):
    """What is known of one cluster."""

    name: str
    children: Mapping[Component, Child] = {}
    problem: str = ""
    """Why its profile says that it cannot be reached, if that is so."""
    conflict: str = ""
    """Why it cannot be a part of the fleet, if that is so."""


class RolloutWave(Struct, frozen=True):
    """Clusters that are changed before those of the next wave."""

    name: str
    clusters: tuple[str, ...]
    strategy: Strategy
    gates: tuple[str, ...] = ()


class Completed(Struct, frozen=True):
    """A wave that is complete."""

    name: str
    at: datetime
    changed: bool = False


class Rollback(Struct, frozen=True):
    """A revision that is taken back."""

    to: str
    scope: Scope
    wave: str = ""
    since: datetime | None = None
    message: str = ""


class RecordedRollout(Struct, frozen=True, kw_only=True):
    """What the status of the fleet remembers of the rollout of the target revision."""

    started: datetime | None = None
    completed: Mapping[str, Completed] = {}
    rollback: Rollback | None = None
    is_complete: bool = False


class GateView(Struct, frozen=True, kw_only=True):
    """What is known of the gates of the current wave."""

    passed: frozenset[str] = frozenset()
    failed: Mapping[str, str] = {}
    """Gates that will not pass by themselves, and why."""


class FleetRolloutView(Struct, frozen=True, kw_only=True):
    """What is known of a fleet."""

    clusters: Mapping[str, ClusterView]
    waves: tuple[RolloutWave, ...]
    strategy: Strategy
    """What counts outside of waves."""
    target: str
    """The revision that the spec asks for."""
    good: str = ""
    """The last revision whose rollout was complete."""
    record: RecordedRollout = RecordedRollout()
    desired: Callable[[str, str], DesiredChildren]
    """What a revision means for a cluster."""
    leaving: tuple[Child, ...] = ()
    """Children of clusters that are not in the fleet any more, for certain."""
    rollback_scope: Scope | None = None
    """What is rolled back when the rollout fails; None: nothing."""
    between_seconds: float = 0.0
    paused: bool = False
    promoted: str = ""
    """The wave that no longer waits for time or gates."""
    retried: datetime | None = None
    """When a user last asked to try again."""
    enforces: bool = True
    """Whether edited children are reverted."""
    joins_at_once: bool = True
    """Whether a new cluster gets the last good revision before its wave."""
    gates: Mapping[str, GateView] = {}
    """By wave."""


class ChildWrite(Struct, frozen=True, kw_only=True):
    """A child to be written."""

    cluster: str
    component: Component
    revision: str
    rendered: RenderedChild
    suspended: str = ""
    child: Child | None = None
    """The object that there is; None: a new one is made."""
    reverts: bool = False
    """Whether it only takes back what others edited."""


class ClusterReport(Struct, frozen=True):
    """How far a cluster is, in words."""

    phase: ClusterPhase
    message: str = ""
    since: datetime | None = None
    is_drifted: bool = False


class WavePlan(Struct, frozen=True):
    """How far a wave is."""

    wave: RolloutWave
    state: str
    message: str = ""


class FleetRolloutPlan(Struct, frozen=True, kw_only=True):
    """What to do for a fleet now."""

    writes: tuple[ChildWrite, ...] = ()
    deletes: tuple[Child, ...] = ()
    """Children whose component is no longer in the template, or whose cluster left."""
    completed: Mapping[str, Completed] = {}
    """All waves that are complete; what is new must be recorded before the next begins."""
    rollback: Rollback | None = None
    is_rolling_back: bool = False
    """Whether clusters are still to get the last good revision back."""
    is_complete: bool = False
    must_record: bool = False
    """Whether the record changes, so that nothing else is begun before it is written."""
    halted: str = ""
    """Why nothing goes on by itself."""
    reports: Mapping[str, ClusterReport] = {}
    waves: tuple[WavePlan, ...] = ()
    current: str = ""
    """The wave that is in progress."""
    waits_for_gates: tuple[str, ...] = ()
    changing: frozenset[str] = frozenset()
    """Clusters that are being changed, those begun now included."""
    next_look: datetime | None = None

    @property
    def done_clusters(self) -> frozenset[str]:
        """The clusters of the current wave that are done."""
        return frozenset(
            name
            for each in self.waves
            if each.wave.name == self.current
            for name in each.wave.clusters
            if self.reports[name].phase is ClusterPhase.DONE
        )
