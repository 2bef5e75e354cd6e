"""Times in objects."""

from datetime import UTC, datetime, timedelta

import pytest

from knfleet.api.moments import as_moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "0001-01-01T00:00:00+14:00",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-12:00",
    ],
)
def test_what_cannot_be_computed_with_is_no_time(text: str):
    assert as_moment(text) is None


def test_times_are_those_of_utc_and_leave_room_for_sums():
    assert as_moment("2026-11-18T22:00:00+02:00") == datetime(2026, 11, 18, 20, tzinfo=UTC)
    latest = as_moment("2399-12-31T23:59:59-12:00")
    assert latest is not None
    assert latest + timedelta(days=365 * 1000) > latest
