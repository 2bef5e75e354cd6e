"""Works and other objects in events."""

from datetime import UTC, datetime

import msgspec
import pytest

from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL, CLUSTERS
from knfleet.api.core import LEASES
from knfleet.api.meta import Object
from knfleet.cloudevents.cloud_event import CloudEvent, EventError
from knfleet.cloudevents.event_types import (
    CLUSTER_NAME,
    RESOURCE_ID,
    RESOURCE_VERSION,
    SPEC,
    UPDATE,
    EventType,
    data_type,
)
from knfleet.cloudevents.object_events import cluster_of, object_event, read_object
from knfleet.cloudevents.resync import ResourceVersion
from knfleet.cloudevents.work_events import (
    bundle_event,
    gone_event,
    read_bundle,
    read_status,
    status_event,
)

WORK: Object = {
    "metadata": {
        "name": "w",
        "namespace": "c1",
        "uid": "u-1",
        "generation": 3,
        "labels": {"a": "b"},
        "managedFields": [{"manager": "x"}],
    },
    "spec": {
        "workload": {"manifests": [{"kind": "ConfigMap"}]},
        "executor": {"subject": {"type": "ServiceAccount"}},
        "deleteOption": {"propagationPolicy": "Orphan"},
    },
    "status": {"conditions": [{"type": "Applied", "status": "True"}]},
}


def test_a_work_survives_the_way_to_its_agent():
    found = read_bundle(bundle_event(UPDATE, WORK, source="kube"))

    assert found["spec"] == WORK["spec"]
    assert found["metadata"]["generation"] == 3
    assert found["metadata"]["labels"] == {"a": "b"}
    assert "managedFields" not in found["metadata"]
    assert found["status"] == {}


def test_an_agent_of_ours_gets_the_status_as_well():
    assert (
        read_bundle(bundle_event(UPDATE, WORK, source="kube", full=True))["status"]
        == WORK["status"]
    )


def test_the_executor_is_spelled_as_agents_spell_it():
    data = msgspec.json.decode(bundle_event(UPDATE, WORK, source="kube").data)

    assert set(data) == {"manifests", "executer", "deleteOption"}


def test_a_work_that_leaves_carries_the_time_and_how_to_delete_it():
    when = datetime(2026, 11, 18, tzinfo=UTC)

    event = bundle_event(UPDATE, WORK, source="kube", deleted_at=when)

    assert read_bundle(event)["metadata"]["deletionTimestamp"] == "2026-11-18T00:00:00Z"
    assert read_bundle(event)["spec"]["deleteOption"] == {"propagationPolicy": "Orphan"}
    gone = read_bundle(gone_event("delete_request", "c1", ResourceVersion("u-2", 4), when))
    assert (gone["metadata"]["name"], gone["metadata"]["generation"]) == ("u-2", 4)


def test_a_status_survives_the_way_to_the_hub():
    status: Object = {
        "conditions": [{"type": "Applied", "status": "True"}],
        "resourceStatus": {"manifests": [{"conditions": []}]},
    }

    found = read_status(
        status_event(WORK["metadata"], status, source="c1-agent", original="kube", sequence="7")
    )

    assert (found.uid, found.generation, found.sequence) == ("u-1", 3, "7")
    assert found.status == status
    assert not found.is_deleted


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"conditions":{}}', b'{"conditions":[{"type":1,"status":"True"}]}', b"[" * 9999],
)
def test_a_status_of_another_form_is_refused(data: bytes):
    extensions = {RESOURCE_ID: "u", RESOURCE_VERSION: 1, CLUSTER_NAME: "c1"}

    with pytest.raises(EventError):
        read_status(CloudEvent("t", extensions=extensions, data=data))


def test_an_object_survives_the_way_over_the_wire():
    lease: Object = {
        "metadata": {"name": "l", "namespace": "c1", "resourceVersion": "9"},
        "spec": {},
    }
    kind = EventType(data_type(LEASES), SPEC, UPDATE)

    event = object_event(kind, LEASES, lease, source="c1", cluster="c1")

    assert read_object(event) == {**lease, "apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    assert event.extensions[RESOURCE_VERSION] == "9"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"{}",
        b'{"metadata":[]}',
        b'{"metadata":{"name":["a"]}}',
        b'{"metadata":{"name":"a","namespace":{}}}',
        b'{"metadata":{"name":"a","labels":{"x":{}}}}',
        b'{"metadata":{"name":"a","annotations":[]}}',
    ],
)
def test_an_object_whose_metadata_cannot_be_relied_on_is_refused(data: bytes):
    with pytest.raises(EventError):
        read_object(CloudEvent("t", data=data))


def test_objects_belong_to_the_cluster_that_name_namespace_or_label_say():
    labels = {CLUSTER_NAME_LABEL: "c3"}

    assert cluster_of(CLUSTERS, {"metadata": {"name": "c1", "namespace": "x"}}) == "c1"
    assert cluster_of(LEASES, {"metadata": {"name": "x", "namespace": "c2"}}) == "c2"
    assert cluster_of(CSRS, {"metadata": {"name": "x", "labels": labels}}) == "c3"
    assert cluster_of(CSRS, {"metadata": {"name": "x"}}) == ""
