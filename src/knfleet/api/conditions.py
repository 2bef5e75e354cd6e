"""The standard condition of Kubernetes (metav1.Condition), as the fleet's kinds carry it.

It differs from the Knative one: `lastTransitionTime` changes with the status alone, and what the
CRDs of Open Cluster Management demand is written also when it is empty. A generation of zero is
left out, as Go clients do when they write a list of conditions back.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from knfleet.api.knative.conditions import Status, timestamp
from knfleet.api.schema import doc
from knfleet.api.texts import CONDITION_BYTES, bounded

BY_TYPE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


class StandardCondition(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One aspect of an object's state."""

    type: Annotated[str, doc("Type of the condition.", maxLength=316)]
    status: Annotated[Status, doc("True, False or Unknown.")]
    # A factory's default is not left out, unlike a value.
    reason: Annotated[str, doc("Reason in one word, CamelCase.", maxLength=1024)] = field(
        default_factory=str
    )
    message: Annotated[str, doc("Message for users.", maxLength=CONDITION_BYTES)] = field(
        default_factory=str
    )
    last_transition_time: Annotated[
        str, doc("When the status last changed.", format="date-time")
    ] = field(default_factory=str)
    observed_generation: Annotated[
        int, doc("Generation that the condition was set for.", format="int64", minimum=0)
    ] = 0

    def __post_init__(self) -> None:
        force_setattr(self, "message", bounded(self.message))

    def same(self, other: "StandardCondition") -> bool:
        """Whether both say the same, whatever their times are."""
        return replace(self, last_transition_time="") == replace(other, last_transition_time="")


StandardConditions = Sequence[StandardCondition]


def find(conditions: Iterable[StandardCondition], type_: str) -> StandardCondition | None:
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: Iterable[StandardCondition], type_: str) -> bool:
    """Whether the condition of a type is there and True."""
    condition = find(conditions, type_)
    return condition is not None and condition.status == "True"


def put(
    conditions: StandardConditions, new: StandardCondition, now: datetime
) -> list[StandardCondition]:
    """The list with one condition replaced or added, in its old order."""
    old = find(conditions, new.type)
    if old is not None and old.same(new):
        return list(conditions)
    moment = timestamp(now)
    if old is not None and old.status == new.status and old.last_transition_time:
        moment = old.last_transition_time
    changed = replace(new, last_transition_time=moment)
    if old is None:
        return [*conditions, changed]
    return [changed if condition is old else condition for condition in conditions]
