"""Making objects ready: marks, owners, scopes, and what is rejected."""

from knfleet.api.core import CLUSTER_ROLES, CONFIG_MAPS
from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.change_set import FailureKind
from knfleet.apply.desired import OwnerReferences, defined_kinds, prepare
from knfleet.apply.refs import Ref
from tests.support.objects import (
    KINDS,
    OTHER,
    SET,
    cluster_role,
    config_map,
    crd,
    desired_set,
    manifest,
    namespace,
)

OWNER: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "parent", "namespace": "home", "uid": "u1"},
}


KEEPER: Object = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "home", "uid": "u2"},
}


def only(*objects: Object, owner: Object | None = None, keeper: Object | None = None) -> Object:
    """The one object that is left of some, ready to be applied."""
    (each,) = prepare(objects, KINDS, SET, OwnerReferences(owner, keeper)).objects.values()
    return each.manifest


def test_an_object_gets_the_label_and_hash_of_its_set() -> None:
    """And the manifest that was given is not touched."""
    given = config_map("c", a="1")

    ready = only(given)

    assert ready["metadata"]["labels"] == {well_known.PART_OF: SET.id}
    assert list(ready["metadata"]["annotations"]) == [well_known.APPLIED_HASH]
    assert given == config_map("c", a="1")


def test_the_hash_tells_values_and_owners_apart_but_not_the_order_of_keys() -> None:
    """A new rendering of the same is the same."""

    def digest(value: Object, owner: Object | None = None) -> str:
        (each,) = prepare([value], KINDS, SET, OwnerReferences(owner)).objects.values()
        return each.digest

    one: Object = {**config_map("c"), "data": {"a": "1", "b": "2"}}
    other: Object = {**config_map("c"), "data": {"b": "2", "a": "1"}}

    assert digest(one) == digest(other)
    assert digest(one) != digest(config_map("c", a="1"))
    assert digest(one) != digest(one, OWNER)


def test_of_several_objects_with_one_name_the_last_counts() -> None:
    """Two manifests that write the same ConfigMap in turn never settle."""
    assert only(config_map("c", a="1"), config_map("c", a="2"))["data"] == {"a": "2"}


def test_an_owner_owns_only_in_its_own_namespace() -> None:
    """Elsewhere the garbage collector would delete the object."""
    at_home = only(config_map("c"), owner=OWNER)["metadata"]
    away = only(config_map("c", "away"), owner=OWNER)["metadata"]

    assert [each["uid"] for each in at_home["ownerReferences"]] == ["u1"]
    assert "ownerReferences" not in away
    assert "ownerReferences" not in only(cluster_role("r"), owner=OWNER)["metadata"]


def test_a_keeper_owns_what_the_owner_owns_and_controls_nothing() -> None:
    """Garbage collection spares an object while one of its owners is there."""
    at_home = only(config_map("c"), owner=OWNER, keeper=KEEPER)["metadata"]
    away = only(config_map("c", "away"), owner=OWNER, keeper=KEEPER)["metadata"]

    assert [(each["uid"], each.get("controller")) for each in at_home["ownerReferences"]] == [
        ("u1", True),
        ("u2", None),
    ]
    assert "ownerReferences" not in away


def test_a_cluster_wide_object_loses_a_namespace_given_by_mistake() -> None:
    """Renderers put one on every kind that they do not know."""
    role = cluster_role("r")
    role["metadata"]["namespace"] = "home"

    desired = desired_set(role)

    assert list(desired.objects) == [Ref(CLUSTER_ROLES.group, "ClusterRole", "", "r")]
    assert "namespace" not in only(role)["metadata"]


def test_rules_of_an_aggregated_role_are_not_ours() -> None:
    """The aggregation controller fills them."""
    role = cluster_role("r", aggregationRule={"clusterRoleSelectors": []}, rules=[])
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    aggregated = cluster_role("r", aggregationRule=selectors, rules=[])

    assert "rules" in only(cluster_role("plain"))
    assert "rules" not in only(role)
    assert "rules" not in only(aggregated)


def test_what_the_server_writes_and_the_go_operator_s_marks_are_left_out() -> None:
    """A manifest may come from `kubectl get -o yaml`."""
    given = config_map("c")
    given["metadata"] |= {"uid": "x", "resourceVersion": "1", "creationTimestamp": None}
    given["metadata"]["annotations"] = {"manifestival": "new", "mine": "yes"}
    given["status"] = {"phase": "Active"}

    ready = only(given)

    assert set(ready["metadata"]) == {"name", "namespace", "labels", "annotations"}
    assert set(ready["metadata"]["annotations"]) == {"mine", well_known.APPLIED_HASH}
    assert "status" not in ready


def test_objects_that_cannot_be_asked_for_are_rejected_one_by_one() -> None:
    """Each with its reason, and the others are applied."""
    gateway: Object = {
        "apiVersion": "networking.istio.io/v1beta1",
        "kind": "Gateway",
        "metadata": {"name": "g", "namespace": "home"},
    }
    homeless = manifest(CONFIG_MAPS, "lost", "")
    nameless: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
    nothing: Object = {}

    desired = desired_set(gateway, homeless, nameless, nothing, config_map("fine"))

    assert [ref.name for ref in desired.objects] == ["fine"]
    reasons = {failure.ref.name: failure for failure in desired.rejected}
    assert reasons["g"].why == FailureKind.UNKNOWN_KIND
    assert reasons["g"].message == (
        'no matches for kind "Gateway" in version "networking.istio.io/v1beta1"'
    )
    assert "no namespace" in reasons["lost"].message
    assert len(desired.rejected) == 4
    assert reasons["g"].ref in desired.refs


def test_kinds_that_a_crd_among_the_objects_defines_are_known() -> None:
    """Before the cluster serves them."""
    kinds = defined_kinds([crd(), namespace("n"), {}])

    assert [str(each) for each in kinds.values()] == ["things.example.com"]
    assert ("example.com/v1", "Thing") in kinds


def test_two_sets_mark_the_same_object_differently() -> None:
    """So that one never takes the other's for its own."""
    one = desired_set(config_map("c")).objects
    other = desired_set(config_map("c"), applyset=OTHER).objects

    assert [each.digest for each in one.values()] != [each.digest for each in other.values()]
