"""Sequence ids grow, whatever the clock does."""

from hypothesis import given
from hypothesis import strategies as st

from knfleet.cloudevents.sequence import SequenceGenerator, is_older


@given(st.lists(st.floats(1.7e9, 1.8e9), min_size=1, max_size=50))
def test_each_id_is_larger_than_the_one_before(times: list[float]):
    ticks = iter(times)
    made = SequenceGenerator(lambda: next(ticks), node=1)

    ids = [int(made.next()) for _ in times]

    assert ids == sorted(set(ids))


def test_more_ids_than_fit_into_a_millisecond_still_grow():
    made = SequenceGenerator(lambda: 1.7e9, node=1023)

    ids = [int(made.next()) for _ in range(10_000)]

    assert ids == sorted(set(ids))


def test_an_id_without_a_number_is_not_older():
    assert is_older("9", "10")
    assert not is_older("10", "9")
    assert not is_older("", "10")
    assert not is_older("9" * 30, "10")
