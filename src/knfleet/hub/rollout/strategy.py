"""The rollout strategy of the API as the engine reads it."""

from collections.abc import Sequence

from knfleet.api import durations
from knfleet.api.cluster.rollout import (
    NO_DEADLINE,
    MandatoryGroup,
    RolloutAll,
    RolloutPerGroup,
    RolloutProgressive,
    RolloutStrategy,
)
from knfleet.hub.rollout.rollout_model import GroupReference, Strategy
from knfleet.hub.rollout.shares import is_share


class WrongStrategy(ValueError):
    """A rollout strategy that makes no sense; the message names the field."""


def strategy_of(written: RolloutStrategy, clusters_per_group: int | str = "100%") -> Strategy:
    """The strategy that an object asks for; raises WrongStrategy.

    `clusters_per_group` is what the Placement says, the default of maxConcurrency.
    """
    if written.type == "Progressive":
        progressive = written.progressive or RolloutProgressive()
        concurrency = progressive.max_concurrency
        return Strategy(
            type="Progressive",
            mandatory=references(progressive.mandatory_decision_groups),
            max_concurrency=checked_share(
                "maxConcurrency", clusters_per_group if concurrency is None else concurrency
            ),
            max_failures=checked_share("maxFailures", progressive.max_failures),
            min_success_seconds=soak_seconds(progressive),
            deadline_seconds=deadline_seconds(progressive),
        )
    if written.type == "ProgressivePerGroup":
        per_group = written.progressive_per_group or RolloutPerGroup()
        return Strategy(
            type="ProgressivePerGroup",
            mandatory=references(per_group.mandatory_decision_groups),
            max_failures=checked_share("maxFailures", per_group.max_failures),
            min_success_seconds=soak_seconds(per_group),
            deadline_seconds=deadline_seconds(per_group),
        )
    return Strategy(deadline_seconds=deadline_seconds(written.all or RolloutAll()))


def references(groups: Sequence[MandatoryGroup]) -> tuple[GroupReference, ...]:
    """Mandatory groups as the engine has them."""
    return tuple(GroupReference(each.group_name, each.group_index) for each in groups)


def soak_seconds(parameters: RolloutAll) -> float:
    """How long a cluster must have succeeded."""
    seconds = durations.seconds(parameters.min_success_time or "0")
    if seconds is None:
        raise WrongStrategy(
            f"minSuccessTime: {parameters.min_success_time!r} is not a duration such as 5m"
        )
    return seconds


def deadline_seconds(parameters: RolloutAll) -> float | None:
    """How long a cluster may take; None: as long as it takes."""
    if parameters.progress_deadline in ("", NO_DEADLINE):
        return None
    seconds = durations.seconds(parameters.progress_deadline)
    if seconds is None:
        raise WrongStrategy(
            f"progressDeadline: {parameters.progress_deadline!r} is neither a duration such as 10m"
            f" nor {NO_DEADLINE}"
        )
    return seconds


def checked_share(field: str, value: int | str) -> int | str:
    """A number or percentage that makes sense."""
    if not is_share(value):
        raise WrongStrategy(f"{field}: {value!r} is neither a number nor a percentage such as 25%")
    return value
