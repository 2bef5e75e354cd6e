"""Heartbeats, clocks and taints: what the hub makes of a Lease."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    AVAILABLE,
    CLOCK_SYNCED,
    JOINED,
    SKIP_CLOCK_CHECK,
    UNAVAILABLE,
    UNREACHABLE,
    ManagedCluster,
)
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Object
from knfleet.hub.registration.lease import (
    LeaseObservation,
    LeaseObservations,
    availability,
    clock,
    is_alive,
    same_taints,
    seconds_until_expired,
    taints,
)
from knfleet.runtime.leader.lease_rules import microtime
from tests.unit.hub.samples import NOW, cluster, said

HOUR = timedelta(hours=1)
IN = said(ACCEPTED, "True")


def lease(ago: timedelta) -> Object:
    """A Lease that says it was renewed so long ago."""
    return {"spec": {"renewTime": microtime(NOW - ago)}}


def test_the_first_lease_is_as_old_as_it_says_and_a_later_one_came_just_now():
    beats = LeaseObservations()
    first = beats.observe(cluster(IN), lease(HOUR), NOW)
    later = beats.observe(cluster(IN), lease(HOUR - timedelta(minutes=1)), NOW)
    same = beats.observe(cluster(IN), lease(HOUR - timedelta(minutes=1)), NOW + HOUR)

    assert first is not None
    assert first.seen == NOW - HOUR
    assert first.skew is None
    assert later is not None
    assert later.seen == NOW
    assert later.skew == timedelta(minutes=1) - HOUR
    assert same == later


@pytest.mark.parametrize(
    "doubtful",
    [
        cluster(IN, said(CLOCK_SYNCED, "False")),
        cluster(IN, annotations={SKIP_CLOCK_CHECK: "true"}),
    ],
)
def test_the_first_lease_of_a_cluster_whose_clock_is_off_came_just_now(doubtful: ManagedCluster):
    """What it says would have its agent declared dead by a hub that has just started."""
    beat = LeaseObservations().observe(doubtful, lease(HOUR), NOW)

    assert beat is not None
    assert beat.seen == NOW


def test_a_lease_from_the_future_does_not_keep_a_cluster_alive_for_ever():
    beat = LeaseObservations().observe(cluster(IN), lease(-HOUR), NOW)

    assert seconds_until_expired(cluster(IN), beat, NOW) == 300


@pytest.mark.parametrize("broken", [None, {}, {"spec": {}}, {"spec": {"renewTime": "yesterday"}}])
def test_a_lease_that_is_gone_or_broken_says_nothing_new(broken: Object | None):
    beats = LeaseObservations()
    known = beats.observe(cluster(IN), lease(timedelta(0)), NOW)

    assert beats.observe(cluster(IN), broken, NOW + HOUR) == known
    assert LeaseObservations().observe(cluster(IN), broken, NOW) is None


def test_a_cluster_is_lost_after_five_durations_of_silence():
    lively = cluster(IN, leaseDurationSeconds=4)
    beat = LeaseObservation("", NOW)

    assert availability(lively, beat, NOW + timedelta(seconds=19.9)) is None
    lost = availability(lively, beat, NOW + timedelta(seconds=20))
    assert lost is not None
    assert (lost.status, lost.reason) == ("Unknown", "ManagedClusterLeaseUpdateStopped")


def test_a_cluster_that_was_never_accepted_is_not_lost():
    assert availability(cluster(), LeaseObservation("", NOW - HOUR), NOW) is None


def test_a_leaving_cluster_without_a_lease_is_lost_at_once_and_another_is_not():
    leaving = {"deletionTimestamp": "2026-03-01T12:00:00Z"}

    assert availability(cluster(IN, meta=leaving), None, NOW) is not None
    assert availability(cluster(IN), None, NOW) is None


def test_only_a_cluster_that_joined_and_is_heard_of_is_alive():
    beat = LeaseObservation("", NOW)

    assert is_alive(cluster(said(JOINED, "True")), beat, NOW)
    assert not is_alive(cluster(), beat, NOW)
    assert not is_alive(cluster(said(JOINED, "True"), accepted=False), beat, NOW)
    assert not is_alive(cluster(said(JOINED, "True")), beat, NOW + HOUR)


@pytest.mark.parametrize(
    ("skew", "status", "words"),
    [
        (timedelta(seconds=299), "True", "agree"),
        (-HOUR, "False", "60 min behind"),
        (HOUR, "False", "60 min ahead of"),
    ],
)
def test_a_clock_is_compared_when_the_lease_changes(skew: timedelta, status: str, words: str):
    found = clock(cluster(), LeaseObservation("", NOW, skew))

    assert found is not None
    assert found.status == status
    assert words in found.message


def test_a_clock_is_not_judged_without_a_change_or_when_that_is_not_wanted():
    skipped = cluster(annotations={SKIP_CLOCK_CHECK: "true"})
    found = clock(skipped, LeaseObservation("", NOW, HOUR))

    assert clock(cluster(), LeaseObservation("", NOW)) is None
    assert found is not None
    assert found.status == "True"


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], [(UNREACHABLE, "2026-03-01T10:00:00Z")]),
        ([said(AVAILABLE, "Unknown")], [(UNREACHABLE, "2026-03-01T11:00:00Z")]),
        ([said(AVAILABLE, "False")], [(UNAVAILABLE, "2026-03-01T11:00:00Z")]),
        ([said(AVAILABLE, "True")], []),
    ],
)
def test_the_hubs_taint_has_the_time_of_the_condition(
    conditions: list[Object], expected: list[tuple[str, str]]
):
    old = [{"key": key, "effect": "NoSelect"} for key in (UNREACHABLE, UNAVAILABLE)]
    found = taints(cluster(*conditions, taints=old), NOW)

    assert [(each.key, each.time_added) for each in found] == expected


def test_taints_of_users_keep_their_time_or_get_one():
    mine: list[Object] = [
        {"key": "old", "effect": "NoSelect", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "new", "effect": "PreferNoSelect", "value": "v"},
    ]
    tainted = cluster(said(AVAILABLE, "True"), taints=mine)
    found = taints(tainted, NOW)

    assert [each.time_added for each in found] == ["2026-01-01T00:00:00Z", timestamp(NOW)]
    assert same_taints(found, list(reversed(found)))
    assert not same_taints(found, tainted.spec.taints)
    assert not same_taints(found, [found[0], replace(found[1], value="w")])
