"""Resync: what the other side has is not sent again, and nothing is left out."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.cloudevents.cloud_event import EventError
from knfleet.cloudevents.resync import (
    changed_statuses,
    read_status_hashes,
    read_versions,
    resync_plan,
    status_hash,
    status_hashes_bytes,
    versions_bytes,
)

VERSIONS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3))


@given(VERSIONS, VERSIONS)
def test_after_a_resync_the_agent_has_what_the_hub_has(known: dict[str, int], hub: dict[str, int]):
    """Versions of a resource only grow, so an agent has none that is newer."""
    known = {name: min(version, hub.get(name, version)) for name, version in known.items()}

    plan = resync_plan(known, hub, ())

    kept = {name: version for name, version in known.items() if name in hub}
    assert {**kept, **{name: hub[name] for name in plan.send}} == hub
    assert {each.resource_id for each in plan.gone} == set(known) - set(hub)
    assert all(name not in known or hub[name] > known[name] for name in plan.send)


def test_a_resource_that_leaves_is_always_sent():
    assert resync_plan({"a": 3}, {"a": 3}, ["a"]).send == ["a"]


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 2**31)))
def test_versions_survive_the_way_over_the_wire(versions: dict[str, int]):
    assert read_versions(versions_bytes(versions)) == versions


def test_hashes_survive_the_way_over_the_wire():
    assert read_status_hashes(status_hashes_bytes({"a": "1"})) == {"a": "1"}


def test_an_empty_request_asks_for_everything():
    assert read_versions(b"") == {}
    assert read_versions(b'{"resourceVersions":null}') == {}


@pytest.mark.parametrize("data", [b"[]", b"{", b'{"resourceVersions":[1]}', b"[" * 100_000])
def test_another_payload_is_refused(data: bytes):
    with pytest.raises(EventError):
        read_versions(data)


def test_more_resources_than_a_cluster_has_are_refused():
    with pytest.raises(EventError, match="more than 50000"):
        read_versions(versions_bytes({str(number): 1 for number in range(50_001)}))


def test_statuses_are_sent_that_differ_and_that_the_hub_names():
    current = {"a": "1", "b": "2", "c": "3"}

    assert changed_statuses({"a": "1", "b": "x"}, current, str) == ["b"]
    assert changed_statuses({}, current, str) == ["a", "b", "c"]


def test_the_hash_of_a_status_is_that_of_the_json_that_go_writes():
    written = rb'{"a":1,"b":"\u003c\u0026\u003e"}'

    assert status_hash({"b": "<&>", "a": 1}) == hashlib.sha256(written).hexdigest()
