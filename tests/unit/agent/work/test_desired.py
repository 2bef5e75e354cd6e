"""What a work wants of the cluster, as pure functions."""

import zlib
from typing import Any

import msgspec
import pytest

from knfleet.agent.work.desired import content
from knfleet.agent.work.desired.content import WORK_LABEL, WORK_LABEL_VALUE
from knfleet.agent.work.desired.ignore_fields import (
    IgnoreFieldError,
    go_text,
    kept,
    spec_hash,
    without_paths,
)
from knfleet.agent.work.desired.manifest_options import is_orphaned, matches, options_for
from knfleet.agent.work.desired.manifests import (
    ObjectRef,
    defined_kinds,
    duplicates,
    read_manifest,
    read_manifests,
)
from knfleet.agent.work.desired.owners import OwnedState, removal, with_owner, without_owner
from knfleet.agent.work.source import Work
from knfleet.agent.work.work_planner import Claims, ObjectClaim
from knfleet.api.meta import Object
from knfleet.api.schema import DecodeError, ObjectMeta
from knfleet.api.work.manifestwork import (
    ConditionRule,
    DeleteOption,
    FeedbackRule,
    IgnoreField,
    ManifestConfig,
    ResourceIdentifier,
    SelectivelyOrphans,
    UpdateStrategy,
)
from knfleet.kube.nesting import TOO_DEEP

A_MAP = ObjectRef("", "configmaps", "default", "a")


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ([], "not an object"),
        ({"kind": "Pod"}, "no apiVersion"),
        ({"apiVersion": "v1"}, "no kind"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {}}, "no metadata.name"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 1}}, "no metadata.name"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a"}}, "generateName"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, ""),
    ],
)
def test_a_manifest_that_names_no_object_says_why(manifest: Any, problem: str):
    found = read_manifest(0, manifest).problem

    assert problem in found
    assert bool(problem) == bool(found)


def test_kinds_are_applied_in_the_order_in_which_they_need_each_other():
    kinds = ["Thing", "APIService", "Deployment", "Service", "Secret", "Role", "Namespace"]
    manifests = [{"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}} for kind in kinds]

    ordered = sorted(read_manifests(manifests), key=lambda each: each.rank)

    assert [each.kind for each in ordered] == list(reversed(kinds))


def test_what_only_a_cluster_can_say_is_left_out():
    meta: Object = {
        "name": "a",
        "uid": "1",
        "resourceVersion": "2",
        "ownerReferences": [{}],
        "labels": {},
    }
    found = read_manifest(0, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {}})

    assert found.body["metadata"] == {"name": "a", "labels": {}}


def test_texts_of_a_secret_become_data():
    meta = {"name": "a", "namespace": "b"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"a": "b"}}

    body = read_manifest(0, {**secret, "data": {"c": "ZA=="}}).body

    assert body["data"] == {"a": "Yg==", "c": "ZA=="}
    assert body["type"] == "Opaque"
    assert "stringData" not in body


def test_the_second_of_two_manifests_of_one_object_is_found():
    other = ObjectRef("", "configmaps", "default", "b")

    assert duplicates([(0, A_MAP), (1, other), (2, A_MAP)]) == {2: 0}


def test_kinds_that_a_work_defines_itself_are_known():
    spec = {"group": "example.com", "names": {"kind": "Thing"}}
    crd = {"apiVersion": "a/v1", "kind": "CustomResourceDefinition", "metadata": {}, "spec": spec}

    assert defined_kinds(read_manifests([crd])) == {("example.com", "Thing")}


