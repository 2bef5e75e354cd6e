"""Comparing finds every difference that is one, and none that is not."""

from typing import Any

import pytest

from knfleet.api.meta import Object
from testbed.peers.operator import Outcome
from tests.peers.comparison import ABSENT, Difference, compare
from tests.peers.differences import Deliberate


def config_map(data: dict[str, str], **meta: Any) -> Object:
    """A ConfigMap as a server would store it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "b", **meta},
        "data": data,
    }


def differences(ours: list[Object], theirs: list[Object], given: str = "") -> list[tuple[str, ...]]:
    """What is found between objects, without the names of the objects."""
    found = compare(Outcome(objects=ours), Outcome(objects=theirs), given)
    return [(each.path, each.ours, each.theirs) for each in found]


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ({"a": "1"}, {"a": "1"}, []),
        ({"a": "1"}, {"a": "2"}, [("data.a", "1", "2")]),
        ({"a": "1"}, {}, [("data.a", "1", ABSENT)]),
        ({"a": "x: 1\ny: 2"}, {"a": "y: 2\nx: 1"}, [("data.a (form)", "x: 1\ny: 2", "y: 2\nx: 1")]),
        ({"a": "x: {z: 1}"}, {"a": "x: {z: 2}"}, [("data.a.x.z", 1, 2)]),
    ],
)
def test_fields_and_texts_are_compared(
    ours: dict[str, str], theirs: dict[str, str], found: list[tuple[str, ...]]
):
    assert differences([config_map(ours)], [config_map(theirs)]) == found


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ([{"name": "a", "x": 1}], [{"name": "a", "x": 2}], [("list.a.x", 1, 2)]),
        (
            [{"name": "a"}, {"name": "b"}],
            [{"name": "b"}, {"name": "a"}],
            [("list (order)", ["a", "b"], ["b", "a"])],
        ),
        (
            [{"name": "a"}],
            [{"name": "a"}, {"name": "a"}],
            [("list", [{"name": "a"}], [{"name": "a"}, {"name": "a"}])],
        ),
        ([1, {"x": 1}], [1, {"x": 2}], [("list.1.x", 1, 2)]),
    ],
)
def test_lists_are_compared_by_name_and_by_place(
    ours: list[Any], theirs: list[Any], found: list[tuple[str, ...]]
):
    base = config_map({})

    assert differences([{**base, "list": ours}], [{**base, "list": theirs}]) == found


def test_what_servers_and_controllers_write_is_passed_over():
    theirs = config_map(
        {"a": "1"},
        uid="1",
        resourceVersion="2",
        creationTimestamp="now",
        annotations={"manifestival": "new"},
        ownerReferences=[{"kind": "KnativeServing", "name": "knative", "uid": "3"}],
    )
    owners = [{"kind": "KnativeServing", "name": "knative", "uid": "0"}]

    assert differences([config_map({"a": "1"}, ownerReferences=owners)], [theirs]) == []
    assert differences([config_map({"a": "1"})], [theirs]) != []


def test_ports_that_nobody_asked_for_are_passed_over():
    def service(port: int) -> Object:
        spec: Object = {"clusterIP": f"198.18.0.{port % 256}", "ports": [{"nodePort": port}]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec}

    assert differences([service(30001)], [service(30002)]) == []
    assert differences([service(30001)], [service(30002)], "http-port: 30001") != []


def test_an_object_that_only_one_has_is_a_difference():
    mine = config_map({"a": "1"})

    assert [path for path, _, _ in differences([mine], [])] == [""]
    assert [path for path, _, _ in differences([], [mine])] == [""]


@pytest.mark.parametrize(
    ("ours", "theirs", "agree"),
    [
        (Outcome(problem="KnativeServing a: unknown type"), Outcome(problem="unknown type"), True),
        (Outcome(problem="something else"), Outcome(problem="unknown type"), False),
        (Outcome(), Outcome(problem="unknown type"), False),
        (Outcome(problem="unknown type"), Outcome(), False),
        (Outcome(problem="panic"), Outcome(problem="panic", crashed=True), False),
        (Outcome(version="1.23.0"), Outcome(version="1.22.0"), False),
        (Outcome(manifests=["a"]), Outcome(manifests=["a", "b"]), False),
    ],
)
def test_problems_versions_and_origins_are_compared(ours: Outcome, theirs: Outcome, agree: bool):
    assert (compare(ours, theirs, "") == []) is agree


def test_a_deliberate_difference_covers_what_it_describes_and_nothing_else():
    deliberate = Deliberate(
        object="ConfigMap */a", path="data.*", ours="1", reason="", on_page="", shown_by=""
    )

    assert deliberate.covers(Difference("ConfigMap b/a", "data.x", "1", "2"))
    assert not deliberate.covers(Difference("ConfigMap b/a", "data.x", "3", "2"))
    assert not deliberate.covers(Difference("ConfigMap b/c", "data.x", "1", "2"))
    assert not deliberate.covers(Difference("ConfigMap b/a", "metadata.x", "1", "2"))
