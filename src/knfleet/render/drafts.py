"""Objects on their way from the release to what must exist.

A draft holds a copy of its own, so that steps may change it in place; what no step ever changes
(the schemas of CRDs, nine tenths of a release) is shared with the release, and must not be written.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from knfleet.api.meta import Object, api_group
from knfleet.render.errors import BadObject

T = TypeVar("T")

Identity = tuple[str, str, str, str]
"""Group, kind, namespace and name."""


class Draft(Struct):
    """One object that is being changed."""

    manifest: Object
    group: str
    kind: str
    released: str
    """Its name in the release, or its generateName when it has no name."""

    def __str__(self) -> str:
        return f"{self.kind} {self.released}"

    def named(self, group: str, kind: str, *names: str) -> bool:
        """Whether it is of a kind, and has one of the names in the release."""
        return self.kind == kind and self.group == group and self.released in names

    @property
    def meta(self) -> Object:
        """The object's metadata."""
        return self.manifest["metadata"]

    @property
    def namespace(self) -> str:
        """The object's namespace; empty when it has none."""
        return self.meta.get("namespace") or ""

    @property
    def identity(self) -> Identity:
        """What makes it the same object as another one."""
        name = self.meta.get("name") or self.meta.get("generateName", "")
        return self.group, self.kind, self.namespace, name

    def section(self, *path: str) -> Object:
        """A part of the object, made if it is not there."""
        part = self.manifest
        for name in path:
            inner = part.get(name)
            if inner is None:
                inner = part[name] = {}
            elif not isinstance(inner, dict):
                raise BadObject(str(self), f"{'.'.join(path)} is not a map")
            part = cast("Object", inner)
        return part

    def entries(self, *path: str) -> list[Object]:
        """The maps in a list of the object; none when the list is not there."""
        found: Any = self.manifest
        for name in path:
            found = cast("Object", found).get(name) if isinstance(found, dict) else None
        return self.maps(found, path)

    def maps(self, found: Any, path: Iterable[str]) -> list[Object]:
        """A value that must be a list of maps, or nothing."""
        if found is None:
            return []
        if not isinstance(found, list) or not all(
            isinstance(entry, dict) for entry in cast("list[Any]", found)
        ):
            raise BadObject(str(self), f"{'.'.join(path)} is not a list of maps")
        return cast("list[Object]", found)


def draft(manifest: Object) -> Draft:
    group, _ = api_group(str(manifest.get("apiVersion", "")))
    kind = manifest.get("kind")
    meta = manifest.get("metadata")
    if not isinstance(kind, str) or not isinstance(meta, dict):
        raise BadObject(f"object {kind or 'without a kind'}", "is not a Kubernetes object")
    names = cast("Object", meta)
    name = names.get("name") or names.get("generateName")
    if not isinstance(name, str):
        raise BadObject(kind, "has neither a name nor a generateName")
    return Draft(own_copy(manifest, kind), group, kind, name)


def own_copy(manifest: Object, kind: str) -> Object:
    """A copy of those parts that steps may change."""
    spec = as_map(manifest.get("spec"))
    if kind != "CustomResourceDefinition" or not spec:
        return duplicate(manifest)
    conversion = {"conversion": duplicate(spec["conversion"])} if "conversion" in spec else {}
    return {
        **manifest,
        "metadata": duplicate(manifest["metadata"]),
        "spec": {**spec, **conversion},
    }


def duplicate(value: Any) -> Any:
    """A deep copy; a JSON round trip is four times as fast as copying by hand."""
    return msgspec.json.decode(msgspec.json.encode(value))


def canonical(value: T) -> T:
    """A deep copy of what a user wrote, in which the order of keys has no effect."""
    return msgspec.json.decode(msgspec.json.encode(value, order="sorted"))


def flatten(objects: Iterable[Object]) -> Iterator[Object]:
    """The objects, and in place of a List those that it holds."""
    for manifest in objects:
        items = manifest.get("items")
        if str(manifest.get("kind", "")).endswith("List") and isinstance(items, list):
            yield from flatten(cast("list[Object]", items))
        else:
            yield manifest


def as_map(value: Any) -> Object:
    """A value that should be a map; an empty one when it is not, for the API server to refuse."""
    return cast("Object", value) if isinstance(value, dict) else {}


def in_order(values: dict[str, T]) -> dict[str, T]:
    """A user's map with its keys in order, so that the order in which they came has no effect."""
    return dict(sorted(values.items()))


def merge(into: Object, values: dict[str, Any]) -> None:
    """Put values into a part of an object; keys come in order, whatever order the user wrote."""
    into.update(in_order(values))


def unique(drafts: Iterable[Draft]) -> list[Draft]:
    """Each object once: in the place of the first, with the content of the last.

    Several manifests of a release bring the same object. Applied one after the other the last one
    would stay, and each pass would write them all again.
    """
    last: dict[Identity, Draft] = {}
    for one in drafts:
        last[one.identity] = one
    return list(last.values())
