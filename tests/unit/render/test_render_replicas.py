"""High availability and replicas of single workloads."""

import pytest

from knfleet.api.meta import Object
from knfleet.render.overrides.replicas import AUTOSCALED
from tests.unit.render.samples import (
    autoscaler,
    eventing,
    one,
    rendered,
    serving,
    workload,
)


def available(replicas: int) -> Object:
    return {"high-availability": {"replicas": replicas}}


def span(manifest: Object) -> tuple[int, int]:
    return manifest["spec"]["minReplicas"], manifest["spec"]["maxReplicas"]


def test_deployments_get_the_number_of_pods():
    """Zero is a number too."""
    assert one(workload("controller"), available(3))["spec"]["replicas"] == 3
    assert one(workload("controller"), available(0))["spec"]["replicas"] == 0
    assert "replicas" not in one(workload("controller"))["spec"]


@pytest.mark.parametrize("name", [*sorted(AUTOSCALED), "pingsource-mt-adapter"])
def test_deployments_that_others_scale_are_left_alone(name: str):
    """Setting both the number and the autoscaler makes them fight."""
    assert "replicas" not in one(workload(name), available(3))["spec"]


def test_a_deployment_that_any_autoscaler_scales_is_left_alone():
    """Upstream knows only the names in its list."""
    objects = [workload("controller"), autoscaler("mine", 1, 4, target="controller")]

    deployment, hpa = rendered(objects, serving(available(2))).objects

    assert "replicas" not in deployment["spec"]
    assert span(hpa) == (2, 5)


def test_stateful_sets_are_not_touched():
    """Their number of pods has a meaning of its own."""
    assert "replicas" not in one(workload("x", kind="StatefulSet"), available(3))["spec"]


@pytest.mark.parametrize(
    ("before", "replicas", "after"),
    [
        ((1, 4), 2, (2, 5)),
        ((3, 5), 2, (3, 5)),
        ((2, 5), 2, (2, 5)),
        ((2, 5), 6, (6, 9)),
        ((2, 2), 3, (3, 3)),
    ],
)
def test_an_autoscaler_keeps_its_span(
    before: tuple[int, int], replicas: int, after: tuple[int, int]
):
    """The greatest number rises with the least; nothing is ever lowered."""
    assert after == span(one(autoscaler("activator", *before), available(replicas)))


def test_an_autoscaler_without_a_greatest_number_gets_none():
    """And one without a least number starts from the API's default of one."""
    manifest = autoscaler("activator", 1, 4)
    del manifest["spec"]["maxReplicas"], manifest["spec"]["minReplicas"]

    assert {"scaleTargetRef", "minReplicas"} == set(one(manifest, available(2))["spec"])


def test_a_workload_with_a_number_of_its_own_is_left_to_it():
    """Of activator both the Deployment and the autoscaler."""
    spec = {**available(10), "workloads": [{"name": "activator", "replicas": 4}]}
    objects = [workload("activator"), autoscaler("activator", 1, 20)]

    deployment, hpa = rendered(objects, serving(spec)).objects
    _, without = rendered(objects, serving(available(10))).objects

    assert "replicas" not in deployment["spec"]
    assert span(hpa) == (4, 23)
    assert span(without) == (10, 29)


@pytest.mark.parametrize("name", ["mt-broker-ingress", "mt-broker-filter"])
def test_a_broker_with_a_number_of_its_own_is_left_to_it(name: str):
    """Its autoscaler has another name, so that upstream applies both."""
    spec = {**available(10), "workloads": [{"name": name, "replicas": 4}]}
    hpa = autoscaler(name.removeprefix("mt-") + "-hpa", 1, 10, target=name)

    [result] = rendered([hpa], eventing(spec)).objects

    assert span(result) == (4, 13)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_an_override_sets_the_number_of_pods(kind: str):
    """The last one wins, and `workloads` come after `deployments`."""
    spec = {
        "workloads": [{"name": "x", "replicas": 2}, {"name": "x", "replicas": 3}],
        "deployments": [{"name": "x", "replicas": 9}],
    }

    assert one(workload("x", kind=kind), spec)["spec"]["replicas"] == 3
    assert "replicas" not in one(workload("y", kind=kind), spec)["spec"]


def test_an_override_without_a_number_leaves_high_availability_its_way():
    """Only a number is a number."""
    spec = {**available(3), "workloads": [{"name": "x", "labels": {"a": "b"}}]}

    assert one(workload("x"), spec)["spec"]["replicas"] == 3
