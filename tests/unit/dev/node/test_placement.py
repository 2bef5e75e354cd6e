"""Which pods the node takes."""

from typing import Any

import pytest

from knfleet.api.meta import Object
from knfleet.dev.node.pods.node_fit import obstacle, wants_node
from tests.unit.dev.node.manifests import pod

NODE: Object = {"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux", "cores": "8"}}}


def affinity(**term: Any) -> Object:
    """A required node affinity with one term."""
    terms = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def fields(name: str) -> Object:
    """What the DaemonSet controller writes to bind a pod to a node."""
    return affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": [name]}])


def expression(key: str, operator: str, *values: str) -> Object:
    """A required match of one label."""
    return affinity(matchExpressions=[{"key": key, "operator": operator, "values": list(values)}])


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"nodeSelector": {"kubernetes.io/os": "linux"}},
        {"affinity": fields("n1")},
        {"affinity": expression("cores", "Gt", "4")},
        {"affinity": expression("zone", "DoesNotExist")},
        {"affinity": expression("zone", "NotIn", "a")},
    ],
)
def test_a_pod_that_fits_has_no_obstacle(spec: Object) -> None:
    """Selectors and affinities that mean the node."""
    assert obstacle(pod(**spec), NODE) == ""


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"nodeSelector": {"disk": "fast"}}, "disk=fast"),
        ({"affinity": fields("n2")}, "affinity"),
        ({"affinity": expression("cores", "Lt", "4")}, "affinity"),
        ({"affinity": expression("zone", "Exists")}, "affinity"),
        ({"affinity": expression("cores", "Resembles", "8")}, "affinity"),
    ],
)
def test_a_pod_that_does_not_fit_is_told_why(spec: Object, word: str) -> None:
    """The message names the obstacle."""
    assert word in obstacle(pod(**spec), NODE)


def test_taints_need_tolerations_but_unreadiness_does_not() -> None:
    """The node writes its own readiness, so that taint is never more than a moment old."""
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    unready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    node = {**NODE, "spec": {"taints": [taint, unready], "unschedulable": True}}
    gpu = {"key": "gpu", "value": "yes"}
    cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}

    assert "gpu" in obstacle(pod(), node)
    assert "unschedulable" in obstacle(pod(tolerations=[gpu]), node)
    assert obstacle(pod(tolerations=[gpu, cordon]), node) == ""


def test_only_pods_without_node_and_gates_want_a_node() -> None:
    """A terminating pod is past that too."""
    ending = pod(nodeName="")
    ending["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"

    assert wants_node(pod(nodeName=""))
    assert not wants_node(pod())
    assert not wants_node(pod(nodeName="", schedulingGates=[{"name": "wait"}]))
    assert not wants_node(ending)
