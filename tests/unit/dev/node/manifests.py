"""Pods for the tests of the dev node's pure parts."""

from datetime import UTC, datetime
from typing import Any

from knfleet.api.meta import Object

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW_TEXT = "2026-01-02T03:04:05Z"


def pod(*, job: bool = False, status: Object | None = None, **spec: Any) -> Object:
    """A bound pod, owned by a Job if asked for."""
    owner = {"kind": "Job" if job else "ReplicaSet", "name": "o", "uid": "u-o", "controller": True}
    return {
        "metadata": {
            "name": "web-1",
            "namespace": "shop",
            "uid": "u-1",
            "generation": 2,
            "labels": {"app": "web", "tier": "front"},
            "annotations": {"note": 'say "hi"'},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": "n1",
            "serviceAccountName": "shopper",
            "restartPolicy": "Never" if job else "Always",
            "containers": [{"name": "main", "image": "nginx"}],
            **spec,
        },
        "status": status or {},
    }
