"""Changes by others to what we applied: what changed, who did it, and when it becomes a fight.

Drift is seen from metadata: a field that we applied and no longer own was changed by somebody,
whose own set of fields tells the name. A field that was removed leaves no name behind.
"""

from collections import deque
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from knfleet.apply.desired import Desired
from knfleet.apply.observe.metadata import ObservedObject
from knfleet.apply.plan.field_sets import UnownedField, contains, set_of
from knfleet.apply.plan.steps import StepAction, StepContext, decide
from knfleet.apply.refs import Ref


class ChangedField(Struct, frozen=True, order=True):
    """A field that was changed, and by which field manager; empty when nobody can tell."""

    field: str
    manager: str = ""

    def __str__(self) -> str:
        return f"{self.field} by {self.manager}" if self.manager else self.field


class Drift(Struct, frozen=True):
    """One object that is no longer as we applied it."""

    ref: Ref
    kind: Literal["deleted", "changed"]
    touched: tuple[ChangedField, ...] = ()

    @property
    def managers(self) -> list[str]:
        """Who changed it, as far as can be told."""
        return sorted({each.manager for each in self.touched if each.manager})

    def __str__(self) -> str:
        if self.kind == "deleted":
            return f"{self.ref} was deleted"
        fields = ", ".join(map(str, self.touched)) or "fields that are ours"
        return f"{self.ref} was changed: {fields}"


def drift(desired: Desired, observed: ObservedObject | None, context: StepContext) -> Drift | None:
    """How an object that we applied differs from it; None when it does not, or is another's now."""
    step = decide(desired, observed, context)
    if step.verdict == StepAction.CREATE:
        return Drift(desired.ref, "deleted")
    if step.verdict not in {StepAction.CONFIGURE, StepAction.ADOPT} or observed is None:
        return None
    return Drift(desired.ref, "changed", touched(observed, step.missing))


def touched(
    observed: ObservedObject, missing: tuple[UnownedField, ...]
) -> tuple[ChangedField, ...]:
    """Each missing field with the managers that have it now."""
    others = [(str(entry.get("manager", "")), set_of(entry)) for entry in observed.others]
    found: list[ChangedField] = []
    for each in missing:
        managers = {name for name, fields in others if contains(fields, each.path)}
        found += [ChangedField(each.field, name) for name in sorted(managers) or [""]]
    return tuple(found)


class DriftConflict(Struct, frozen=True):
    """Somebody changes the same field again as often as we repair it."""

    ref: Ref
    field: str
    manager: str
    repairs: int
    """How often it was repaired since it began."""

    def __str__(self) -> str:
        who = f"the field manager {self.manager!r}" if self.manager else "somebody"
        what = f"{self.field} of {self.ref}" if self.field else str(self.ref)
        return f"{who} keeps changing {what}: repaired {self.repairs} times so far"


class ConflictRules(Struct, frozen=True):
    """When repairs become a fight, and how it is slowed."""

    repairs: int = 3
    """So many repairs of one field within the window are still no fight."""
    window_seconds: float = 60
    first_delay_seconds: float = 5
    longest_delay_seconds: float = 300


RULES = ConflictRules()


class RepairHistory(Struct):
    """The repairs of one object."""

    times: dict[ChangedField, deque[float]]
    last: float = 0
    total: int = 0
    fighting: bool = False
    delay_seconds: float = 0
    next_at: float = 0


class DriftConflicts:
    """Counts repairs, sees fights, and says how long to wait before the next repair."""

    def __init__(self, now: Callable[[], float], rules: ConflictRules = RULES) -> None:
        self.now = now
        self.rules = rules
        self.contests: dict[Ref, RepairHistory] = {}

    def note(self, drift: Drift) -> DriftConflict | None:
        """Take note of a repair; the fight that it is a part of, if it is one."""
        now = self.now()
        self.forget(now)
        contest = self.contests.setdefault(drift.ref, RepairHistory({}))
        contest.last, contest.total = now, contest.total + 1
        worst, count = ChangedField(""), 0
        for each in drift.touched or (ChangedField(""),):
            times = contest.times.setdefault(each, deque())
            times.append(now)
            self.trim(times, now)
            if len(times) > count:
                worst, count = each, len(times)
        # A fight goes on, however slowly, until the object is left in peace for a whole window.
        if count <= self.rules.repairs and not contest.fighting:
            return None
        self.slow(contest, now)
        return DriftConflict(drift.ref, worst.field, worst.manager, contest.total)

    def slow(self, contest: RepairHistory, now: float) -> None:
        """Wait twice as long as before."""
        rules = self.rules
        longer = contest.delay_seconds * 2 or rules.first_delay_seconds
        contest.delay_seconds = min(rules.longest_delay_seconds, longer)
        contest.next_at = now + contest.delay_seconds
        contest.fighting = True

    def wait_seconds(self, ref: Ref) -> float:
        """How long the next repair of an object must wait."""
        contest = self.contests.get(ref)
        return 0 if contest is None else max(0.0, contest.next_at - self.now())

    def trim(self, times: deque[float], now: float) -> None:
        """Forget repairs that are too old to count."""
        while times and times[0] <= now - self.rules.window_seconds:
            times.popleft()

    def forget(self, now: float) -> None:
        """Forget objects that have been left in peace for a window after their last delay."""
        quiet = [
            ref
            for ref, contest in self.contests.items()
            if contest.last + contest.delay_seconds + self.rules.window_seconds <= now
        ]
        for ref in quiet:
            del self.contests[ref]
