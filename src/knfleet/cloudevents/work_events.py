"""Works in events: a bundle of manifests towards the agent, and its status back."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.cloudevents.cloud_event import CloudEvent, EventError
from knfleet.cloudevents.event_types import (
    BUNDLES,
    CLUSTER_NAME,
    DELETION_TIMESTAMP,
    METADATA,
    ORIGINAL_SOURCE,
    RESOURCE_ID,
    RESOURCE_VERSION,
    SEQUENCE_ID,
    SPEC,
    STATUS,
    STATUS_HASH,
    UPDATE,
    EventType,
)
from knfleet.cloudevents.resync import ResourceVersion, status_hash
from knfleet.kube.untrusted_json import decode_json

DELETED = "Deleted"
"""The condition by which an agent reports that the objects of a work are gone."""
UNUSED_META = ("managedFields", "selfLink")
DATA_TYPE_ANNOTATION = "cloudevents.open-cluster-management.io/datatype"
SOURCE_LABEL = "cloudevents.open-cluster-management.io/originalsource"


class BundleStatus(Struct, frozen=True, rename="camel"):
    """The payload of a status event."""

    conditions: list[dict[str, Any]] | None = None
    resource_status: list[dict[str, Any]] | None = None


class WorkStatusEvent(Struct, frozen=True):
    """What an agent reports about a work."""

    uid: str
    generation: int
    sequence: str
    status: Object

    @property
    def is_deleted(self) -> bool:
        """Whether the objects of the work are gone."""
        conditions: list[Any] = self.status["conditions"]
        return any(each["type"] == DELETED and each["status"] == "True" for each in conditions)


def bundle_event(
    action: str,
    work: Object,
    *,
    source: str,
    deleted_at: datetime | None = None,
    full: bool = False,
) -> CloudEvent:
    """The event that hands a work to its agent; `full` adds the status that the hub has."""
    meta: Object = {
        name: value for name, value in work["metadata"].items() if name not in UNUSED_META
    }
    extensions: dict[str, Any] = {
        CLUSTER_NAME: meta["namespace"],
        ORIGINAL_SOURCE: "",
        RESOURCE_ID: meta["uid"],
        RESOURCE_VERSION: int(meta.get("generation", 0)),
        METADATA: msgspec.json.encode(meta).decode(),
    }
    kind = str(EventType(BUNDLES, SPEC, action))
    if deleted_at is not None:
        extensions[DELETION_TIMESTAMP] = deleted_at
    spec: Object = work.get("spec") or {}
    workload: Object = spec.get("workload") or {}
    bundle: Object = {"manifests": workload.get("manifests") or []}
    for theirs, ours in (
        ("deleteOption", "deleteOption"),
        ("manifestConfigs", "manifestConfigs"),
        ("executer", "executor"),
    ):
        if spec.get(ours) is not None:
            bundle[theirs] = spec[ours]
    if full and work.get("status"):
        bundle["status"] = work["status"]
    return CloudEvent(kind, source, extensions=extensions, data=msgspec.json.encode(bundle))


def gone_event(action: str, cluster: str, gone: ResourceVersion, now: datetime) -> CloudEvent:
    """The event for a work that an agent has and the hub has not."""
    extensions: dict[str, Any] = {
        CLUSTER_NAME: cluster,
        ORIGINAL_SOURCE: "",
        RESOURCE_ID: gone.resource_id,
        RESOURCE_VERSION: gone.version,
        DELETION_TIMESTAMP: now,
    }
    return CloudEvent(str(EventType(BUNDLES, SPEC, action)), "kube", extensions=extensions)


def read_bundle(event: CloudEvent) -> Object:
    """The work that an event hands over; one that is leaving may lack a spec.

    Raises `EventError`.
    """
    meta: Object = {}
    if text := event.text(METADATA):
        meta = read_json(text.encode(), "metadata")
    uid = event.text(RESOURCE_ID)
    if not uid:
        raise EventError("a work without resourceid")
    meta = {
        **meta,
        "uid": uid,
        "name": meta.get("name") or uid,
        "namespace": event.text(CLUSTER_NAME),
        "generation": event.number(RESOURCE_VERSION),
    }
    deleted = event.time(DELETION_TIMESTAMP)
    if deleted is not None:
        meta["deletionTimestamp"] = deleted.strftime("%Y-%m-%dT%H:%M:%SZ")
    if deleted is not None and not event.data:
        return {"metadata": meta, "spec": {}, "status": {}}
    bundle = read_json(event.data, "manifests")
    spec: Object = {"workload": {"manifests": bundle.get("manifests") or []}}
    for theirs, ours in (
        ("deleteOption", "deleteOption"),
        ("manifestConfigs", "manifestConfigs"),
        ("executer", "executor"),
    ):
        if bundle.get(theirs) is not None:
            spec[ours] = bundle[theirs]
    return {"metadata": meta, "spec": spec, "status": bundle.get("status") or {}}


def status_event(
    meta: Object, status: Object, *, source: str, original: str, sequence: str
) -> CloudEvent:
    """The event by which an agent reports the status of a work."""
    resources: Object = status.get("resourceStatus") or {}
    payload: Object = {
        "conditions": status.get("conditions") or [],
        "resourceStatus": resources.get("manifests") or [],
    }
    extensions: dict[str, Any] = {
        CLUSTER_NAME: meta["namespace"],
        ORIGINAL_SOURCE: original,
        RESOURCE_ID: meta["uid"],
        RESOURCE_VERSION: int(meta.get("generation", 0)),
        SEQUENCE_ID: sequence,
        STATUS_HASH: status_hash(status),
        METADATA: msgspec.json.encode(meta).decode(),
    }
    kind = str(EventType(BUNDLES, STATUS, UPDATE))
    return CloudEvent(kind, source, extensions=extensions, data=msgspec.json.encode(payload))


def read_status(event: CloudEvent) -> WorkStatusEvent:
    """What an agent reports about a work; raises `EventError`."""
    uid = event.text(RESOURCE_ID)
    if not uid:
        raise EventError("a status without resourceid")
    try:
        payload = decode_json(event.data, BundleStatus)
    except msgspec.DecodeError as error:
        raise EventError(f"not the status of a work: {error}") from error
    for condition in payload.conditions or []:
        if not all(isinstance(condition.get(name), str) for name in ("type", "status")):
            raise EventError("a condition of a work has no type or status")
    status: Object = {
        "conditions": payload.conditions or [],
        "resourceStatus": {"manifests": payload.resource_status or []},
    }
    return WorkStatusEvent(uid, event.number(RESOURCE_VERSION), event.text(SEQUENCE_ID), status)


def read_json(data: bytes, what: str) -> Object:
    """An object of JSON; raises `EventError`."""
    try:
        return decode_json(data, dict[str, Any])
    except msgspec.DecodeError as error:
        raise EventError(f"{what} of a work cannot be read: {error}") from error
