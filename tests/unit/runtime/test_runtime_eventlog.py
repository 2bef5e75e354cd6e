"""Which Events are written: repeated, similar and noisy ones."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.meta import Key, Object
from knfleet.runtime.events.series import EventLog, EventRecord, EventWrite, Regarding, event_name

WALL = datetime(2026, 11, 15, 12, 0, 0, 5, UTC)


def happening(message: str = "it broke", name: str = "a", reason: str = "Broken") -> EventRecord:
    regarding = Regarding("operator.knative.dev/v1beta1", "KnativeServing", Key("ns", name), "uid")
    return EventRecord(regarding, "Warning", reason, message)


class Log(EventLog):
    """A log whose time passes by hand."""

    now = 0.0

    def happens(self, what: EventRecord) -> EventWrite | None:
        return self.observe(what, self.now, WALL + timedelta(seconds=self.now))

    def written(self, what: EventRecord) -> EventWrite:
        write = self.happens(what)
        assert write is not None
        return write


@pytest.fixture
def log() -> Log:
    return Log("knfleet")


def test_the_first_time_a_whole_event_is_written(log: Log):
    """As client-go's recorder writes it."""
    write = log.written(happening())

    assert write.patch is None
    assert write.key.namespace == "ns"
    assert write.key.name.startswith("a.")
    assert write.manifest["involvedObject"]["kind"] == "KnativeServing"
    assert (write.manifest["count"], write.manifest["firstTimestamp"]) == (
        1,
        "2026-11-15T12:00:00Z",
    )


def test_the_same_again_counts_up_the_event_that_is_there(log: Log):
    """One Event, however often it happens, also after the object changed."""
    first = log.written(happening())
    log.now = 5
    same = happening()
    newer = EventRecord(
        Regarding(
            same.regarding.api_version, same.regarding.kind, same.regarding.key, "uid", "1234"
        ),
        same.type,
        same.reason,
        same.message,
    )

    second = log.written(newer)

    assert second.key == first.key
    assert second.patch == {
        "count": 2,
        "lastTimestamp": "2026-11-15T12:00:05Z",
        "message": "it broke",
    }


def test_many_similar_ones_become_one_that_says_so(log: Log):
    """Ten different messages are told apart; the rest is one Event."""
    writes = [log.written(happening(f"attempt {number}")) for number in range(14)]

    combined = writes[10:]
    assert len({write.key for write in writes}) == 11
    assert {write.patch is None for write in writes[:11]} == {True}
    assert [write.manifest["count"] for write in combined] == [1, 2, 3, 4]
    assert len({write.key for write in combined}) == 1
    assert combined[3].manifest["message"] == "(combined from similar events): attempt 13"


def test_similar_ones_are_told_apart_again_after_a_quiet_while(log: Log):
    """Ten minutes without any."""
    for number in range(12):
        log.written(happening(f"attempt {number}"))
    log.now = 601

    assert log.written(happening("new")).manifest["message"] == "new"


def test_a_noisy_object_is_cut_short_and_another_is_not(log: Log):
    """A burst of 25, then one in five minutes."""
    writes = [log.happens(happening()) for _ in range(40)]
    other = log.happens(happening(name="b"))
    log.now = 300
    later = [log.happens(happening()) for _ in range(2)]

    assert sum(write is not None for write in writes) == 25
    assert other is not None
    assert [write is not None for write in later] == [True, False]
    assert later[0] is not None
    assert later[0].patch is not None
    assert later[0].patch["count"] == 41


def test_memory_is_bounded(log: Log):
    """A fleet has more objects than are worth remembering."""
    for number in range(5000):
        log.happens(happening(name=f"n{number}"))

    assert max(len(log.groups.values), len(log.series.values), len(log.buckets.values)) == 4096


def test_an_event_about_a_cluster_scoped_object_lives_in_default(log: Log):
    """As the API server demands."""
    manifest: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}

    write = log.written(EventRecord(Regarding.of(manifest), "Normal", "Made", "made"))

    assert write.key.namespace == "default"
    assert write.manifest["involvedObject"]["namespace"] == ""


@given(st.text(max_size=300))
def test_a_name_is_one_that_a_server_accepts(name: str):
    """Also for objects whose names Events may not have."""
    made = event_name(name, WALL, 7)

    assert len(made) <= 253
    assert all(part and part[0].isalnum() and part[-1].isalnum() for part in [made])
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
