"""Who applied what, as an API server keeps it in `metadata.managedFields`.

The sets are as deep as a real server's, for their size is most of what an idle spoke costs; lists
are told apart by the keys that the built-in kinds use.
"""

from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import part

encode = msgspec.json.Encoder().encode

KEYS = {
    "containers": ("name",),
    "env": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "webhooks": ("name",),
}
PORTS = ("containerPort", "port")
METADATA = ("labels", "annotations", "ownerReferences", "finalizers")
"""What of the metadata belongs to field managers."""


class Share(Struct, frozen=True):
    """What one manager said of an object."""

    manager: str
    operation: str
    metadata: Object
    body: bytes
    """Everything but names, metadata and status, as text, which is the same on many spokes."""


def share_of(manager: str, operation: str, manifest: Object) -> Share:
    """The part of a manifest that is its writer's."""
    meta = part(manifest, "metadata")
    body = {
        name: value
        for name, value in manifest.items()
        if name not in ("apiVersion", "kind", "metadata", "status")
    }
    own = {name: meta[name] for name in METADATA if name in meta}
    return Share(manager, operation, own, encode(body))


def entry_of(share: Share, api_version: str, time: str) -> Object:
    """A share as an entry of managedFields."""
    parts = [text for text in (body_fields(share.body), metadata_fields(share.metadata)) if text]
    return {
        "apiVersion": api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": Raw(b"{" + b",".join(parts) + b"}"),
        "manager": share.manager,
        "operation": share.operation,
        "time": time,
    }


@lru_cache(maxsize=4096)
def body_fields(body: bytes) -> bytes:
    """The set of a body, without its braces."""
    return encode(fields_of(msgspec.json.decode(body), ""))[1:-1]


def metadata_fields(metadata: Object) -> bytes:
    """The set of metadata, without braces; empty when there is none."""
    return encode({"f:metadata": fields_of(metadata, "metadata")})[1:-1] if metadata else b""


def fields_of(value: object, name: str) -> Object:
    """The set of all fields in a value."""
    if isinstance(value, dict):
        given = cast("Object", value)
        return {f"f:{field}": fields_of(below, field) for field, below in given.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        keys = keys_of(name, items)
        if keys:
            return {place(item, keys): {".": {}, **fields_of(item, "")} for item in items}
    return {}


def keys_of(name: str, items: list[Any]) -> tuple[str, ...]:
    """What tells the items of a list apart; nothing when it is written as a whole."""
    if name == "ports" and items and isinstance(items[0], dict):
        return tuple(key for key in PORTS if key in items[0])
    keys = KEYS.get(name, ())
    is_keyed = all(isinstance(item, dict) and key in item for item in items for key in keys)
    return keys if is_keyed else ()


def place(item: Object, keys: tuple[str, ...]) -> str:
    """The place of an item in a set."""
    return "k:" + encode({key: item[key] for key in keys}).decode()


def merged(one: Object, other: Object) -> Object:
    """One on top of which another is put; a null takes away."""
    both = dict(one)
    for name, value in other.items():
        below = both.get(name)
        if value is None:
            both.pop(name, None)
        elif isinstance(value, dict) and isinstance(below, dict):
            both[name] = merged(cast("Object", below), cast("Object", value))
        else:
            both[name] = value
    return both
