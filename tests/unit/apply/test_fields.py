"""Field sets: what a server's bookkeeping proves about an object."""

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.meta import Object
from knfleet.apply.plan.field_sets import contains, lost, uncovered, union, without
from tests.support.objects import config_map, deployment, own_entry

DEPLOYED: Object = {
    "f:spec": {
        "f:replicas": {},
        "f:selector": {},
        "f:template": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:containers": {
                    'k:{"name":"app"}': {
                        ".": {},
                        "f:name": {},
                        "f:image": {},
                        "f:env": {'k:{"name":"LEVEL"}': {".": {}, "f:name": {}, "f:value": {}}},
                    }
                }
            },
        },
    }
}
"""As a real server keeps it for `deployment("d")`."""
LEVEL = "spec.template.spec.containers[name=app].env[name=LEVEL]"

names = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    st.integers(), lambda inner: st.dictionaries(names, inner, min_size=1), max_leaves=8
)
trees = st.dictionaries(names, values, min_size=1)


def fields_of(value: Any) -> Object:
    """The set of all fields of a tree."""
    if not isinstance(value, dict):
        return {}
    return {f"f:{name}": fields_of(child) for name, child in cast("Object", value).items()}


def missing(fields: Object, manifest: Object) -> list[str]:
    """The names of fields that a set does not hold."""
    return [each.field for each in uncovered(fields, manifest)]


def test_a_set_as_the_server_keeps_it_covers_what_was_applied() -> None:
    """Lists with keys, a list as one field, and plain fields."""
    assert missing(DEPLOYED, deployment("d")) == []


def test_a_field_that_somebody_changed_is_named_with_its_place() -> None:
    """The item of a list is named by its key."""
    path = (
        "f:spec",
        "f:template",
        "f:spec",
        "f:containers",
        'k:{"name":"app"}',
        "f:env",
        'k:{"name":"LEVEL"}',
        "f:value",
    )

    found = uncovered(without(DEPLOYED, path), deployment("d"))

    assert [each.field for each in found] == [f"{LEVEL}.value"]
    assert found[0].path == path


def test_an_item_that_was_removed_is_named() -> None:
    """The whole item is missing then, not each of its fields."""
    path = (
        "f:spec",
        "f:template",
        "f:spec",
        "f:containers",
        'k:{"name":"app"}',
        "f:env",
        'k:{"name":"LEVEL"}',
    )

    assert missing(without(DEPLOYED, path), deployment("d")) == [LEVEL.rpartition("[")[0]]


def test_a_key_that_is_left_to_its_default_still_matches() -> None:
    """Ports are told apart by number and protocol, and manifests rarely say TCP."""
    fields: Object = {
        "f:spec": {
            "f:ports": {
                'k:{"port":443,"protocol":"TCP"}': {".": {}, "f:port": {}},
                'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}},
            }
        }
    }

    assert missing(fields, {"spec": {"ports": [{"port": 80}, {"port": 443}]}}) == []
    assert missing(fields, {"spec": {"ports": [{"port": 81}]}}) == ["spec.ports[port=81]"]


def test_values_of_a_list_that_is_a_set_are_compared() -> None:
    """Finalizers are such a list."""
    fields: Object = {"f:metadata": {"f:finalizers": {".": {}, 'v:"a"': {}}}}

    assert missing(fields, {"metadata": {"finalizers": ["a"]}}) == []
    assert missing(fields, {"metadata": {"finalizers": ["a", "b"]}}) == ["metadata.finalizers[b]"]


def test_what_is_empty_needs_no_place() -> None:
    """The server keeps none for it."""
    assert missing({}, {"metadata": {"labels": {}}, "data": {}, "spec": None}) == []


def test_names_and_status_are_nobody_s_fields() -> None:
    """They are not applied."""
    applied = config_map("c", a="1")

    assert missing(own_entry(applied)["fieldsV1"], {**applied, "status": {"x": 1}}) == []


def test_a_part_of_something_owned_as_a_whole_is_contained() -> None:
    """A leaf stands for all that is in it."""
    assert contains({"f:spec": {"f:selector": {}}}, ("f:spec", "f:selector", "f:matchLabels"))
    assert not contains({"f:spec": {"f:selector": {}}}, ("f:spec", "f:replicas"))


@given(trees, trees)
def test_a_union_loses_nothing_of_either(one: Object, other: Object) -> None:
    """Fields that are moved from one manager to another must all arrive."""
    first, second = fields_of(one), fields_of(other)

    both = union(first, second)

    assert not lost(first, both)
    assert not lost(second, both)
    assert union(both, first) == both


@given(trees)
def test_all_fields_of_a_tree_cover_it_and_no_fewer_do(tree: Object) -> None:
    """Each field that is taken away is missed."""
    fields = fields_of(tree)
    assert uncovered(fields, tree) == []

    for name in fields:
        found = missing(without(fields, (name,)), tree)
        assert found
        assert {field.partition(".")[0] for field in found} == {name[2:]}
