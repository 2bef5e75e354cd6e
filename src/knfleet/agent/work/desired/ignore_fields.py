"""Fields that server-side apply leaves alone when a work asks for it.

`OnSpokePresent` leaves fields out once the object exists. `OnSpokeChange` does so while the work
itself does not change: an annotation of the object has the hash of what was last applied. Leaving
a field out of an apply gives it up, and the server removes fields without an owner; so a field
that only we own is sent with the value that it has in the cluster.
"""

import copy
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, cast

from knfleet.api.meta import Object
from knfleet.api.work.manifestwork import CONFIG_SPEC_HASH, IgnoreField
from knfleet.apply.manifest_fields import items, part
from knfleet.expressions import jsonpath
from knfleet.expressions.jsonpath import JsonPathError


class IgnoreFieldError(ValueError):
    """A path of ignored fields cannot be used."""


def without_paths(manifest: Object, rule: IgnoreField) -> Object:
    """A manifest without the fields of a rule's JSONPaths and JSON pointers."""
    result = copy.deepcopy(manifest)
    for path in rule.json_paths:
        remove_path(result, path)
    for pointer in rule.json_pointers:
        remove_pointer(result, pointer)
    return result


def remove_path(manifest: Object, path: str) -> None:
    """Remove the last field of a path wherever the path before it leads."""
    parents, dot, name = path.strip().strip("{}").rpartition(".")
    if not dot or not name or name.endswith("]"):
        raise IgnoreFieldError(f"JSONPath {path!r} must end with the name of a field")
    try:
        found = jsonpath.parse(parents).find(manifest) if parents else [manifest]
    except JsonPathError as error:
        raise IgnoreFieldError(str(error)) from error
    for each in found:
        if isinstance(each, dict):
            cast("Object", each).pop(name, None)


def remove_pointer(manifest: Object, pointer: str) -> None:
    """Remove the field at a JSON pointer (RFC 6901), if it is there."""
    if not pointer.startswith("/"):
        raise IgnoreFieldError(f"JSON pointer {pointer!r} must begin with /")
    *parents, last = (each.replace("~1", "/").replace("~0", "~") for each in pointer[1:].split("/"))
    node: Any = manifest
    for name in parents:
        node = child(node, name)
    if isinstance(node, dict):
        cast("Object", node).pop(last, None)
    elif isinstance(node, list) and last.isdecimal():
        elements = cast("list[Any]", node)
        if int(last) < len(elements):
            del elements[int(last)]


def child(node: Any, name: str) -> Any:
    """What a part of a pointer leads to."""
    if isinstance(node, dict):
        return cast("Object", node).get(name)
    if isinstance(node, list) and name.isdecimal():
        elements = cast("list[Any]", node)
        return elements[int(name)] if int(name) < len(elements) else None
    return None


def spec_hash(manifest: Object) -> str:
    """The hash by which agents of Open Cluster Management know what they applied last.

    MD5 of the manifest as Go prints it, so that one agent takes over from the other unnoticed.
    """
    text = f"&{{{go_text(manifest)}}}"
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def go_text(value: Any) -> str:
    """A value as Go's `%v` prints it."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, dict):
        fields = cast("Object", value)
        return f"map[{' '.join(f'{name}:{go_text(fields[name])}' for name in sorted(fields))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, cast('list[Any]', value)))}]"
    return str(value)


def go_float(value: float) -> str:
    """A float as Go prints it: whole numbers without a point, exponents of two digits."""
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    if "e" in text or abs(value) >= 1e-4:
        return text
    return f"{value:e}"


def marked(manifest: Object, hashed: str) -> Object:
    """A manifest with the annotation that says what was applied."""
    meta = part(manifest, "metadata")
    annotations = {**part(meta, "annotations"), CONFIG_SPEC_HASH: hashed}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def kept(reduced: Object, manifest: Object, live: Object, manager: str) -> Object:
    """A manifest without ignored fields, but with the cluster's value of those only we own."""
    result = copy.deepcopy(reduced)
    owned, others = field_sets(live, manager)
    for path in missing_paths(manifest, reduced):
        if contains(owned, path) and not any(contains(each, path) for each in others):
            put(result, path, live)
    return result


def missing_paths(whole: Object, reduced: Object) -> Iterable[tuple[str, ...]]:
    """Paths of fields that only the whole manifest has; lists count as one value."""
    for name, value in whole.items():
        if name not in reduced:
            yield (name,)
        elif isinstance(value, dict) and isinstance(reduced[name], dict):
            below = missing_paths(cast("Object", value), cast("Object", reduced[name]))
            yield from ((name, *rest) for rest in below)


def field_sets(live: Object, manager: str) -> tuple[Object, list[Object]]:
    """The fields that a manager applied, and those of all others."""
    entries = items(live, "metadata", "managedFields")
    own = [
        part(each, "fieldsV1")
        for each in entries
        if each.get("manager") == manager and each.get("operation") == "Apply"
    ]
    others = [
        part(each, "fieldsV1")
        for each in entries
        if not (each.get("manager") == manager and each.get("operation") == "Apply")
    ]
    return (own[0] if own else {}), others


def contains(fields: Object, path: Sequence[str]) -> bool:
    """Whether a set of managed fields has the field at a path."""
    node = fields
    for name in path:
        below = node.get(f"f:{name}")
        if not isinstance(below, dict):
            return False
        node = cast("Object", below)
    return True


def put(manifest: Object, path: Sequence[str], live: Object) -> None:
    """Give a manifest the cluster's value at a path, if it has one."""
    *parents, last = path
    target, source = manifest, live
    for name in parents:
        below = source.get(name)
        if not isinstance(below, dict):
            return
        source = cast("Object", below)
        target = cast("Object", target.setdefault(name, {}))
    if last in source:
        target[last] = copy.deepcopy(source[last])
