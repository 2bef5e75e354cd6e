"""The hub's objects that agents follow, as events: one source for each data type.

A source knows which objects belong to a cluster, in which version, and which changes of them an
agent is to be told. Works are kept compressed: their manifests are needed only to be sent.
"""

import zlib
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from knfleet.api.certificate_requests import CSR_USER, GRPC_SIGNER, SIGNER
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import part
from knfleet.cloudevents.cloud_event import CloudEvent
from knfleet.cloudevents.event_types import (
    BUNDLES,
    DELETE,
    HUB_SOURCE,
    RESOURCES,
    SPEC,
    DataType,
    EventType,
    data_type,
)
from knfleet.cloudevents.object_events import cluster_of, object_event
from knfleet.cloudevents.resync import ResourceVersion
from knfleet.cloudevents.work_events import bundle_event, gone_event
from knfleet.hub.addon.registration.certificate_rules import is_addon_request
from knfleet.hub.grpc.calls.caller import Caller
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.memory_budget import weight

PACKED = "packed"
IN_STATUS = ("resourceVersion", "managedFields", "finalizers")
"""Metadata that changes with the status of a work, and says nothing to its agent."""


def pack(work: Object) -> Object:
    """A work as it is kept: metadata as it is, the rest compressed."""
    meta = {name: value for name, value in work["metadata"].items() if name != "managedFields"}
    rest = {"spec": part(work, "spec"), "status": part(work, "status")}
    return {"metadata": meta, PACKED: zlib.compress(msgspec.json.encode(rest), 1)}


def unpack(kept: Object) -> Object:
    """A work as the API server has it."""
    rest: Object = msgspec.json.decode(zlib.decompress(kept[PACKED]))
    return {"metadata": kept["metadata"], **rest}


def weight_of(kept: Object) -> int:
    """About how much memory a work takes as it is kept."""
    return len(kept[PACKED]) + weight(msgspec.json.encode(kept["metadata"]))


def uid_index(work: Object) -> list[str]:
    """The UID of a work, by which events name it."""
    return [work["metadata"]["uid"]]


def namespace_index(manifest: Object) -> list[str]:
    """The namespace of an object, which is its cluster's."""
    return [manifest["metadata"]["namespace"]]


def label_index(manifest: Object) -> list[str]:
    """The cluster that an object's label names."""
    labels: dict[str, str] = manifest["metadata"].get("labels") or {}
    return [labels.get(CLUSTER_NAME_LABEL, "")]


class ObjectSource:
    """Objects of registration, which events name by their names."""

    def __init__(self, resource: Resource, informer: Informer, index: str = "") -> None:
        self.resource = resource
        self.data_type = data_type(resource)
        self.informer = informer
        self.index = index
        """The index by cluster; without one, objects are called like their cluster."""

    def follow(self, handler: Callable[[StoreChange], None]) -> None:
        """Call a function with every change."""
        self.informer.on_change(handler)

    def objects(self, cluster: str) -> list[Object]:
        """The objects of a cluster."""
        if self.index:
            return self.informer.by_index(self.index, cluster)
        found = self.informer.get(Key("", cluster))
        return [] if found is None else [found]

    def versions(self, cluster: str) -> dict[str, int]:
        """The objects of a cluster; all are sent whatever an agent has, for they are few."""
        return {each["metadata"]["name"]: 0 for each in self.objects(cluster)}

    def deleting(self, cluster: str) -> list[str]:
        """All: versions of these objects are not numbers that can be compared."""
        return list(self.versions(cluster))

    def event(self, cluster: str, name: str, action: str, *, full: bool) -> CloudEvent | None:
        """The event about an object as it is now; None when it is gone."""
        del full
        for each in self.objects(cluster):
            if each["metadata"]["name"] == name:
                return self.made(cluster, action, each)
        return None

    def made(self, cluster: str, action: str, manifest: Object) -> CloudEvent:
        """An event about an object."""
        kind = EventType(self.data_type, SPEC, action)
        return object_event(kind, self.resource, manifest, source=HUB_SOURCE, cluster=cluster)

    def gone(self, cluster: str, gone: ResourceVersion, now: datetime) -> CloudEvent | None:
        """Nothing: an agent that names objects by UID would take it for another."""
        del cluster, gone, now
        return None

    def changed(self, change: StoreChange) -> tuple[str, str, CloudEvent | None] | None:
        """Cluster and name of an object that changed, and the event when it was deleted."""
        manifest = change.new or change.old or {}
        cluster = cluster_of(self.resource, manifest)
        if change.new is not None or change.old is None:
            return cluster, change.key.name, None
        meta: Object = {**manifest["metadata"], "finalizers": []}
        meta.setdefault("deletionTimestamp", "1970-01-01T00:00:00Z")
        event = self.made(cluster, DELETE, {**manifest, "metadata": meta})
        return cluster, change.key.name, event

    def is_visible(self, cluster: str, name: str, caller: Caller) -> bool:
        """Whether a caller may see an object of a cluster that it may speak for."""
        del cluster, name, caller
        return True


