"""When completed works are deleted, and what is kept of works in memory."""

from datetime import UTC, datetime
from typing import Any

import pytest

from knfleet.api.meta import Object
from knfleet.hub.work.time_to_live import REPLICA_SET_LABEL, expiry, ttl_seconds
from knfleet.hub.work.work_cache import without_content
from tests.support.hub_works import config_map, work

DONE = "2026-01-01T00:00:00Z"


def completed(ttl: Any = 60, *, status: str = "True", generation: int = 0, **meta: Any) -> Object:
    """A work with a time to live that has completed."""
    made = work("w", deleteOption={"ttlSecondsAfterFinished": ttl})
    made["metadata"] |= {"generation": 2, **meta}
    said: Object = {"type": "Complete", "status": status, "lastTransitionTime": DONE}
    if generation:
        said["observedGeneration"] = generation
    made["status"] = {"conditions": [said]}
    return made


def test_a_completed_work_expires_its_time_to_live_later():
    assert expiry(completed()) == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert expiry(completed(0)) == datetime(2026, 1, 1, tzinfo=UTC)
    assert expiry(completed(generation=2)) is not None


@pytest.mark.parametrize(
    "kept",
    [
        work("w"),
        work("w", deleteOption={"ttlSecondsAfterFinished": 5}),
        completed(-1),
        completed("soon"),
        completed(status="False"),
        completed(status="Unknown"),
        completed(generation=1),
        completed(labels={REPLICA_SET_LABEL: "ns.set"}),
        completed(deletionTimestamp=DONE),
    ],
)
def test_other_works_are_kept(kept: Object):
    assert expiry(kept) is None


def test_only_works_with_a_time_to_live_are_looked_at():
    assert ttl_seconds(work("w")) is None
    assert ttl_seconds(completed(0)) == 0


def test_the_content_of_manifests_is_not_kept_in_memory():
    made = work("w", config_map("a", secret="x" * 1000), {"kind": 5, "metadata": None})
    made["spec"]["workload"]["manifests"].append("odd")
    made["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "all",
        "mine": "yes",
    }
    made["metadata"]["managedFields"] = [{}]

    kept = without_content(made)

    assert kept["spec"]["workload"]["manifests"] == [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "default"},
        },
        {"apiVersion": "", "kind": 5, "metadata": {}},
        {"apiVersion": "", "kind": "", "metadata": {}},
    ]
    assert kept["metadata"] == {"name": "w", "annotations": {"mine": "yes"}}
    assert without_content({"metadata": {"name": "w"}}) == {"metadata": {"name": "w"}}
