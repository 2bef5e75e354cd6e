"""Clusters for tests of pure decisions."""

from datetime import UTC, datetime
from typing import Any

from knfleet.api.cluster.managedcluster import CLUSTERS, ManagedCluster
from knfleet.api.meta import Object
from knfleet.api.schema import decode

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def said(type_: str, status: str, at: str = "2026-03-01T11:00:00Z") -> Object:
    """A condition."""
    return {"type": type_, "status": status, "reason": "Test", "lastTransitionTime": at}


def cluster(
    *conditions: Object,
    accepted: bool = True,
    annotations: dict[str, str] | None = None,
    meta: Object | None = None,
    **spec: Any,
) -> ManagedCluster:
    """A cluster."""
    return decode(
        {
            "apiVersion": CLUSTERS.api_version,
            "kind": CLUSTERS.kind,
            "metadata": {
                "name": "c1",
                "uid": "1",
                "creationTimestamp": "2026-03-01T10:00:00Z",
                "annotations": annotations or {},
                **(meta or {}),
            },
            "spec": {"hubAcceptsClient": accepted, **spec},
            "status": {"conditions": list(conditions)},
        },
        ManagedCluster,
    )