@pytest.mark.parametrize(
    ("pattern", "text", "holds"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("*", "", True),
        ("*", "anything", True),
        ("a*", "abc", True),
        ("*c", "abc", True),
        ("a*c", "abc", True),
        ("a*c", "ac", True),
        ("ab*ba", "aba", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("*" * 50 + "x", "a" * 5000, False),
    ],
)
def test_a_star_stands_for_any_text(pattern: str, text: str, holds: bool):
    assert matches(pattern, text) is holds


def config(name: str = "a", namespace: str = "default", **options: Any) -> ManifestConfig:
    """Options for ConfigMaps."""
    identifier = ResourceIdentifier(resource="configmaps", name=name, namespace=namespace)
    return ManifestConfig(resource_identifier=identifier, **options)


def test_rules_of_all_configs_add_up_and_the_last_strategy_counts():
    first = ConditionRule(condition="Complete", type="CEL", cel_expressions=["false"])
    second = ConditionRule(condition="Complete", type="CEL", cel_expressions=["true"])
    status = FeedbackRule(type="WellKnownStatus")
    update, once = UpdateStrategy(), UpdateStrategy(type="CreateOnly")
    configs = [
        config("*", update_strategy=update, feedback_rules=[status], condition_rules=[first]),
        config("a*", namespace="*", update_strategy=once, condition_rules=[second]),
        config(feedback_rules=[status]),
        config("b", update_strategy=UpdateStrategy(type="ReadOnly")),
    ]

    options = options_for(A_MAP, configs)

    assert options.strategy == once
    assert options.feedback == (status, status)
    assert options.conditions == (second,)


@pytest.mark.parametrize(
    ("option", "stays"),
    [
        (None, False),
        (DeleteOption(), False),
        (DeleteOption(propagation_policy="Orphan"), True),
        (DeleteOption(propagation_policy="SelectivelyOrphan"), False),
        (
            DeleteOption(
                propagation_policy="SelectivelyOrphan",
                selectively_orphans=SelectivelyOrphans(
                    orphaning_rules=[
                        ResourceIdentifier(resource="configmaps", name="a", namespace="default")
                    ]
                ),
            ),
            True,
        ),
        (
            DeleteOption(
                propagation_policy="SelectivelyOrphan",
                selectively_orphans=SelectivelyOrphans(
                    orphaning_rules=[ResourceIdentifier(resource="configmaps", name="*")]
                ),
            ),
            False,
        ),
    ],
)
def test_the_delete_option_says_what_stays(option: DeleteOption | None, stays: bool):
    assert is_orphaned(A_MAP, option) is stays


def manifest(kind: str = "ConfigMap", **fields: Any) -> Object:
    """A manifest."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, **fields}


LABELS = {WORK_LABEL: WORK_LABEL_VALUE}


def live(kind: str = "ConfigMap", **fields: Any) -> Object:
    """An object of the cluster, with our label."""
    meta = {"name": "a", "uid": "1", "labels": LABELS}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **fields}


UPDATES: list[tuple[Object, Object, Object]] = [
    (manifest(data={"a": "1"}), live(data={"a": "1"}), {"data": {"a": "1"}}),
    (manifest(data={"a": "1"}), live(data={"b": "1"}), {"data": {"a": "1"}}),
    (manifest(), live(data={"b": "1"}), {}),
    (
        manifest("Deployment", spec={"paused": True}),
        live("Deployment", spec={"replicas": 3}),
        {"spec": {"paused": True, "replicas": 3}},
    ),
    (
        manifest("Deployment", spec={"replicas": 1}),
        live("Deployment", spec={"replicas": 3}),
        {"spec": {"replicas": 1}},
    ),
    (
        manifest("Namespace"),
        live("Namespace", spec={"finalizers": ["k"]}),
        {"spec": {"finalizers": ["k"]}},
    ),
    (
        manifest("ServiceAccount"),
        live("ServiceAccount", secrets=[{"name": "token"}]),
        {"secrets": [{"name": "token"}]},
    ),
    (
        manifest("Pod", spec={"containers": [{"name": "x", "image": "2"}]}),
        live(
            "Pod",
            spec={
                "nodeName": "n",
                "tolerations": [{"key": "k"}],
                "containers": [{"name": "x", "image": "1", "volumeMounts": []}],
            },
        ),
        {
            "spec": {
                "nodeName": "n",
                "tolerations": [{"key": "k"}],
                "containers": [{"name": "x", "image": "2", "volumeMounts": []}],
            }
        },
    ),
    (
        manifest("Job", spec={"template": {"metadata": {"labels": {"a": "b"}}}}),
        live(
            "Job",
            spec={
                "selector": {"u": "1"},
                "template": {"metadata": {"labels": {"a": "b", "controller-uid": "1"}}},
            },
        ),
        {
            "spec": {
                "selector": {"u": "1"},
                "template": {"metadata": {"labels": {"a": "b", "controller-uid": "1"}}},
            }
        },
    ),
    (
        manifest(
            "MutatingWebhookConfiguration",
            webhooks=[{"name": "w", "clientConfig": {"url": "u"}}],
        ),
        live(
            "MutatingWebhookConfiguration",
            webhooks=[{"name": "w", "clientConfig": {"url": "old", "caBundle": "injected"}}],
        ),
        {"webhooks": [{"name": "w", "clientConfig": {"url": "u", "caBundle": "injected"}}]},
    ),
]


@pytest.mark.parametrize(("wanted", "there", "written"), UPDATES)
def test_an_update_overwrites_what_the_cluster_does_not_fill_in(
    wanted: Object, there: Object, written: Object
):
    new = content.updated(wanted, there, [])

    assert content.content(new) == written
    assert new["metadata"]["uid"] == "1"


def test_an_update_keeps_metadata_and_status_of_others():
    wanted = manifest()
    wanted["metadata"] |= {"labels": {"a": "1", "gone-": ""}, "annotations": {"b": "1"}}
    there = live(status={"ready": True})
    there["metadata"] |= {
        "labels": {"a": "0", "gone": "x", "theirs": "1"},
        "annotations": {"c": "1"},
        "finalizers": ["f"],
    }
    owner = {"uid": "o"}

    new = content.updated(wanted, there, [owner])

    assert new["metadata"]["labels"] == {"a": "1", "theirs": "1", **LABELS}
    assert new["metadata"]["annotations"] == {"b": "1", "c": "1"}
    assert new["metadata"]["finalizers"] == ["f"]
    assert new["metadata"]["ownerReferences"] == [owner]
    assert new["status"] == {"ready": True}


def test_an_update_that_changes_nothing_is_seen():
    there = live(data={"a": "1"})

    assert content.updated(manifest(data={"a": "1"}), there, []) == there


@pytest.mark.parametrize(
    ("state", "orphaned", "decision"),
    [
        (OwnedState("1", frozenset()), False, "forget"),
        (OwnedState("1", frozenset({"other"})), False, "forget"),
        (OwnedState("1", frozenset({"own"})), False, "delete"),
        (OwnedState("1", frozenset({"own"}), deleting=True), False, "wait"),
        (OwnedState("1", frozenset({"own", "other"})), False, "disown"),
        (OwnedState("1", frozenset({"own"})), True, "disown"),
    ],
)
def test_only_what_a_work_alone_owns_is_deleted(state: OwnedState, orphaned: bool, decision: str):
    assert removal(state, "own", orphaned=orphaned) == decision


def test_owner_references_are_added_once_and_taken_away():
    own, other = {"uid": "own"}, {"uid": "other"}

    assert with_owner([other], own) == [other, own]
    assert with_owner([own, other], own) == [own, other]
    assert without_owner([own, other], "own") == [other]


def test_the_older_work_has_precedence_unless_it_lets_the_object_go():
    claims = Claims()
    older, newer = ObjectClaim(False, "1", "older", "x"), ObjectClaim(False, "2", "newer", "y")
    claims.replace("older", {A_MAP: older})
    claims.replace("newer", {A_MAP: newer})
    assert claims.rival("newer", A_MAP) == "older"
    assert claims.rival("older", A_MAP) == ""

    assert claims.replace("older", {A_MAP: ObjectClaim(True, "1", "older", "x")}) == {"newer"}
    assert claims.rival("newer", A_MAP) == ""
    assert claims.rival("older", A_MAP) == "newer"
    claims.replace("older", {})
    assert claims.replace("newer", {}) == set()
    assert not claims.by_object


def test_works_that_want_the_same_are_no_rivals():
    claims = Claims()
    for name in ("a", "b"):
        claims.replace(name, {A_MAP: ObjectClaim(False, "1", name, "same")})

    assert claims.rival("a", A_MAP) == claims.rival("b", A_MAP) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<nil>"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        (2.0, "2"),
        ("a b", "a b"),
        ([1, "a"], "[1 a]"),
        ({"b": [], "a": {"c": None}}, "map[a:map[c:<nil>] b:[]]"),
    ],
)
def test_values_are_hashed_as_go_prints_them(value: Any, text: str):
    assert go_text(value) == text


def test_the_hash_is_that_of_agents_of_open_cluster_management():
    """MD5 of `&{map[a:1]}`."""
    assert spec_hash({"a": 1}) == "dde3843ce607a2fe9a22426f739df71d"


DEEP: Object = {"spec": {"replicas": 1, "list": [{"name": "a", "image": "b"}], "a/b~c": 1}}


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (IgnoreField(json_paths=[".spec.replicas"]), {"list": DEEP["spec"]["list"], "a/b~c": 1}),
        (IgnoreField(json_paths=[".spec.absent"]), DEEP["spec"]),
        (
            IgnoreField(json_paths=[".spec.list[*].image"]),
            {"replicas": 1, "list": [{"name": "a"}], "a/b~c": 1},
        ),
        (
            IgnoreField(json_paths=['.spec.list[?(@.name=="a")].image']),
            {"replicas": 1, "list": [{"name": "a"}], "a/b~c": 1},
        ),
        (IgnoreField(json_pointers=["/spec/a~1b~0c", "/spec/list"]), {"replicas": 1}),
        (
            IgnoreField(json_pointers=["/spec/list/0/image"]),
            {"replicas": 1, "list": [{"name": "a"}], "a/b~c": 1},
        ),
        (IgnoreField(json_pointers=["/spec/list/7", "/x/y/z"]), DEEP["spec"]),
    ],
)
def test_ignored_fields_are_left_out(rule: IgnoreField, left: Object):
    assert without_paths(DEEP, rule)["spec"] == left
    assert DEEP["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    "rule",
    [
        IgnoreField(json_paths=["replicas"]),
        IgnoreField(json_paths=[".spec[.x"]),
        IgnoreField(json_pointers=["spec"]),
    ],
)
def test_paths_of_no_use_are_refused(rule: IgnoreField):
    with pytest.raises(IgnoreFieldError):
        without_paths(DEEP, rule)


SENT: list[tuple[list[Object], Object]] = [
    ([], {"spec": {"image": "x", "replicas": 7}}),
    (
        [{"manager": "hpa", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}],
        {"spec": {"image": "x"}},
    ),
]


@pytest.mark.parametrize(("others", "sent"), SENT)
def test_a_field_that_only_we_own_is_sent_as_it_is(others: list[Object], sent: Object):
    """Else leaving it out would remove it."""
    own: Object = {
        "manager": "work-agent",
        "operation": "Apply",
        "fieldsV1": {"f:spec": {"f:replicas": {}, "f:image": {}}},
    }
    there: Object = {"metadata": {"managedFields": [own, *others]}, "spec": {"replicas": 7}}
    whole = {"spec": {"replicas": 3, "image": "x"}}

    assert kept({"spec": {"image": "x"}}, whole, there, "work-agent") == sent


def test_a_work_that_is_nested_too_deep_is_not_applied_in_part():
    meta = ObjectMeta(name="w", namespace="c")
    spec = {"workload": {"manifests": [{"spec": TOO_DEEP}]}}
    work = Work(meta, zlib.compress(msgspec.json.encode(spec)), {})

    with pytest.raises(DecodeError, match="nested deeper than 200 levels"):
        work.spec()
