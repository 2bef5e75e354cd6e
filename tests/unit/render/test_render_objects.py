"""Jobs, ConfigMaps, Services, budgets, roles, owners, labels."""

import pytest

from knfleet.api.meta import Object
from knfleet.render.errors import BadObject, RenderError
from tests.unit.render.samples import (
    OWNER,
    config_map,
    container,
    env,
    eventing,
    job,
    one,
    pod,
    rendered,
    thing,
    workload,
)


def test_jobs_are_named_after_component_and_version():
    """So that each version runs its own."""
    generated = one(job("storage-version-migration-serving-"))
    named = workload("kafka-controller-post-install", kind="Job")
    [kafka] = rendered([named], eventing()).objects

    assert generated["metadata"]["name"] == "storage-version-migration-serving-serving-1.23.0"
    assert generated["metadata"]["generateName"] == "storage-version-migration-serving-"
    assert kafka["metadata"]["name"] == "kafka-controller-post-install-eventing-1.23.0"


@pytest.mark.parametrize(
    ("labels", "expected"), [({}, "false"), ({"x": ""}, "false"), ({"x": "true"}, "true")]
)
def test_jobs_keep_the_sidecar_out_unless_they_say_so(labels: Object, expected: str):
    """A sidecar never ends, and so the Job would not."""
    manifest = job("a-")
    for value in labels.values():
        manifest["spec"]["template"]["metadata"]["labels"]["sidecar.istio.io/inject"] = value

    result = one(manifest)

    labels = result["spec"]["template"]["metadata"]["labels"]
    assert expected == labels["sidecar.istio.io/inject"]


def test_config_is_written_by_short_or_full_name_and_other_entries_stay():
    """The full name wins as a whole."""
    manifest = config_map("config-network", old="1", _example="x")

    short = one(manifest, {"config": {"network": {"new": "2"}}})
    full = one(manifest, {"config": {"network": {"new": "2"}, "config-network": {"old": "3"}}})
    empty = one(manifest, {"config": {"network": {}}})

    assert short["data"] == {"old": "1", "_example": "x", "new": "2"}
    assert full["data"] == {"old": "3", "_example": "x"}
    assert manifest["data"] == empty["data"]


def test_config_works_for_names_without_the_prefix():
    """Short names, with which upstream's process ends, included."""
    spec = {"config": {"kourier-bootstrap": {"a": "1"}, "x": {"b": "2"}}}

    assert one(config_map("kourier-bootstrap"), spec)["data"] == {"a": "1"}
    assert one(config_map("x"), spec)["data"] == {"b": "2"}
    assert one(config_map("y"), spec)["data"] == {}


def test_a_config_map_without_entries_gets_them():
    """`data` need not be there."""
    manifest = thing("v1", "ConfigMap", "config-a")

    assert one(manifest, {"config": {"a": {"k": "v"}}})["data"] == {"k": "v"}


def test_a_config_map_whose_entries_are_no_map_is_named():
    """An additional manifest may hold anything."""
    with pytest.raises(BadObject, match="ConfigMap config-a: data is not a map"):
        one(thing("v1", "ConfigMap", "config-a", data="x"), {"config": {"a": {"k": "v"}}})


def test_services_get_labels_annotations_and_selector():
    """Merged; a Knative Service of the same name is another thing."""
    manifest = thing("v1", "Service", "webhook", spec={"selector": {"a": "1", "b": "1"}})
    knative = thing("serving.knative.dev/v1", "Service", "webhook", spec={})
    override = {
        "name": "webhook",
        "labels": {"l": "1"},
        "annotations": {"n": "1"},
        "selector": {"b": "2"},
    }

    result = one(manifest, {"services": [override]})

    assert result["metadata"]["labels"]["l"] == "1"
    assert result["metadata"]["annotations"] == {"n": "1"}
    assert result["spec"]["selector"] == {"a": "1", "b": "2"}
    assert one(knative, {"services": [override]})["spec"] == {}
    assert manifest["spec"] == one(manifest, {"services": None})["spec"]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ({"minAvailable": 1}, {"minAvailable": 1}),
        ({"maxUnavailable": "50%"}, {"maxUnavailable": "50%"}),
        ({"selector": {"x": "y"}}, {"minAvailable": "80%"}),
        ({"minAvailable": 0}, {"minAvailable": 0}),
    ],
)
def test_a_budget_has_one_limit(override: Object, expected: Object):
    """Setting one clears the other; the selector is not for users."""
    manifest = thing("policy/v1", "PodDisruptionBudget", "p", spec={"minAvailable": "80%"})

    result = one(manifest, {"podDisruptionBudgets": [{"name": "p", **override}]})

    assert expected == result["spec"]


def test_both_limits_of_a_budget_are_refused():
    """With upstream's words."""
    manifest = thing("policy/v1", "PodDisruptionBudget", "p", spec={})
    override = {"name": "p", "minAvailable": 1, "maxUnavailable": 1}

    with pytest.raises(RenderError) as caught:
        one(manifest, {"podDisruptionBudgets": [override]})

    problem = "both minAvailable and maxUnavailable are set for PodDisruptionBudget p"
    assert problem == caught.value.problem
    assert caught.value.where == "spec.podDisruptionBudgets[0]"


@pytest.mark.parametrize("rules", [[], None, [{"verbs": ["get"]}]])
def test_the_rules_of_an_aggregated_role_are_not_spoken_of(rules: object):
    """They are the aggregation controller's. Upstream fails while they are null."""
    kind = "ClusterRole"
    aggregated = thing(
        "rbac.authorization.k8s.io/v1", kind, "a", aggregationRule={"x": 1}, rules=rules
    )
    plain = thing("rbac.authorization.k8s.io/v1", kind, "a", rules=rules)

    assert "rules" not in one(aggregated)
    assert rules == one(plain)["rules"]


def test_namespaced_objects_have_one_owner():
    """It replaces all others; cluster-scoped objects have none."""
    manifest = config_map("x")
    manifest["metadata"]["ownerReferences"] = [{"name": "somebody"}]
    role = thing("rbac.authorization.k8s.io/v1", "ClusterRole", "x")

    assert one(manifest, owner=OWNER)["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "operator.knative.dev/v1beta1",
            "kind": "KnativeServing",
            "name": "knative",
            "uid": "uid-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert "ownerReferences" not in one(role, owner=OWNER)["metadata"]


def test_every_object_is_labelled_with_its_component():
    """Pod templates are not: their labels are part of selectors."""
    manifest = workload("x")
    manifest["metadata"]["labels"] = {"app.kubernetes.io/name": "other"}
    role = thing("rbac.authorization.k8s.io/v1", "ClusterRole", "x")

    result = one(manifest)
    [eventing_role] = rendered([role], eventing()).objects

    assert result["metadata"]["labels"]["app.kubernetes.io/name"] == "knative-serving"
    assert result["spec"]["template"]["metadata"]["labels"] == {"app": "x"}
    assert eventing_role["metadata"]["labels"]["app.kubernetes.io/name"] == "knative-eventing"


def test_every_container_is_told_the_oldest_kubernetes():
    """Init containers too; what is there is replaced."""
    variable = {"name": "KUBERNETES_MIN_VERSION", "value": "v1.30.0"}
    old = {"name": "KUBERNETES_MIN_VERSION", "value": "old"}
    manifest = workload("x", container("a", env=[old]), initContainers=[container("i")])

    result = one(manifest, minimum_kubernetes="v1.30.0")

    assert [variable] == env(result)
    assert [variable] == pod(result)["initContainers"][0]["env"]
    assert env(one(workload("x"))) == []
