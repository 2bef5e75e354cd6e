"""What is different between two states of an object, field by field."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.view.differences import FieldChange, clean, differences

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def found(before: Object, after: Object) -> dict[str, tuple[Any, Any]]:
    """The differences of two specs, by field."""
    changes = differences({"spec": before}, {"spec": after})
    return {each.field: (each.before, each.after) for each in changes}


@given(VALUES)
def test_nothing_differs_from_itself(value: Any) -> None:
    """Whatever an object holds."""
    assert differences({"spec": value}, {"spec": value}) == ()


@given(VALUES, VALUES)
def test_two_values_differ_as_soon_as_they_are_not_equal(one: Any, other: Any) -> None:
    """Nothing is overlooked, and both ways show the same fields."""
    there = differences({"spec": one}, {"spec": other})
    back = differences({"spec": other}, {"spec": one})

    assert bool(there) == (msgspec.json.encode(one) != msgspec.json.encode(other)) or one == other
    assert [each.field for each in there] == [each.field for each in back]


def test_what_servers_and_we_ourselves_write_is_no_difference() -> None:
    """Versions, times, managers, status, owners and our marks say nothing to people."""
    before: Object = {
        "metadata": {
            "name": "web",
            "resourceVersion": "1",
            "generation": 1,
            "uid": "a",
            "creationTimestamp": "then",
            "managedFields": [{}],
            "ownerReferences": [{"uid": "x"}],
            "labels": {"app": "web"},
            "annotations": {"deployment.kubernetes.io/revision": "1"},
        },
        "status": {"replicas": 1},
    }
    after: Object = {
        "metadata": {
            "name": "web",
            "resourceVersion": "2",
            "generation": 2,
            "uid": "a",
            "creationTimestamp": "then",
            "managedFields": [{}, {}],
            "labels": {"app": "web", well_known.PART_OF: "applyset-x-v1"},
            "annotations": {well_known.APPLIED_HASH: "1234", "manifestival": "new"},
        },
        "status": {"replicas": 2},
    }

    assert differences(before, after) == ()
    assert clean(after) == {"metadata": {"name": "web", "labels": {"app": "web"}}}


def test_a_field_is_named_by_its_path() -> None:
    """Names with dots stand in brackets."""
    changes = found(
        {"replicas": 1, "labels": {"app.kubernetes.io/name": "a"}},
        {"replicas": 2, "labels": {"app.kubernetes.io/name": "b", "new": "c"}},
    )

    assert changes == {
        "spec.replicas": (1, 2),
        "spec.labels[app.kubernetes.io/name]": ("a", "b"),
        "spec.labels.new": (UNSET, "c"),
    }


def test_items_of_a_list_are_known_by_their_names() -> None:
    """A container that comes first does not make all others different."""
    before = {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}
    after = {
        "containers": [
            {"name": "new", "image": "0"},
            {"name": "a", "image": "1"},
            {"name": "b", "image": "3"},
        ]
    }

    assert found(before, after) == {
        "spec.containers[name=b].image": ("2", "3"),
        "spec.containers[name=new]": (UNSET, {"name": "new", "image": "0"}),
    }


def test_ports_are_known_by_number_and_protocol() -> None:
    """They need not have names."""
    before = {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}
    after = {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}, before["ports"][1]]}

    assert found(before, after) == {"spec.ports[port=80,protocol=TCP].targetPort": (UNSET, 8080)}


def test_another_order_is_a_difference() -> None:
    """Init containers run in theirs."""
    one, two = {"name": "one"}, {"name": "two"}

    assert found({"initContainers": [one, two]}, {"initContainers": [two, one]}) == {
        "spec.initContainers (order)": (["name=one", "name=two"], ["name=two", "name=one"])
    }


def test_lists_without_names_differ_as_a_whole() -> None:
    """Arguments have no names."""
    assert found({"args": ["a"]}, {"args": ["a", "b"]}) == {"spec.args": (["a"], ["a", "b"])}


@pytest.mark.parametrize("section", ["data", "stringData"])
def test_values_of_secrets_are_never_told(section: str) -> None:
    """Only which of them are different."""
    before: Object = {"kind": "Secret", "type": "a", section: {"token": "c2VzYW1l", "old": "eA=="}}
    after: Object = {"kind": "Secret", "type": "b", section: {"token": "b3Blbg==", "tls.key": "eQ"}}

    changes = differences(before, after)

    assert changes == (
        *sorted(
            (
                FieldChange(f"{section}[tls.key]", is_secret=True),
                FieldChange(f"{section}.old", is_secret=True),
                FieldChange(f"{section}.token", is_secret=True),
            ),
            key=lambda each: each.field,
        ),
        FieldChange("type", "a", "b"),
    )
    assert b"c2VzYW1l" not in msgspec.json.encode(changes)


def test_a_secret_as_a_whole_tells_nothing_either() -> None:
    """One that comes or goes has all its fields at once."""
    secret: Object = {"kind": "Secret", "data": {"token": "c2VzYW1l"}}

    for changes in (differences(None, secret), differences(secret, {"kind": "Secret"})):
        assert b"c2VzYW1l" not in msgspec.json.encode(changes)
        assert "data.token" in [each.field for each in changes]


def test_a_change_survives_json() -> None:
    """A side that has no such field is not the same as one that has null."""
    changes = [FieldChange("a", None, 1), FieldChange("a", after=1), FieldChange("a", before=[])]

    assert msgspec.json.decode(msgspec.json.encode(changes), type=list[FieldChange]) == changes
