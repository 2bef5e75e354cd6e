"""One manifest file, parsed and checked, kept as JSON.

JSON bytes take a fifth of the memory of the objects, and decoding them gives every caller objects
of its own in a few milliseconds, so a viewer cannot change what others see.
"""

import hashlib
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from knfleet.api.meta import Object
from knfleet.kube.yaml import YamlError, load_all
from knfleet.release.errors import BadManifest

NAME_LABEL = "app.kubernetes.io/name"
VERSION_LABEL = "app.kubernetes.io/version"


class ReleaseLabels(Struct, frozen=True):
    """What an object's labels say about where it belongs."""

    object: str
    """Name of the first object that says so."""
    component: str = ""
    version: str = ""


class ParsedFile(Struct, frozen=True):
    """What the cache keeps of a file."""

    count: int
    stamps: tuple[ReleaseLabels, ...]
    deployments: tuple[str, ...]
    """Names of the Deployments."""
    objects: Raw


class Manifest(Struct, frozen=True):
    """A parsed manifest file."""

    origin: str
    """The path or address it was read from."""
    digest: str
    """sha256 of the file."""
    parsed: ParsedFile

    @property
    def count(self) -> int:
        """How many objects it has."""
        return self.parsed.count

    @property
    def size(self) -> int:
        """How many bytes it takes in memory, about."""
        return memoryview(self.parsed.objects).nbytes

    def objects(self) -> list[Object]:
        """The objects, made anew for each caller."""
        return msgspec.json.decode(self.parsed.objects, type=list[Object])


def digest_of(content: bytes) -> str:
    """The digest by which a file is known."""
    return hashlib.sha256(content).hexdigest()


def parse(content: bytes, origin: str) -> ParsedFile:
    """Parse a file; every problem is a `BadManifest` that says where it is."""
    try:
        documents = load_all(content, source=origin)
    except YamlError as error:
        raise BadManifest(f"{error}; correct the file, or point to another one") from error
    objects = [member for document in documents for member in members(document)]
    for position, manifest in enumerate(objects, 1):
        check_object(manifest, f"{origin}: object {position}")
    return ParsedFile(
        len(objects), stamps(objects), deployments(objects), Raw(msgspec.json.encode(objects))
    )


def members(document: Object) -> list[Object]:
    """The objects of a document: those of a List, or the document itself."""
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        return cast("list[Object]", document["items"])
    return [document]


def check_object(manifest: Any, where: str) -> None:
    """Refuse what is not a Kubernetes object with a name."""
    if not isinstance(manifest, dict):
        raise BadManifest(f"{where} is not a Kubernetes object")
    fields = cast("dict[str, Any]", manifest)
    for field in ("apiVersion", "kind"):
        if not isinstance(fields.get(field), str) or not fields[field]:
            raise BadManifest(f"{where} has no {field}; is this a Kubernetes manifest?")
    meta = fields.get("metadata")
    names = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
    name = names.get("name") or names.get("generateName")
    if not isinstance(name, str):
        raise BadManifest(f"{where} ({fields['kind']}) has no metadata.name")
    for field in ("labels", "annotations"):
        if not isinstance(names.get(field) or {}, dict):
            raise BadManifest(f"{where} ({fields['kind']} {name}): {field} is not a map")


def stamps(objects: list[Object]) -> tuple[ReleaseLabels, ...]:
    """The distinct stamps of objects that carry one, each with the first that does."""
    found: dict[tuple[str, str], ReleaseLabels] = {}
    for manifest in objects:
        meta = manifest["metadata"]
        labels: dict[str, Any] = meta.get("labels") or {}
        component, version = str(labels.get(NAME_LABEL, "")), str(labels.get(VERSION_LABEL, ""))
        if component or version:
            name = str(meta.get("name", ""))
            found.setdefault((component, version), ReleaseLabels(name, component, version))
    return tuple(found.values())


def deployments(objects: list[Object]) -> tuple[str, ...]:
    """The names of the Deployments among objects."""
    return tuple(
        str(manifest["metadata"].get("name", ""))
        for manifest in objects
        if manifest["kind"] == "Deployment"
    )
