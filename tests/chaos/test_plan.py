"""The plan of a run is drawn from its seed, and never makes it impossible to converge."""

import pytest

from tests.chaos.centre import FAULTS
from tests.chaos.hands import HANDS
from tests.chaos.plan import BY_NAME, CALM_SECONDS, SORTS, Place, Plan, Step, plan

SPOKES = ["spoke1", "spoke2", "spoke3", "spoke4"]
RESOURCES = ["KnativeServing/spoke1", "KnativeEventing/spoke2"]
SEEDS = range(30)


def drawn(seed: int, minutes: float = 10) -> Plan:
    """A plan for four spokes."""
    return plan(seed, minutes, SPOKES, RESOURCES)


def test_the_same_seed_plays_the_same_and_another_one_does_not() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7).steps != drawn(8).steps


@pytest.mark.parametrize("minutes", [1, 10, 60])
def test_the_end_is_left_in_peace(minutes: float) -> None:
    """Two minutes of a long run, a third of a short one."""
    for seed in SEEDS:
        found = drawn(seed, minutes)

        assert found.peace_at <= found.seconds - min(120, found.seconds / 3)
        assert all(step.at + step.seconds <= found.peace_at + 0.1 for step in found.steps)


def test_every_sort_of_fault_comes_within_ten_minutes() -> None:
    """And each of them can be played."""
    for seed in SEEDS:
        assert {step.fault for step in drawn(seed).steps} == set(BY_NAME)
    assert set(BY_NAME) == FAULTS.keys() | HANDS.keys()


def test_two_faults_never_strike_the_same_place_at_once() -> None:
    """And the hub with its operators is left alone for a while after each."""
    for seed in SEEDS:
        ends: dict[tuple[Place, str], float] = {}
        for step in drawn(seed, 60).steps:
            place = BY_NAME[step.fault].place
            assert step.at + 0.1 >= ends.get((place, step.target), 0.0)
            rest = CALM_SECONDS if place is Place.CENTRE else 0.0
            ends[place, step.target] = step.at + step.seconds + rest


def test_nobody_edits_what_is_on_a_spoke_whose_server_is_down() -> None:
    for seed in SEEDS:
        steps = drawn(seed, 60).steps
        stopped = [step for step in steps if BY_NAME[step.fault].stops_server]
        for step in steps:
            if BY_NAME[step.fault].place is Place.OBJECTS:
                assert not [each for each in stopped if is_during(each, step)]


def is_during(fault: Step, step: Step) -> bool:
    """Whether a fault strikes the target of a step at that moment."""
    is_same = fault.target == step.target
    return is_same and fault.at <= step.at < fault.at + fault.seconds - 0.1


def test_spokes_are_silent_long_enough_to_be_judged() -> None:
    """Else the judge of conditions would have nothing to do."""
    silencing = {"freeze", "kill", "refuse", "blackhole"}
    for seed in SEEDS:
        lasting = [step.seconds for step in drawn(seed).steps if step.fault in silencing]
        assert max(lasting) > 35


def test_sorts_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(SORTS)
