"""The types of events: which object, which part of it, and what is to be done."""

from typing import Final

from msgspec import Struct

from knfleet.api.addon.managedclusteraddon import ADDONS, ADDONS_BETA
from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import LEASES
from knfleet.api.meta import Resource
from knfleet.api.work.manifestwork import WORKS
from knfleet.cloudevents.cloud_event import EventError

SPEC, STATUS = "spec", "status"
CREATE, UPDATE, DELETE = "create_request", "update_request", "delete_request"
RESYNC, RESYNC_RESPONSE, WATCH = "resync_request", "resync_response", "watch_request"

CLUSTER_NAME = "clustername"
RESOURCE_ID = "resourceid"
RESOURCE_VERSION = "resourceversion"
ORIGINAL_SOURCE = "originalsource"
SEQUENCE_ID = "sequenceid"
DELETION_TIMESTAMP = "deletiontimestamp"
STATUS_HASH = "statushash"
METADATA = "metadata"
RESYNC_ID = "resyncid"
"""Of ours: the server repeats it in an event behind those that answer a resync request."""

HUB_SOURCE = "kube"
EXTENDED_HEADER = "x-knfleet-extended"
"""Of ours: a subscriber with this header gets the status of works, and ends of resyncs."""

EVENTS = Resource("events.k8s.io", "v1", "Event", "events")
TOKEN_REQUESTS = Resource("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests")
ACCESS_TOKENS = Resource("knfleet.dev", "v1alpha1", "AccessToken", "accesstokens")
"""Of ours: the token by which the hub reaches a cluster, which is a Secret on the hub."""


class DataType(Struct, frozen=True):
    """Objects of one kind, as events name them."""

    group: str
    version: str
    resource: str

    def __str__(self) -> str:
        return f"{self.group}.{self.version}.{self.resource}"


class EventType(Struct, frozen=True):
    """What an event is about."""

    data_type: DataType
    part: str
    action: str

    def __str__(self) -> str:
        return f"{self.data_type}.{self.part}.{self.action}"


def data_type(resource: Resource) -> DataType:
    """A kind as events name it."""
    return DataType(resource.group, resource.version, resource.plural)


BUNDLES: Final = DataType("io.open-cluster-management.works", "v1alpha1", "manifestbundles")
RESOURCES: Final[dict[DataType, Resource]] = {
    BUNDLES: WORKS,
    **{
        data_type(each): each
        for each in (
            CLUSTERS,
            CSRS,
            LEASES,
            EVENTS,
            ADDONS,
            ADDONS_BETA,
            TOKEN_REQUESTS,
            ACCESS_TOKENS,
        )
    },
}
"""Every data type, and the kind on the hub's API server that it stands for."""


def read_data_type(text: str) -> DataType:
    """A data type by its name; raises `EventError` unless it is one of ours."""
    group, _, rest = text.rpartition(".")
    group, _, version = group.rpartition(".")
    found = DataType(group, version, rest)
    if found not in RESOURCES:
        raise EventError(f"data type {text!r} is not supported")
    return found


def read_event_type(text: str) -> EventType:
    """The type of an event; raises `EventError`."""
    head, _, action = text.rpartition(".")
    head, _, part = head.rpartition(".")
    if part not in (SPEC, STATUS):
        raise EventError(f"event type {text!r} is about neither spec nor status")
    return EventType(read_data_type(head), part, action)
