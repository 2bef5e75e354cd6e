"""Conditions of KnativeServing and KnativeEventing: pure functions on lists of them.

`Ready` sums up the other types. A list stays sorted by type; a condition's `lastTransitionTime`
changes when its status, reason or message does, and at no other time.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from knfleet.api.schema import doc
from knfleet.api.texts import bounded

Status = Literal["True", "False", "Unknown"]

READY = "Ready"
DEPENDENCIES_INSTALLED = "DependenciesInstalled"
DEPLOYMENTS_AVAILABLE = "DeploymentsAvailable"
INSTALL_SUCCEEDED = "InstallSucceeded"
TARGET_CLUSTER_RESOLVED = "TargetClusterResolved"
VERSION_MIGRATION_ELIGIBLE = "VersionMigrationEligible"
PAUSED = "Paused"
"""Set only while the installation is paused; it does not affect `Ready`."""

DEPENDENTS = (
    DEPENDENCIES_INSTALLED,
    DEPLOYMENTS_AVAILABLE,
    INSTALL_SUCCEEDED,
    TARGET_CLUSTER_RESOLVED,
    VERSION_MIGRATION_ELIGIBLE,
)
"""The types that `Ready` sums up."""


class Condition(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One aspect of an object's state."""

    type: Annotated[str, doc("Type of the condition.")]
    status: Annotated[Status, doc("True, False or Unknown.")]
    severity: Annotated[str, doc("Empty for an error, else Warning or Info.")] = ""
    last_transition_time: Annotated[
        str, doc("When status, reason or message last changed.", format="date-time")
    ] = ""
    reason: Annotated[str, doc("Reason in one word, CamelCase.")] = ""
    message: Annotated[str, doc("Message for users.")] = ""

    def __post_init__(self) -> None:
        force_setattr(self, "message", bounded(self.message))

    def same(self, other: "Condition") -> bool:
        """Whether both say the same, whatever their times are."""
        return replace(self, last_transition_time="") == replace(other, last_transition_time="")


Conditions = Sequence[Condition]


def timestamp(moment: datetime) -> str:
    """A moment as Kubernetes writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether the condition of a type is there and True."""
    condition = find(conditions, type_)
    return condition is not None and condition.status == "True"


def initialize(conditions: Conditions, now: datetime) -> list[Condition]:
    """Every type present: new ones Unknown, or True when the whole was Ready already.

    So a release that brings a new type does not make what is installed un-ready.
    """
    status: Status = "True" if is_true(conditions, READY) else "Unknown"
    result = list(conditions)
    for type_ in (READY, *DEPENDENTS):
        if find(result, type_) is None:
            result = put(result, Condition(type=type_, status=status), now)
    return sorted(result, key=by_type)


def mark_true(conditions: Conditions, type_: str, now: datetime) -> list[Condition]:
    """The condition is True without a reason, and `Ready` is summed up anew."""
    return sum_up(put(conditions, Condition(type=type_, status="True"), now), now)


def mark_unknown(
    conditions: Conditions, type_: str, *, reason: str, message: str, now: datetime
) -> list[Condition]:
    """The condition is Unknown, and `Ready` is summed up anew."""
    marked = Condition(type=type_, status="Unknown", reason=reason, message=message)
    return sum_up(put(conditions, marked, now), now)


def mark_false(
    conditions: Conditions, type_: str, *, reason: str, message: str, now: datetime
) -> list[Condition]:
    """The condition and `Ready` are both False, with the same reason and message."""
    marked = Condition(type=type_, status="False", reason=reason, message=message)
    return put(put(conditions, marked, now), replace(marked, type=READY), now)


def sum_up(conditions: Conditions, now: datetime) -> list[Condition]:
    """`Ready` says what the newest False dependent says, else the newest Unknown one, else True."""
    present = [condition for condition in conditions if condition.type in DEPENDENTS]
    worst = newest(present, "False") or newest(present, "Unknown")
    if worst is not None:
        ready = replace(worst, type=READY)
    elif len(present) < len(DEPENDENTS):
        ready = Condition(type=READY, status="Unknown")
    else:
        ready = Condition(type=READY, status="True")
    return put(conditions, ready, now)


def newest(conditions: Conditions, status: Status) -> Condition | None:
    """Of those with a status the one that changed last; of several the first by type."""
    alike = sorted((c for c in conditions if c.status == status), key=by_type)
    return max(alike, key=lambda condition: condition.last_transition_time, default=None)


def put(conditions: Conditions, new: Condition, now: datetime) -> list[Condition]:
    """The list with one condition replaced, untouched where it would say the same."""
    old = find(conditions, new.type)
    if old is not None and old.same(new):
        return sorted(conditions, key=by_type)
    others = [condition for condition in conditions if condition.type != new.type]
    changed = replace(new, last_transition_time=timestamp(now))
    return sorted([*others, changed], key=by_type)


def same(one: Conditions, other: Conditions) -> bool:
    """Whether two lists say the same, whatever their times are."""
    return len(one) == len(other) and all(
        left.same(right)
        for left, right in zip(sorted(one, key=by_type), sorted(other, key=by_type), strict=True)
    )


def by_type(condition: Condition) -> str:
    """The order in which conditions are stored."""
    return condition.type
