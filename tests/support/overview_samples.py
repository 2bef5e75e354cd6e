"""Hub objects as an API server stores them, with only what a test speaks of."""

from typing import Any

from knfleet.api.cluster.managedcluster import AVAILABLE, CLUSTER_NAME_LABEL, CLUSTERS, JOINED
from knfleet.api.inventory import CONTROL_PLANE_HEALTHY, PROFILES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Object, Resource

THEN = "2026-11-16T03:00:00Z"


def condition(type_: str, status: str, reason: str = "", message: str = "") -> Object:
    """A condition."""
    said = {"type": type_, "status": status, "reason": reason, "message": message}
    return {**said, "lastTransitionTime": THEN}


def managed(
    name: str,
    health: str = "True",
    *,
    accepted: bool = True,
    labels: dict[str, str] | None = None,
) -> Object:
    """A ManagedCluster that has joined."""
    said = [condition(JOINED, "True"), condition(AVAILABLE, health, "Told", f"it is {health}")]
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": CLUSTERS.kind,
        "metadata": {"name": name, "labels": labels or {}, "creationTimestamp": THEN},
        "spec": {"hubAcceptsClient": accepted},
        "status": {
            "conditions": said if accepted else [],
            "version": {"kubernetes": "v1.34.1"},
        },
    }


def profile(name: str, *, namespace: str = "fleet", health: str = "True", ours: bool = True) -> Any:
    """A ClusterProfile."""
    return {
        "apiVersion": PROFILES.api_version,
        "kind": PROFILES.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {CLUSTER_NAME_LABEL: name} if ours else {},
        },
        "status": {"conditions": [condition(CONTROL_PLANE_HEALTHY, health)]},
    }


def install(
    name: str, *said: Object, on: str = "", version: str = "", resource: Resource = SERVINGS
) -> Object:
    """A custom resource whose conditions are given."""
    reference = {"namespace": "fleet", "name": on}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": "knative",
            "uid": f"uid-{name}",
            "generation": 2,
            "creationTimestamp": THEN,
        },
        "spec": {"version": "1.23", **({"clusterProfileRef": reference} if on else {})},
        "status": {"observedGeneration": 2, "conditions": list(said), "version": version},
    }
