"""The rollout strategy of the API as the engine reads it."""

import pytest

from knfleet.api.cluster.rollout import (
    MandatoryGroup,
    RolloutAll,
    RolloutPerGroup,
    RolloutProgressive,
    RolloutStrategy,
)
from knfleet.hub.rollout.rollout_model import GroupReference, Strategy
from knfleet.hub.rollout.strategy import WrongStrategy, strategy_of


def test_all_fields_are_read():
    written = RolloutStrategy(
        type="Progressive",
        progressive=RolloutProgressive(
            mandatory_decision_groups=[
                MandatoryGroup(group_name="prod-canary-west"),
                MandatoryGroup(group_index=1),
            ],
            max_concurrency="25%",
            min_success_time="5m",
            progress_deadline="10m",
            max_failures=2,
        ),
    )

    assert strategy_of(written) == Strategy(
        type="Progressive",
        mandatory=(GroupReference("prod-canary-west"), GroupReference("", 1)),
        max_concurrency="25%",
        max_failures=2,
        min_success_seconds=300,
        deadline_seconds=600,
    )


def test_concurrency_comes_from_the_placement_if_not_given():
    written = RolloutStrategy(type="Progressive")

    assert strategy_of(written, 7).max_concurrency == 7


def test_defaults_wait_for_ever_and_tolerate_nothing():
    for kind in ("All", "Progressive", "ProgressivePerGroup"):
        read = strategy_of(RolloutStrategy(type=kind))

        assert read.type == kind
        assert read.deadline_seconds is None
        assert read.min_success_seconds == 0
        assert read.max_failures == 0


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            RolloutStrategy(type="All", all=RolloutAll(progress_deadline="soon")),
            "progressDeadline: 'soon' is neither a duration such as 10m nor None",
        ),
        (
            RolloutStrategy(
                type="ProgressivePerGroup",
                progressive_per_group=RolloutPerGroup(min_success_time="-1m"),
            ),
            "minSuccessTime: '-1m' is not a duration such as 5m",
        ),
        (
            RolloutStrategy(
                type="Progressive", progressive=RolloutProgressive(max_concurrency="half")
            ),
            "maxConcurrency: 'half' is neither a number nor a percentage such as 25%",
        ),
        (
            RolloutStrategy(type="Progressive", progressive=RolloutProgressive(max_failures="-5%")),
            "maxFailures: '-5%' is neither a number nor a percentage such as 25%",
        ),
    ],
)
def test_nonsense_names_the_field(written: RolloutStrategy, message: str):
    with pytest.raises(WrongStrategy, match=message):
        strategy_of(written)
