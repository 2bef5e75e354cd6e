"""Overrides of single workloads."""

from typing import Any

import pytest

from knfleet.api.meta import Object
from tests.unit.render.samples import container, env, job, one, pod, rendered, serving, workload

HTTP: Object = {"httpGet": {"path": "/health"}, "periodSeconds": 10, "failureThreshold": 3}


def overridden(manifest: Object, **override: Any) -> Object:
    name = manifest["metadata"].get("name") or manifest["metadata"]["generateName"]
    return one(manifest, {"workloads": [{"name": name, **override}]})


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job"])
def test_labels_and_annotations_reach_the_workload_and_its_pods(kind: str):
    """Selectors are immutable, and stay. Upstream knows no DaemonSets and no named Jobs."""
    result = overridden(workload("x", kind=kind), labels={"a": "b"}, annotations={"c": "d"})

    template = result["spec"]["template"]
    assert "b" == result["metadata"]["labels"]["a"] == template["metadata"]["labels"]["a"]
    assert {"c": "d"} == result["metadata"]["annotations"] == template["metadata"]["annotations"]
    assert result["spec"]["selector"]["matchLabels"] == {"app": "x"}


def test_a_job_is_known_by_its_generate_name():
    """Not by the name that it gets."""
    result = overridden(job("migrate-"), nodeSelector={"a": "b"})

    assert pod(result)["nodeSelector"] == {"a": "b"}


def test_placement_is_replaced_as_a_whole_when_given():
    """What is not given stays."""
    before: dict[str, Any] = {
        "nodeSelector": {"old": "1"},
        "tolerations": [{"key": "old"}],
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "affinity": {"nodeAffinity": {}},
    }
    after: dict[str, Any] = {
        "nodeSelector": {"new": "1"},
        "tolerations": [{"key": "new"}],
        "topologySpreadConstraints": [{"maxSkew": 2}],
        "affinity": {"podAffinity": {}},
    }

    changed = pod(overridden(workload("x", **before), **after))
    kept = pod(overridden(workload("x", **before), labels={"a": "b"}))

    assert after == {name: changed[name] for name in after}
    assert before == {name: kept[name] for name in before}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (True, {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}),
        (False, {"hostNetwork": False}),
        (None, {}),
    ],
)
def test_the_nodes_network_comes_with_the_clusters_dns(given: bool | None, expected: Object):
    """False says nothing of DNS."""
    result = pod(overridden(workload("x"), hostNetwork=given))

    assert expected == {k: v for k, v in result.items() if k in ("hostNetwork", "dnsPolicy")}


def test_resources_are_merged_by_container():
    """Per resource; the first entry for a container counts."""
    limits = {"cpu": "1", "memory": "1Gi"}
    manifest = workload(
        "x", container("a", resources={"limits": limits}), container("b"), container("c")
    )
    resources = [
        {"container": "a", "limits": {"cpu": "2"}, "requests": {"cpu": 1}},
        {"container": "a", "limits": {"cpu": "9"}},
        {"container": "b", "requests": {"memory": "1Mi"}},
    ]

    first, second, third = pod(overridden(manifest, resources=resources))["containers"]

    assert first["resources"] == {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": 1}}
    assert second["resources"] == {"requests": {"memory": "1Mi"}}
    assert "resources" not in third


def test_environment_is_replaced_in_place_or_appended():
    """Of duplicates the last one stays; unknown containers are passed over."""
    manifest = workload(
        "x", container("a", env=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}])
    )
    variables = [
        {"name": "C", "value": "2"},
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
        {"name": "C", "value": "3"},
    ]

    result = overridden(
        manifest,
        env=[{"container": "a", "envVars": variables}, {"container": "z", "envVars": variables}],
    )

    assert env(result) == [
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
        {"name": "B", "value": "1"},
        {"name": "C", "value": "3"},
    ]


@pytest.mark.parametrize("field", ["readinessProbe", "livenessProbe"])
@pytest.mark.parametrize(
    ("before", "override", "after"),
    [
        (HTTP, {"periodSeconds": 5}, {**HTTP, "periodSeconds": 5}),
        (
            HTTP,
            {"failureThreshold": 9, "terminationGracePeriodSeconds": 1},
            {**HTTP, "failureThreshold": 9, "terminationGracePeriodSeconds": 1},
        ),
        (HTTP, {"initialDelaySeconds": 0}, {**HTTP, "initialDelaySeconds": 0}),
        (HTTP, {}, None),
        (None, {"periodSeconds": 5}, None),
    ],
)
def test_probes_are_retimed_or_removed(
    field: str, before: Object | None, override: Object, after: Object | None
):
    """Without a handler none is made: an API server would refuse it."""
    manifest = workload("x", {**container("c"), **({field: before} if before else {})})

    result = overridden(manifest, **{f"{field}s": [{"container": "c", **override}]})

    assert after == pod(result)["containers"][0].get(field)


def test_deprecated_fields_of_an_override_do_nothing():
    """They are accepted."""
    assert one(workload("x")) == overridden(workload("x"), version="1", volumeMounts=[{"a": 1}])


def test_resources_of_the_whole_reach_deployments_without_an_override():
    """The deprecated way."""
    resources = [{"container": "c", "limits": {"cpu": "1"}}]
    mine = [{"container": "c", "limits": {"memory": "1Gi"}}]
    objects = [
        workload("plain", container("c")),
        workload("special", container("c")),
        workload("set", container("c"), kind="StatefulSet"),
    ]
    spec = {"resources": resources, "workloads": [{"name": "special", "resources": mine}]}

    plain, special, stateful = rendered(objects, serving(spec)).objects

    assert pod(plain)["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert pod(special)["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert "resources" not in pod(stateful)["containers"][0]
