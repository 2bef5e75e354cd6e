"""Which clusters get a change now, which wait and why.

The engine keeps nothing: each answer follows from the groups, the strategy, how far the change is
on each cluster, and the time. So a cluster that joins, leaves, fails or recovers in the middle of a
rollout changes the next answer, and nothing else.

A cluster is being changed from the moment that it gets the change until it has succeeded for long
enough, has failed, or has taken too long. A cluster that failed leaves its slot to the next one;
how many may fail is another question.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from knfleet.hub.rollout.rollout_model import Group, Plan, Progress, State, Strategy
from knfleet.hub.rollout.shares import share

CLOCK_SECONDS = 24 * 3600.0
"""By how much the clock of a cluster may be ahead; times after that are not waited for."""
PAUSED = "the rollout is paused"
UNTOUCHED = Progress(State.TO_APPLY)


def plan(
    groups: Sequence[Group],
    strategy: Strategy,
    states: Mapping[str, Progress],
    now: datetime,
    *,
    paused: bool = False,
) -> Plan:
    """What to do now.

    `states` has all clusters that are known to have the change or an earlier one; those that are in
    no group are removed, and those of a group that it does not have are untouched.
    """
    ordered = without_repetitions(sorted(groups, key=lambda group: group.index))
    clusters = [cluster for group in ordered for cluster in group.clusters]
    view = RolloutView(strategy, {each: states.get(each, UNTOUCHED) for each in clusters}, now)
    if paused:
        begun = Begun(stopped=PAUSED)
    elif strategy.type == "All":
        begun = Begun(act=tuple(view.untouched(clusters)))
    else:
        begun = Stages(view, ordered).begin()
    act = frozenset(begun.act)
    reason = begun.stopped or begun.reason
    return Plan(
        act=begun.act,
        progressing=view.found(clusters, State.PROGRESSING),
        waiting={each: reason for each in view.untouched(clusters) if each not in act},
        failed=view.found(clusters, State.FAILED),
        timed_out=view.found(clusters, State.TIMED_OUT),
        done=view.found(clusters, State.SUCCEEDED),
        removed=tuple(sorted(set(states).difference(clusters))),
        stopped=begun.stopped,
        missing_groups=tuple(
            str(reference)
            for reference in strategy.mandatory
            if not any(reference.selects(group) for group in ordered)
        ),
        next_look=view.next_look(),
    )


class Begun(Struct, frozen=True):
    """What is begun now, and why no more is."""

    act: tuple[str, ...] = ()
    reason: str = ""
    """Why others wait."""
    stopped: str = ""
    """Why nothing is begun, though clusters would wait for nothing else."""


class RolloutView:
    """How far the change is on each cluster, with the time taken into account."""

    def __init__(self, strategy: Strategy, states: Mapping[str, Progress], now: datetime) -> None:
        self.strategy = strategy
        self.now = now
        self.moments: list[datetime] = []
        self.states = {cluster: self.judged(state) for cluster, state in states.items()}

    def judged(self, progress: Progress) -> State:
        """What a cluster counts as now."""
        if progress.state is State.SKIPPED:
            return State.SUCCEEDED
        if progress.state is State.SUCCEEDED:
            soak = 0.0 if self.strategy.type == "All" else self.strategy.min_success_seconds
            since = self.believable(progress.since)
            soaked = since is None or self.has_passed(since, soak)
            return State.SUCCEEDED if soaked else State.PROGRESSING
        if progress.state in (State.PROGRESSING, State.FAILED) and progress.since is not None:
            deadline = self.strategy.deadline_seconds
            if deadline is not None and self.has_passed(progress.since, deadline):
                return State.TIMED_OUT
        return progress.state

    def believable(self, since: datetime | None) -> datetime | None:
        """When a cluster says that something was; None for what has yet to come."""
        latest = self.now + timedelta(seconds=CLOCK_SECONDS)
        return None if since is None or since > latest else since

    def has_passed(self, since: datetime, seconds: float) -> bool:
        """Whether something has lasted so long; if not, that moment is one to look again at."""
        moment = since + timedelta(seconds=seconds)
        if moment <= self.now:
            return True
        self.moments.append(moment)
        return False

    def next_look(self) -> datetime | None:
        """The first moment at which time alone changes what a cluster counts as."""
        return min(self.moments, default=None)

    def untouched(self, clusters: Iterable[str]) -> list[str]:
        """Those clusters that do not have the change."""
        return [each for each in clusters if self.states[each] is State.TO_APPLY]

    def found(self, clusters: Iterable[str], state: State) -> tuple[str, ...]:
        """Those clusters that count as something."""
        return tuple(each for each in clusters if self.states[each] is state)

    def failures(self, clusters: Iterable[str]) -> list[str]:
        """Those clusters that failed or took too long."""
        return [each for each in clusters if self.states[each] in (State.FAILED, State.TIMED_OUT)]


class Stages:
    """A rollout in stages: mandatory groups, then the others."""

    def __init__(self, view: RolloutView, groups: Sequence[Group]) -> None:
        self.view = view
        self.strategy = view.strategy
        self.groups = groups
        self.mandatory = [
            group
            for reference in self.strategy.mandatory
            for group in groups
            if reference.selects(group)
        ]
        self.others = [group for group in groups if group not in self.mandatory]

    def begin(self) -> Begun:
        """What is begun now."""
        for group in self.mandatory:
            begun = self.stage(group, allowed=0, kind="mandatory decision group")
            if begun is not None:
                return begun
        if self.strategy.type == "Progressive":
            return self.window()
        for group in self.others:
            allowed = share(self.strategy.max_failures, len(group.clusters))
            begun = self.stage(group, allowed=allowed, kind="decision group")
            if begun is not None:
                return begun
        return Begun()

    def stage(self, group: Group, *, allowed: int, kind: str) -> Begun | None:
        """What is begun for a group as a whole; None when the next one can follow."""
        failures = self.view.failures(group.clusters)
        name = f"{kind} {title(group)}"
        if len(failures) > max(allowed, 0):
            return Begun(stopped=f"{failed(failures)} in {name}, where {tolerated(allowed)}")
        untouched = tuple(self.view.untouched(group.clusters))
        if untouched:
            return Begun(act=untouched, reason=f"{name} must succeed first")
        busy = self.view.found(group.clusters, State.PROGRESSING)
        if busy:
            return Begun(reason=f"{name} must succeed first; waiting for {some(busy)}")
        return None

    def window(self) -> Begun:
        """What is begun of the clusters outside of mandatory groups: so many at a time."""
        clusters = sorted(cluster for group in self.others for cluster in group.clusters)
        total = sum(len(group.clusters) for group in self.groups)
        allowed = share(self.strategy.max_failures, total)
        failures = self.view.failures(clusters)
        if len(failures) > max(allowed, 0):
            return Begun(stopped=f"{failed(failures)}, where {tolerated(allowed)}")
        busy = self.view.found(clusters, State.PROGRESSING)
        slots = concurrency(self.strategy.max_concurrency, total)
        act = tuple(self.view.untouched(clusters)[: max(slots - len(busy), 0)])
        reason = f"at most {slots} clusters are changed at a time"
        return Begun(act=act, reason=f"{reason}; waiting for {some((*busy, *act))}")


def concurrency(value: int | str | None, total: int) -> int:
    """How many clusters are changed at a time; values without sense mean all."""
    wanted = total if value is None else share(value, total)
    return total if wanted <= 0 or wanted > total else wanted


def without_repetitions(groups: Sequence[Group]) -> list[Group]:
    """The groups, with each cluster only in the first that has it."""
    seen: set[str] = set()
    result: list[Group] = []
    for group in groups:
        own = tuple(dict.fromkeys(each for each in group.clusters if each not in seen))
        seen.update(own)
        result.append(Group(group.index, own, group.name))
    return result


def title(group: Group) -> str:
    """A group as messages name it."""
    return group.name or f"number {group.index}"


def failed(clusters: Sequence[str]) -> str:
    """Which clusters failed."""
    return f"{some(clusters)} failed or timed out"


def tolerated(allowed: int) -> str:
    """How many failures are tolerated."""
    return "no failure is tolerated" if allowed <= 0 else f"at most {allowed} may fail"


def some(clusters: Sequence[str]) -> str:
    """The names of a few clusters."""
    few = ", ".join(clusters[:3])
    return few if len(clusters) <= 3 else f"{few} and {len(clusters) - 3} more"
