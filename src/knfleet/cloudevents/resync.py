"""Resync after a connection: what the other side has already is not sent again. Pure."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.cloudevents.cloud_event import EventError
from knfleet.kube.untrusted_json import decode_json

MOST_RESOURCES = 50_000
GO_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}

T = TypeVar("T")


class ResourceVersion(Struct, frozen=True):
    """A resource that an agent has, and in which version."""

    resource_id: str = msgspec.field(name="resourceID")
    version: int = msgspec.field(name="resourceVersion", default=0)


class ResourceVersions(Struct, frozen=True):
    """What an agent has, in a resync request."""

    versions: list[ResourceVersion] | None = msgspec.field(name="resourceVersions", default=None)


class ResourceStatusHash(Struct, frozen=True):
    """A resource that a hub has, and the hash of its status."""

    resource_id: str = msgspec.field(name="resourceID")
    status_hash: str = msgspec.field(name="statusHash", default="")


class ResourceStatusHashes(Struct, frozen=True):
    """What a hub has, in a resync request for statuses."""

    hashes: list[ResourceStatusHash] | None = msgspec.field(name="statusHashes", default=None)


class ResyncPlan(Struct, frozen=True):
    """How a resync request is answered."""

    send: list[str]
    """Resources that are new or newer on the hub."""
    gone: list[ResourceVersion]
    """Resources that only the agent has."""


def read_versions(data: bytes) -> dict[str, int]:
    """The versions that an agent has; raises `EventError`."""
    found = read(data, ResourceVersions).versions or []
    if len(found) > MOST_RESOURCES:
        raise EventError(f"a resync request names more than {MOST_RESOURCES} resources")
    return {each.resource_id: each.version for each in found}


def read_status_hashes(data: bytes) -> dict[str, str]:
    """The hashes of statuses that a hub has; raises `EventError`."""
    found = read(data, ResourceStatusHashes).hashes or []
    if len(found) > MOST_RESOURCES:
        raise EventError(f"a resync request names more than {MOST_RESOURCES} resources")
    return {each.resource_id: each.status_hash for each in found}


def read(data: bytes, kind: type[T]) -> T:
    """The payload of a resync request; raises `EventError`."""
    try:
        return decode_json(data or b"{}", kind)
    except msgspec.DecodeError as error:
        raise EventError(f"not a resync request: {error}") from error


def versions_bytes(versions: Mapping[str, int]) -> bytes:
    """The payload of a resync request."""
    listed = [ResourceVersion(name, version) for name, version in versions.items()]
    return msgspec.json.encode(ResourceVersions(listed))


def status_hashes_bytes(hashes: Mapping[str, str]) -> bytes:
    """The payload of a resync request for statuses."""
    listed = [ResourceStatusHash(name, each) for name, each in hashes.items()]
    return msgspec.json.encode(ResourceStatusHashes(listed))


def resync_plan(
    known: Mapping[str, int], current: Mapping[str, int], deleting: Iterable[str]
) -> ResyncPlan:
    """What an agent is to be sent that has some versions: all that is newer, or that is leaving."""
    leaving = set(deleting)
    send = [
        name
        for name, version in current.items()
        if name in leaving or name not in known or version > known[name]
    ]
    gone = [
        ResourceVersion(name, version) for name, version in known.items() if name not in current
    ]
    return ResyncPlan(send, gone)


def changed_statuses(
    known: Mapping[str, str], current: Mapping[str, T], hash_of: Callable[[T], str]
) -> list[str]:
    """The resources whose status a hub does not have as it is; all of them if it names none."""
    return [
        name
        for name, status in current.items()
        if not known or (name in known and known[name] != hash_of(status))
    ]


def status_hash(status: Object) -> str:
    """The hash of a status: SHA-256 of its JSON as Go writes it, with sorted keys."""
    text = msgspec.json.encode(status, order="sorted").decode()
    for character, escape in GO_ESCAPES.items():
        text = text.replace(character, escape)
    return hashlib.sha256(text.encode()).hexdigest()
