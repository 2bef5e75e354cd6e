"""Objects of registration in events: the whole object as JSON, identified by its name."""

from typing import Any

import msgspec
from msgspec import Struct

from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL
from knfleet.api.meta import Object, Resource
from knfleet.cloudevents.cloud_event import CloudEvent, EventError
from knfleet.cloudevents.event_types import (
    CLUSTER_NAME,
    ORIGINAL_SOURCE,
    RESOURCE_ID,
    RESOURCE_VERSION,
    EventType,
)
from knfleet.kube.untrusted_json import decode_json

TOKEN_REQUEST = "TokenRequest"  # noqa: S105 - a kind


def object_event(
    kind: EventType, resource: Resource, manifest: Object, *, source: str, cluster: str
) -> CloudEvent:
    """An event about an object."""
    meta: Object = manifest["metadata"]
    identity = meta.get("uid", "") if resource.kind == TOKEN_REQUEST else meta["name"]
    extensions: dict[str, Any] = {
        CLUSTER_NAME: cluster,
        ORIGINAL_SOURCE: "",
        RESOURCE_ID: identity,
    }
    if version := meta.get("resourceVersion"):
        extensions[RESOURCE_VERSION] = str(version)
    body = {**manifest, "apiVersion": resource.api_version, "kind": resource.kind}
    return CloudEvent(str(kind), source, extensions=extensions, data=msgspec.json.encode(body))


class EventMeta(Struct, frozen=True, rename="camel"):
    """What must be text in the metadata of an object."""

    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    resource_version: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class EventObject(Struct, frozen=True):
    """What an object must have."""

    metadata: EventMeta


def read_object(event: CloudEvent) -> Object:
    """The object in an event, whose metadata can be relied on; raises `EventError`."""
    try:
        manifest = decode_json(event.data, dict[str, Any])
        msgspec.convert(manifest, EventObject)
    except msgspec.DecodeError as error:
        raise EventError(f"the data of the event is not an object: {error}") from error
    return manifest


def cluster_of(resource: Resource, manifest: Object) -> str:
    """The cluster that an object on the hub belongs to; empty when to none."""
    meta = msgspec.convert(manifest["metadata"], EventMeta)
    if resource.namespaced:
        return meta.namespace
    if resource.kind == CSRS.kind:
        return (meta.labels or {}).get(CLUSTER_NAME_LABEL, "")
    return meta.name
