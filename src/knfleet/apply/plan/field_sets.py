"""Who owns which field: the sets that an API server keeps in `metadata.managedFields`.

A set is a tree of `f:name` (a field), `k:{...}` (a list item by its key), `v:...` (a value of a
list that is a set) and `.` (the thing itself, beside what is in it); an empty node is a leaf. When
a client changes a field, the server takes it out of the sets of all others. So a set that still
holds everything that we applied proves that no client changed any of it, and what is missing from
it is exactly what was changed: no values are needed to see that, metadata is enough.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import part

FieldSet = dict[str, Any]

NOT_FIELDS = frozenset({"apiVersion", "kind", "status"})
METADATA_FIELDS = ("labels", "annotations", "ownerReferences", "finalizers")
"""What of the metadata belongs to field managers; the rest names the object or is the server's."""


class UnownedField(Struct, frozen=True):
    """A field that a manifest has and a set does not: for people, and as path in a set."""

    field: str
    path: tuple[str, ...]


def set_of(entry: Mapping[str, Any]) -> FieldSet:
    """The set of one entry of managedFields, which may be kept as text to save memory."""
    fields: Any = entry.get("fieldsV1") or {}
    if isinstance(fields, str):
        return cast("FieldSet", msgspec.json.decode(fields))
    return cast("FieldSet", fields)


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """All fields of two sets."""
    both = dict(one)
    for name, child in other.items():
        mine = both.get(name)
        if mine is None:
            both[name] = child
        elif mine == {} and child != {}:
            # A leaf that is also a parent elsewhere keeps its own membership as a dot.
            both[name] = {".": {}, **child}
        elif mine != {} and child == {}:
            both[name] = {".": {}, **mine}
        else:
            both[name] = union(mine, child)
    return both


def without(fields: FieldSet, path: tuple[str, ...]) -> FieldSet:
    """A set less one field and everything in it; parents that become empty go too."""
    name, rest = path[0], path[1:]
    if name not in fields:
        return fields
    fewer = {key: child for key, child in fields.items() if key != name}
    if rest:
        child = without(fields[name], rest)
        if child:
            fewer[name] = child
    return fewer


def contains(fields: FieldSet, path: tuple[str, ...]) -> bool:
    """Whether a set holds a field, or something that the field is a part of."""
    node = fields
    for name in path:
        if name not in node:
            return False
        node = node[name]
        if not node:
            return True
    return True


def lost(before: FieldSet, after: FieldSet) -> bool:
    """Whether any field of one set is not in a later one."""
    for name, child in before.items():
        later = after.get(name)
        if later is None or (child and lost(child, later)):
            return True
    return False


def uncovered(fields: FieldSet, manifest: Object) -> list[UnownedField]:
    """What a manifest says and a set does not hold."""
    found: list[UnownedField] = []
    metadata, node = part(manifest, "metadata"), part(fields, "f:metadata")
    for name in METADATA_FIELDS:
        if name in metadata:
            at = (f"f:{name}",)
            found += walk(node.get(at[0]), metadata[name], f"metadata.{name}", ("f:metadata", *at))
    for name, value in manifest.items():
        if name not in NOT_FIELDS and name != "metadata":
            found += walk(fields.get(f"f:{name}"), value, name, (f"f:{name}",))
    return found


def walk(
    node: FieldSet | None, value: object, field: str, path: tuple[str, ...]
) -> Iterator[UnownedField]:
    """What of one value a node of a set does not hold."""
    if node == {}:
        return
    if isinstance(value, dict):
        for name, child in cast("Object", value).items():
            step = f"f:{name}"
            below = None if node is None else node.get(step)
            yield from walk(below, child, f"{field}.{name}", (*path, step))
    elif node is None:
        # The server keeps no place for what is empty.
        if value is not None and value != []:
            yield UnownedField(field, path)
    elif isinstance(value, list):
        yield from walk_list(node, cast("list[object]", value), field, path)


def walk_list(
    node: FieldSet, items: list[object], field: str, path: tuple[str, ...]
) -> Iterator[UnownedField]:
    """What of a list, whose items are distinguished by keys or values, a node does not hold."""
    keyed = [(name, msgspec.json.decode(name[2:])) for name in node if name.startswith("k:")]
    if keyed:
        yield from walk_keyed(node, keyed, cast("list[Object]", items), field, path)
        return
    values = {name[2:] for name in node if name.startswith("v:")}
    for item in items:
        if values and msgspec.json.encode(item).decode() not in values:
            yield UnownedField(f"{field}[{item}]", path)
    if not values and items:
        yield UnownedField(field, path)


def walk_keyed(
    node: FieldSet,
    keyed: list[tuple[str, Object]],
    items: list[Object],
    field: str,
    path: tuple[str, ...],
) -> Iterator[UnownedField]:
    """The same for items that have keys; a key that the manifest leaves to its default matches."""
    names = tuple(keyed[0][1])
    places = {tuple(key.get(name) for name in names): step for step, key in keyed}
    for item in items:
        wanted = tuple(item.get(name) for name in names)
        step = places.get(wanted)
        if step is None and None in wanted:
            step = next((step for step, key in keyed if fits(key, item)), None)
        text = ",".join(f"{name}={item[name]}" for name in names if name in item)
        if step is None:
            yield UnownedField(f"{field}[{text}]", path)
        else:
            yield from walk(node[step], item, f"{field}[{text}]", (*path, step))


def fits(key: Object, item: Object) -> bool:
    """Whether an item says nothing else than a key does."""
    return all(item.get(name, value) == value for name, value in key.items())
