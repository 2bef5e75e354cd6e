"""A fleet without a server: children that an imaginary operator works on, and faults at random."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.meta import Key, Object
from knfleet.hub.knativefleet.plan.child_state import Child
from knfleet.hub.knativefleet.plan.fleet_plan import plan_fleet
from knfleet.hub.knativefleet.plan.fleet_rollout import (
    ChildWrite,
    ClusterView,
    FleetRolloutPlan,
    FleetRolloutView,
    RecordedRollout,
    RolloutWave,
)
from knfleet.hub.knativefleet.template.fleet_template import DesiredChildren, SpecValue, desired
from knfleet.hub.knativefleet.template.variables import ProfileFacts
from knfleet.hub.rollout.rollout_model import Strategy

START = datetime(2026, 1, 1, tzinfo=UTC)
DEADLINE = 600.0


def content(revision: str) -> Object:
    """The content of a revision; its name says all: `1.23` and `1.23+eventing`."""
    version, _, more = revision.partition("+")
    found: Object = {"serving": {"spec": {"version": version}}}
    if more == "eventing":
        found["eventing"] = {"spec": {"version": version}}
    return found


@cache
def meaning(revision: str, cluster: str) -> DesiredChildren:
    """What a revision means for a cluster."""
    return desired(content(revision), ProfileFacts(cluster), Key("fleet", cluster))


class Machine(Struct):
    """A cluster as it is, whatever the hub knows."""

    name: str
    children: dict[str, Child] = {}
    installed: dict[str, SpecValue | None] = {}
    """What is really installed, and works."""
    is_alive: bool = True
    is_known_dead: bool = False
    """Whether its profile says so."""


class World:
    """A fleet, and everything that happens to it."""

    def __init__(self, waves: Sequence[Sequence[str]], limit: int, **view: Any) -> None:
        self.now = START
        self.machines = {name: Machine(name) for wave in waves for name in wave}
        self.waves = [list(wave) for wave in waves]
        self.limit = limit
        self.strategy = Strategy(
            type="Progressive",
            max_concurrency=limit,
            max_failures=view.pop("max_failures", 0),
            min_success_seconds=view.pop("soak", 0.0),
            deadline_seconds=DEADLINE,
        )
        self.view_fields = view
        self.target = "1.20"
        self.good = ""
        self.record = RecordedRollout(started=START)
        self.broken: set[tuple[str, str]] = set()
        """Clusters on which a revision never becomes ready."""
        self.paused = False

    def view(self) -> FleetRolloutView:
        """What the hub knows."""
        clusters: dict[str, ClusterView] = {
            name: ClusterView(
                name=name,
                children=machine.children,  # pyright: ignore[reportArgumentType]
                problem="the profile is not healthy" if machine.is_known_dead else "",
            )
            for name, machine in self.machines.items()
        }
        waves = tuple(
            RolloutWave(f"w{index}", tuple(names), self.strategy)
            for index, names in enumerate(self.waves)
        )
        return FleetRolloutView(
            clusters=clusters,
            waves=waves,
            strategy=self.strategy,
            target=self.target,
            good=self.good,
            record=self.record,
            desired=meaning,
            paused=self.paused,
            **self.view_fields,
        )

    def act(self, *, until: int | None = None) -> FleetRolloutPlan:
        """One pass of the hub; it is killed after so many writes, or before it records."""
        plan = plan_fleet(self.view(), self.now)
        if plan.must_record and until is None:
            self.record_plan(plan)
        for write in plan.writes[:until]:
            self.check_write(write)
            self.write(write)
        for child in plan.deletes if until is None else ():
            for machine in self.machines.values():
                if machine.children.get(child.component) is child:
                    del machine.children[child.component]
        self.check()
        return plan

    def record_plan(self, plan: FleetRolloutPlan) -> None:
        """What the status remembers."""
        if plan.is_complete:
            self.good = self.target
        self.record = replace(
            self.record,
            completed=plan.completed,
            rollback=plan.rollback,
            is_complete=plan.is_complete,
        )

    def write(self, write: ChildWrite) -> None:
        """What the API server has after a write."""
        machine = self.machines[write.cluster]
        old = machine.children.get(write.component)
        base = old or Child(component=write.component, key=Key("ns", write.cluster))
        is_same = old is not None and old.value == write.rendered.value and not write.suspended
        machine.children[write.component] = replace(
            base,
            fleet="fleet",
            revision=write.revision,
            hash=write.rendered.hash,
            started=self.now,
            suspended=write.suspended,
            value=write.rendered.value,
            is_settled=is_same and base.is_settled and base.suspended == "",
        )

    def work(self, name: str) -> None:
        """The operator works on a cluster."""
        machine = self.machines.get(name)
        if machine is None:
            return
        for component, child in machine.children.items():
            if child.suspended:
                continue
            if not machine.is_alive:
                since = child.lost_since or self.now
                changed = replace(child, lost="no answer", lost_since=since, is_settled=False)
                machine.children[component] = changed
                continue
            was_ready = machine.installed.get(component) == child.value
            is_ready = was_ready or (name, child.revision) not in self.broken
            machine.children[component] = replace(
                child,
                lost="",
                lost_since=None,
                is_settled=is_ready,
                ready_since=(child.ready_since if child.is_settled else self.now),
                installed=child.version if is_ready else child.installed,
            )
            if is_ready:
                machine.installed[component] = child.value

    def change(self, revision: str) -> None:
        """A user changes the template."""
        if revision != self.target:
            self.target = revision
            self.record = RecordedRollout(started=self.now)

    def changing(self) -> set[str]:
        """Clusters that are really being changed."""
        return {
            name
            for name, machine in self.machines.items()
            if machine.is_alive
            and any(
                machine.installed.get(component) != child.value
                and not child.suspended
                and child.started is not None
                and self.now < child.started + timedelta(seconds=DEADLINE)
                for component, child in machine.children.items()
            )
        }

    def check_write(self, write: ChildWrite) -> None:
        """No cluster gets a revision that it must not have."""
        if write.suspended:
            return
        machine = self.machines[write.cluster]
        has = {child.revision for child in machine.children.values()}
        if write.revision == self.target and self.target not in has:
            index = next(i for i, names in enumerate(self.waves) if write.cluster in names)
            done = set(self.record.completed)
            assert {f"w{i}" for i in range(index) if self.waves[i]} <= done, (
                "an earlier wave is open"
            )
            assert self.record.rollback is None, "a revision that is taken back"
        if has == {self.target} and write.revision != self.target:
            rollback = self.record.rollback
            assert rollback is not None, "a second revision on a cluster that has the target"
            assert write.revision == rollback.to

    def check(self) -> None:
        """No more clusters are in change than may be."""
        assert len(self.changing()) <= self.limit, sorted(self.changing())