class RequestSource(ObjectSource):
    """Certificate requests: callers that are no agents see those that they made."""

    def is_visible(self, cluster: str, name: str, caller: Caller) -> bool:
        """Whether a caller made a request through this server, or is the cluster's agent."""
        found = self.informer.get(Key("", name))
        if found is None:
            return True
        if is_addon_request(found):
            return caller.is_agent
        if found["spec"].get("signerName") not in (GRPC_SIGNER, SIGNER):
            return False
        annotations: dict[str, str] = found["metadata"].get("annotations") or {}
        return caller.is_agent or annotations.get(CSR_USER) == caller.user


class AnswerSource(ObjectSource):
    """Objects that are kept nowhere: each is an answer to the caller that asked for it."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.data_type = data_type(resource)

    def follow(self, handler: Callable[[StoreChange], None]) -> None:
        """Nothing changes."""
        del handler

    def objects(self, cluster: str) -> list[Object]:
        """None is kept."""
        del cluster
        return []


class BundleSource(ObjectSource):
    """Works, which events name by their UIDs."""

    def __init__(self, informer: Informer, now: Callable[[], datetime]) -> None:
        super().__init__(RESOURCES[BUNDLES], informer, "cluster")
        self.data_type = BUNDLES
        self.now = now

    def versions(self, cluster: str) -> dict[str, int]:
        """The generations of a cluster's works."""
        return {
            each["metadata"]["uid"]: int(each["metadata"].get("generation", 0))
            for each in self.objects(cluster)
        }

    def deleting(self, cluster: str) -> list[str]:
        """The works that wait for their agent to let them go."""
        return [
            each["metadata"]["uid"]
            for each in self.objects(cluster)
            if "deletionTimestamp" in each["metadata"]
        ]

    def work(self, cluster: str, uid: str) -> Object | None:
        """A work of a cluster by its UID, as it is kept."""
        found = self.informer.by_index("uid", uid)
        return found[0] if found and found[0]["metadata"]["namespace"] == cluster else None

    def event(self, cluster: str, name: str, action: str, *, full: bool) -> CloudEvent | None:
        """The event about a work as it is now."""
        found = self.work(cluster, name)
        if found is None:
            return None
        deleted = found["metadata"].get("deletionTimestamp")
        return bundle_event(
            DELETE if deleted else action,
            unpack(found),
            source=HUB_SOURCE,
            deleted_at=datetime.fromisoformat(deleted) if deleted else None,
            full=full,
        )

    def gone(self, cluster: str, gone: ResourceVersion, now: datetime) -> CloudEvent | None:
        """The event for a work that only the agent has."""
        return gone_event(DELETE, cluster, gone, now)

    def changed(self, change: StoreChange) -> tuple[str, str, CloudEvent | None] | None:
        """Cluster and UID of a work whose agent has something to do."""
        manifest = change.new or change.old or {}
        meta: Object = manifest["metadata"]
        cluster, uid = meta["namespace"], meta["uid"]
        if change.new is None:
            event = bundle_event(DELETE, unpack(manifest), source=HUB_SOURCE, deleted_at=self.now())
            return cluster, uid, event
        if change.old is not None and relevant(change.old) == relevant(change.new):
            return None
        return cluster, uid, None


def relevant(work: Object) -> Object:
    """Of the metadata of a work what concerns its agent."""
    return {name: value for name, value in work["metadata"].items() if name not in IN_STATUS}


Sources = Mapping[DataType, ObjectSource]
