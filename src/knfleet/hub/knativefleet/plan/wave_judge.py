"""How far a wave is that is not complete, and what keeps it from being so. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from knfleet.hub.knativefleet.plan.cluster_state import RevisionState
from knfleet.hub.knativefleet.plan.fleet_rollout import (
    Completed,
    FleetRolloutView,
    GateView,
    Rollback,
    RolloutWave,
)
from knfleet.hub.rollout.rollout_model import Group, Plan, State
from knfleet.hub.rollout.rollout_plan import plan

UNTRIED = (
    "no cluster of the wave can be reached, and no cluster has the revision yet;"
    " make one reachable, or go on with knfleet fleet promote"
)


class WaveResult(Struct, frozen=True, kw_only=True):
    """What the engine says of a wave, and what keeps it from being complete."""

    plan: Plan
    state: str
    message: str = ""
    failure: str = ""
    is_complete: bool = False
    gates: tuple[str, ...] = ()


class WaveJudge:
    """Judges waves at one moment."""

    def __init__(
        self,
        view: FleetRolloutView,
        now: datetime,
        states: Mapping[str, RevisionState],
        *,
        deferred: frozenset[str],
    ) -> None:
        self.view = view
        self.now = now
        self.states = states
        self.deferred = deferred
        """Clusters that are left out until they can be reached."""
        self.moments: list[datetime] = []
        """When time alone changes the judgement."""

    def judge(
        self, wave: RolloutWave, previous: Completed | None, rollback: Rollback | None
    ) -> WaveResult:
        """How far a wave is that is not complete."""
        view = self.view
        is_promoted = view.promoted == wave.name
        strategy = replace(wave.strategy, min_success_seconds=0.0) if is_promoted else wave.strategy
        active = tuple(name for name in wave.clusters if name not in self.deferred)
        states = {name: self.states[name].progress for name in active}
        found = plan([Group(0, active, wave.name)], strategy, states, self.now, paused=view.paused)
        if found.next_look is not None:
            self.moments.append(found.next_look)
        if rollback is not None:
            return WaveResult(plan=found, state="RolledBack", message=rollback.message)
        if found.stopped and not view.paused:
            return WaveResult(
                plan=found, state="Halted", message=found.stopped, failure=found.stopped
            )
        delay = None if is_promoted or previous is None else self.delay(previous)
        if delay is not None and found.act:
            self.moments.append(delay)
            text = f"waits until {delay:%Y-%m-%dT%H:%M:%SZ} before it begins"
            return WaveResult(plan=replace(found, act=()), state="Waiting", message=text)
        if not found.complete:
            return WaveResult(plan=found, state=self.activity(found), message=self.waits_for(found))
        if not is_promoted and wave.clusters and not active and not self.is_tried():
            return WaveResult(plan=found, state="Waiting", message=UNTRIED)
        return self.gated(wave, found, is_promoted=is_promoted)

    def gated(self, wave: RolloutWave, found: Plan, *, is_promoted: bool) -> WaveResult:
        """A wave whose clusters are done: complete, unless a gate is not passed."""
        gates = self.view.gates.get(wave.name, GateView())
        left = tuple(each for each in wave.gates if each not in gates.passed)
        if not left or is_promoted:
            return WaveResult(plan=found, state="Complete", is_complete=True)
        failed = "; ".join(
            f"gate {each}: {gates.failed[each]}" for each in left if each in gates.failed
        )
        if failed:
            return WaveResult(plan=found, state="Halted", message=failed, failure=failed)
        text = f"waits for gate {', '.join(left)}"
        return WaveResult(plan=found, state="Gated", message=text, gates=left)

    def is_tried(self) -> bool:
        """Whether a cluster has succeeded with the revision."""
        return any(each.progress.state is State.SUCCEEDED for each in self.states.values())

    def delay(self, previous: Completed) -> datetime | None:
        """Until when the next wave waits; None when it may begin."""
        if not previous.changed or not self.view.between_seconds:
            return None
        moment = previous.at + timedelta(seconds=self.view.between_seconds)
        return moment if moment > self.now else None

    def activity(self, found: Plan) -> str:
        """What a wave that is not complete does."""
        soaking = found.progressing and all(
            self.states[name].progress.state is State.SUCCEEDED for name in found.progressing
        )
        return "Soaking" if soaking and not found.act and not found.waiting else "Progressing"

    def waits_for(self, found: Plan) -> str:
        """What a wave waits for, in words."""
        few = ", ".join(found.progressing[:3])
        more = len(found.progressing) - 3
        names = f"{few} and {more} more" if more > 0 else few
        soaking = [
            name
            for name in found.progressing
            if self.states[name].progress.state is State.SUCCEEDED
        ]
        if found.stopped:
            return found.stopped
        if names and len(soaking) == len(found.progressing):
            return f"{names} must stay ready for minSuccessTime"
        return f"waits for {names}" if names else ""

    def was_changed(self, wave: RolloutWave) -> bool:
        """Whether a cluster of a wave was changed by this rollout."""
        started = self.view.record.started
        return any(
            child.started is not None and (started is None or child.started >= started)
            for name in wave.clusters
            for child in self.view.clusters[name].children.values()
        )
