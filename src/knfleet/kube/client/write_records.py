"""Tells of every write that a client of this process has made: what, where, and what came of it.

Values never appear, only the names of fields, and of Secrets not even those of their data. Dry
runs and questions that are asked by creating a review write nothing; Leases and Events, which
processes write all the time to say that and how they live, are left out as well.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from msgspec import Struct

from knfleet.api.meta import Object

MOST_FIELDS = 32
DEPTH = 4
"""So deep fields are named; below, the change is recorded for the field above."""
OPAQUE = frozenset({"data", "stringData", "binaryData"})
"""Fields whose entries are not named: Secrets have these."""
UNTOLD_GROUPS = ("authorization.k8s.io", "authentication.k8s.io")
UNTOLD_RESOURCES = ("leases", "events")


class WriteRecord(Struct, frozen=True, omit_defaults=True):
    """One write."""

    target: str
    """The cluster."""
    verb: str
    resource: str
    """Plural and group, with the subresource, as `deployments.apps/status`."""
    namespace: str = ""
    name: str = ""
    manager: str = ""
    fields: tuple[str, ...] = ()
    """The fields that were written."""
    version: str = ""
    """The resource version of the result."""
    uid: str = ""
    error: str = ""
    """What was wrong, if it failed: the class of the error and its code."""


Handler = Callable[[WriteRecord], None]
handlers: list[Handler] = []


@contextmanager
def recording(handler: Handler) -> Generator[None]:
    """Call a function with every write of this process, from now on; it must not block."""
    handlers.append(handler)
    try:
        yield
    finally:
        handlers.remove(handler)


def tell(record: WriteRecord | None) -> None:
    """Tell all who want to know, if there is anything to tell."""
    if record is not None:
        for handler in handlers:
            handler(record)


class Address(Struct, frozen=True):
    """What a path is about."""

    group: str
    resource: str
    namespace: str
    name: str
    subresource: str

    @property
    def is_told(self) -> bool:
        """Whether a write there is worth a record."""
        if self.resource in UNTOLD_RESOURCES:
            return False
        return self.group not in UNTOLD_GROUPS

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{kind}/{self.subresource}" if self.subresource else kind


def address_of(path: str) -> Address:
    """What a path of an API server is about."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    return Address(group, plural, namespace, name, subresource)


def record_of(
    target: str,
    verb: str,
    path: str,
    body: Object | Sequence[Object] | None,
    outcome: Object | Exception,
    *,
    manager: str = "",
) -> WriteRecord | None:
    """The record of a write; None when it is not worth one."""
    address = address_of(path)
    if not address.is_told:
        return None
    meta = metadata_of(outcome)
    return WriteRecord(
        target,
        verb,
        str(address),
        address.namespace,
        address.name or str(metadata_of(body).get("name", "")),
        manager=manager,
        fields=() if verb.startswith("delete") else written_fields(body),
        version=str(meta.get("resourceVersion", "")),
        uid=str(meta.get("uid", "")),
        error=error_text(outcome) if isinstance(outcome, Exception) else "",
    )


def metadata_of(value: object) -> Mapping[str, Any]:
    """The metadata of what was sent or came back, if it is an object."""
    found = cast("Mapping[str, Any]", value).get("metadata") if isinstance(value, dict) else None
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def error_text(error: Exception) -> str:
    """What kind of error it was; its message may repeat what was sent."""
    code = getattr(error, "code", 0)
    return f"{type(error).__name__} {code}" if code else type(error).__name__


def written_fields(body: Object | Sequence[Object] | None) -> tuple[str, ...]:
    """The fields that a body writes: of a JSON patch its paths, else those with a value."""
    if body is None:
        return ()
    if not isinstance(body, dict):
        paths = [str(each.get("path", "")).strip("/").replace("/", ".") for each in body]
        found = sorted({shortened(path) for path in paths})
    else:
        found = sorted(set(paths_in(body)))
    more = len(found) - MOST_FIELDS
    return (*found[:MOST_FIELDS], f"… {more} more") if more > 0 else tuple(found)


def paths_in(value: Mapping[str, Any], above: tuple[str, ...] = ()) -> Generator[str]:
    """The paths of fields below an object, without its kind and name."""
    for name, below in value.items():
        path = (*above, name)
        if not above and name in ("apiVersion", "kind"):
            continue
        if above == ("metadata",) and name in ("name", "namespace", "uid", "resourceVersion"):
            continue
        is_deep = len(path) >= DEPTH or name in OPAQUE
        if isinstance(below, dict) and below and not is_deep:
            yield from paths_in(cast("Mapping[str, Any]", below), path)
        else:
            yield ".".join(path)


def shortened(path: str) -> str:
    """A path of a JSON patch, as deep as fields are named."""
    names = path.split(".")
    for index, name in enumerate(names):
        if name in OPAQUE:
            return ".".join(names[: index + 1])
    return ".".join(names[:DEPTH])
