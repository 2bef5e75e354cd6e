"""The rollout strategy of Open Cluster Management: in which order clusters get a change.

It is a part of the kinds that bring something to the clusters of a Placement.
"""

from typing import Annotated, Literal

from msgspec import Struct

from knfleet.api.schema import Int32, IntOrString, doc

NO_DEADLINE = "None"
DEADLINE = "^(([0-9])+[h|m|s])|None$"
SHARE = "^((100|[0-9]{1,2})%|[0-9]+)$"


class MandatoryGroup(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A decision group that gets a change before all others, and tolerates no failure."""

    group_name: Annotated[str, doc("Name of the decision group.")] = ""
    group_index: Annotated[Int32, doc("Index of the decision group, if no name is given.")] = 0


class RolloutAll(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Parameters of type All."""

    min_success_time: Annotated[
        str, doc("How long a cluster must have succeeded to count as done, as 5m.")
    ] = "0"
    progress_deadline: Annotated[
        str,
        doc("How long a cluster may take, as 10m; None: as long as it takes.", pattern=DEADLINE),
    ] = NO_DEADLINE
    max_failures: Annotated[
        IntOrString,
        doc(
            "How many clusters may fail or time out before nothing new is started, as a number or"
            " a percentage. Without effect for type All.",
            pattern=SHARE,
            **{"x-default": 0},
        ),
    ] = 0


class RolloutPerGroup(RolloutAll, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Parameters of type ProgressivePerGroup."""

    mandatory_decision_groups: Annotated[
        list[MandatoryGroup], doc("Decision groups that must succeed first, in their order.")
    ] = []


class RolloutProgressive(
    RolloutPerGroup, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """Parameters of type Progressive."""

    max_concurrency: Annotated[
        IntOrString | None,
        doc(
            "How many clusters are changed at a time, as a number or a percentage; by default the"
            " clustersPerDecisionGroup of the Placement.",
            pattern=SHARE,
        ),
    ] = None


class RolloutStrategy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """In which order the clusters of a Placement get a change."""

    type: Annotated[
        Literal["All", "Progressive", "ProgressivePerGroup"],
        doc("All at once, some clusters at a time, or decision group by decision group."),
    ] = "All"
    all: Annotated[RolloutAll | None, doc("Parameters of type All.")] = None
    progressive: Annotated[RolloutProgressive | None, doc("Parameters of type Progressive.")] = None
    progressive_per_group: Annotated[
        RolloutPerGroup | None, doc("Parameters of type ProgressivePerGroup.")
    ] = None
