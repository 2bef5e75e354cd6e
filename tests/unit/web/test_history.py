"""What happened to an installation."""

from knfleet.web.pages.history import happenings


def test_events_of_both_kinds_are_told_newest_first() -> None:
    """Old Events have timestamps and counts, new ones a series; repairs are known by reason."""
    old = {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "type": "Normal",
        "reason": "Repaired",
        "message": "it is repaired",
        "count": 3,
        "lastTimestamp": "2026-01-01T00:05:00Z",
        "source": {"component": "knativeserving-controller"},
    }
    new = {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "type": "Warning",
        "reason": "InternalError",
        "message": "no",
        "eventTime": "2026-01-01T00:06:00.123456Z",
        "reportingComponent": "x",
    }

    found = happenings([old, new])

    assert [each.reason for each in found] == ["InternalError", "Repaired"]
    assert [each.is_repair for each in found] == [False, True]
    assert [each.when for each in found] == ["2026-01-01T00:06:00Z", "2026-01-01T00:05:00Z"]
    assert [each.count for each in found] == [1, 3]
    assert [each.source for each in found] == ["x", "knativeserving-controller"]


def test_an_odd_event_is_shown_as_far_as_it_goes() -> None:
    """Whatever somebody wrote into it."""
    (found,) = happenings([{"metadata": {}, "count": None, "message": None}])

    assert (
        found.when,
        found.type,
        found.reason,
        found.message,
        found.count,
    ) == ("", "Normal", "", "", 1)
