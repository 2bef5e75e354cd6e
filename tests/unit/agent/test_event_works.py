"""Works from a gRPC server, with a server that is a list of events."""

from datetime import UTC, datetime
from typing import Any

from knfleet.agent.grpc.event_works import EventWorkSource
from knfleet.api.meta import Object
from knfleet.api.work.appliedmanifestwork import hub_hash
from knfleet.api.work.manifestwork import WORK_FINALIZER
from knfleet.cloudevents.cloud_event import CloudEvent
from knfleet.cloudevents.event_types import BUNDLES, DELETE, STATUS, UPDATE, EventType
from knfleet.cloudevents.resync import ResourceVersion, status_hash, status_hashes_bytes
from knfleet.cloudevents.work_events import bundle_event, gone_event, read_status

SERVER = "https://hub.example.com"


class Channel:
    """Keeps what is published."""

    cluster = "c1"
    source = "c1-agent"

    def __init__(self) -> None:
        self.published: list[CloudEvent] = []

    async def publish(self, event: CloudEvent) -> None:
        """Keep an event."""
        self.published.append(event)


def source() -> tuple[EventWorkSource, Channel]:
    """A source without a server."""
    channel = Channel()
    made: Any = channel
    return EventWorkSource(made, SERVER), channel


def work(generation: int = 1, **meta: Any) -> Object:
    """A work of the hub."""
    return {
        "metadata": {
            "name": "w",
            "namespace": "c1",
            "uid": "u1",
            "generation": generation,
            **meta,
        },
        "spec": {"workload": {"manifests": [{"kind": "A"}]}, "deleteOption": {}},
        "status": {"conditions": []},
    }


async def test_the_hash_of_the_hub_is_that_of_its_api_server():
    """So a cluster that changes its driver keeps its AppliedManifestWorks."""
    assert source()[0].hub == hub_hash(SERVER)


async def test_an_older_generation_does_not_replace_a_newer_one():
    works, _ = source()
    for generation in (2, 1):
        await works.receive(bundle_event(UPDATE, work(generation), source="kube"))

    found = works.get("w")
    assert found is not None
    assert found.generation == 2


async def test_the_first_status_is_published_so_that_the_server_sets_the_finalizer():
    works, channel = source()
    await works.receive(bundle_event(UPDATE, work(), source="kube"))
    found = works.get("w")
    assert found is not None
    assert not found.is_held

    await works.add_finalizer(found)

    held = works.get("w")
    assert held is not None
    assert held.is_held
    assert read_status(channel.published[0]).uid == "u1"
    await works.receive(bundle_event(UPDATE, work(2), source="kube"))
    later = works.get("w")
    assert later is not None
    assert later.metadata.finalizers == [WORK_FINALIZER]


async def test_a_work_that_leaves_keeps_its_spec_and_is_let_go_when_all_is_gone():
    works, channel = source()
    seen: list[str] = []
    works.on_change(seen.append)
    await works.receive(bundle_event(UPDATE, work(), source="kube"))

    await works.receive(gone_event(DELETE, "c1", ResourceVersion("u1", 1), datetime.now(UTC)))
    found = works.get("w")
    assert found is not None
    assert found.deleting
    assert found.spec().workload.manifests == [{"kind": "A"}]

    await works.remove_finalizer(found)

    assert read_status(channel.published[-1]).is_deleted
    assert works.get("w") is None
    assert seen == ["w", "w", "w"]


async def test_a_deletion_of_a_former_work_of_the_same_name_is_passed_over():

    works, _ = source()
    await works.receive(bundle_event(UPDATE, work(uid="u2"), source="kube"))

    late = bundle_event(DELETE, work(), source="kube", deleted_at=datetime.now(UTC))
    await works.receive(late)

    found = works.get("w")
    assert found is not None
    assert not found.deleting


async def test_only_statuses_that_differ_are_sent_when_the_hub_names_its_hashes():
    works, channel = source()
    for name, uid in (("w", "u1"), ("v", "u2")):
        event = bundle_event(UPDATE, work(name=name, uid=uid), source="kube", full=True)
        await works.receive(event)
    known = {"u1": status_hash({"conditions": []}), "u2": "other"}
    kind = str(EventType(BUNDLES, STATUS, "resync_request"))

    await works.receive(
        CloudEvent(kind, extensions={"clustername": "c1"}, data=status_hashes_bytes(known))
    )

    assert [read_status(each).uid for each in channel.published] == ["u2"]


async def test_events_of_other_clusters_and_unreadable_ones_change_nothing():
    works, _ = source()
    other = work(namespace="c2")
    await works.receive(bundle_event(UPDATE, other, source="kube"))
    await works.receive(CloudEvent("nonsense"))
    await works.receive(CloudEvent(str(EventType(BUNDLES, "spec", UPDATE)), data=b"{"))

    assert works.works == {}
