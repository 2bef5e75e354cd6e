"""Changes by others to what we applied: what changed, who did it, and when it becomes a conflict.

Drift is seen from metadata: a field that we applied and no longer own was changed by a client,
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
    """A field that was changed, and by which field manager; empty when unknown."""

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
        """Who changed it, as far as is known."""
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
    """Another client changes the same field again as often as we repair it."""

    ref: Ref
    field: str
    manager: str
    repairs: int
    """How often it was repaired since it began."""

    def __str__(self) -> str:
        who = f"the field manager {self.manager!r}" if self.manager else "another client"
        what = f"{self.field} of {self.ref}" if self.field else str(self.ref)
        return f"{who} keeps changing {what}: repaired {self.repairs} times so far"


class ConflictRules(Struct, frozen=True):
    """When repairs count as a conflict, and how they are slowed."""

    repairs: int = 3
    """So many repairs of one field within the window are still no conflict."""
    window_seconds: float = 60
    first_delay_seconds: float = 5
    longest_delay_seconds: float = 300


RULES = ConflictRules()


class RepairHistory(Struct):
    """The repairs of one object."""

    times: dict[ChangedField, deque[float]]
    last: float = 0
    total: int = 0
    is_conflict: bool = False
    delay_seconds: float = 0
    next_at: float = 0


class DriftConflicts:
    """Counts repairs, detects conflicts, and tells how long to wait before the next repair."""

    def __init__(self, now: Callable[[], float], rules: ConflictRules = RULES) -> None:
        self.now = now
        self.rules = rules
        self.histories: dict[Ref, RepairHistory] = {}

    def note(self, drift: Drift) -> DriftConflict | None:
        """Record a repair; the conflict that it is a part of, if it is one."""
        now = self.now()
        self.forget(now)
        history = self.histories.setdefault(drift.ref, RepairHistory({}))
        history.last, history.total = now, history.total + 1
        worst, count = ChangedField(""), 0
        for each in drift.touched or (ChangedField(""),):
            times = history.times.setdefault(each, deque())
            times.append(now)
            self.trim(times, now)
            if len(times) > count:
                worst, count = each, len(times)
        # A conflict lasts, however slow, until the object stays unchanged for a whole window.
        if count <= self.rules.repairs and not history.is_conflict:
            return None
        self.slow(history, now)
        return DriftConflict(drift.ref, worst.field, worst.manager, history.total)

    def slow(self, history: RepairHistory, now: float) -> None:
        """Wait twice as long as before."""
        rules = self.rules
        longer = history.delay_seconds * 2 or rules.first_delay_seconds
        history.delay_seconds = min(rules.longest_delay_seconds, longer)
        history.next_at = now + history.delay_seconds
        history.is_conflict = True

    def wait_seconds(self, ref: Ref) -> float:
        """How long the next repair of an object must wait."""
        history = self.histories.get(ref)
        return 0 if history is None else max(0.0, history.next_at - self.now())

    def trim(self, times: deque[float], now: float) -> None:
        """Forget repairs that are too old to count."""
        while times and times[0] <= now - self.rules.window_seconds:
            times.popleft()

    def forget(self, now: float) -> None:
        """Forget objects that stayed unchanged for a window after their last delay."""
        quiet = [
            ref
            for ref, history in self.histories.items()
            if history.last + history.delay_seconds + self.rules.window_seconds <= now
        ]
        for ref in quiet:
            del self.histories[ref]
