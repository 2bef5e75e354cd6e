"""What is different between two states of an object, field by field, without noise.

Noise is what servers and controllers write on every object (versions, times, status), and our own
marks. Items of a list are distinguished by their name or port where they have one, so that a new
container shows as that, and not as a change of all that come after it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType

from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.desired import SERVERS_METADATA
from knfleet.apply.manifest_fields import part
from knfleet.kube import yaml

NOISY_METADATA = frozenset({*SERVERS_METADATA, "ownerReferences"})
NOISY_LABELS = frozenset({well_known.PART_OF})
NOISY_ANNOTATIONS = frozenset(
    {
        well_known.APPLIED_HASH,
        well_known.CREATED_BY,
        *well_known.LEGACY_ANNOTATIONS,
        "deployment.kubernetes.io/revision",
    }
)
KEYS = (("name",), ("containerPort", "protocol"), ("port", "protocol"), ("mountPath",), ("type",))
"""What tells items of a list apart, in the order in which it is tried."""
SECRET_PARTS = frozenset({"data", "stringData"})
PLAIN = re.compile(r"[\w-]+")


class FieldChange(Struct, frozen=True, omit_defaults=True):
    """One field that is different; a side that does not have it is unset."""

    field: str
    before: Any | UnsetType = UNSET
    after: Any | UnsetType = UNSET
    is_secret: bool = False
    """Whether both values are kept back."""


def differences(before: Object | None, after: Object | None) -> tuple[FieldChange, ...]:
    """What is different, in the order of field names; values of Secrets are left out."""
    one, other = clean(before or {}), clean(after or {})
    found = sorted(compared("", one, other), key=lambda each: each.field)
    if "Secret" in (one.get("kind"), other.get("kind")):
        return tuple(map(concealed, found))
    return tuple(found)


def clean(manifest: Object) -> Object:
    """An object without noise."""
    rest = {name: value for name, value in manifest.items() if name != "status"}
    if "metadata" not in rest:
        return rest
    meta = {name: value for name, value in rest["metadata"].items() if name not in NOISY_METADATA}
    for section, noise in (("labels", NOISY_LABELS), ("annotations", NOISY_ANNOTATIONS)):
        kept = {name: value for name, value in part(meta, section).items() if name not in noise}
        meta.pop(section, None)
        if kept:
            meta[section] = kept
    return {**rest, "metadata": meta}


def concealed(change: FieldChange) -> FieldChange:
    """A change of a Secret that says which field it is, and no more."""
    top = re.split(r"[.\[]", change.field, maxsplit=1)[0]
    is_secret = top in SECRET_PARTS
    return FieldChange(change.field, is_secret=True) if is_secret else change


def compared(field: str, before: Any, after: Any) -> Iterator[FieldChange]:
    """The differences at and below one field."""
    if before is UNSET and yaml.is_mapping(after) and after:
        before = {}
    if after is UNSET and yaml.is_mapping(before) and before:
        after = {}
    if yaml.is_mapping(before) and yaml.is_mapping(after):
        for name in {**before, **after}:
            below = step(field, str(name))
            yield from compared(below, before.get(name, UNSET), after.get(name, UNSET))
    elif yaml.is_list(before) and yaml.is_list(after) and (key := key_of(before, after)):
        yield from compared_items(field, before, after, key)
    elif not same(before, after):
        yield FieldChange(field, before, after)


def compared_items(
    field: str, before: Sequence[Object], after: Sequence[Object], key: tuple[str, ...]
) -> Iterator[FieldChange]:
    """The differences between two lists whose items have keys, the order among them."""
    old = {named(item, key): item for item in before}
    new = {named(item, key): item for item in after}
    for name in {**old, **new}:
        one, other = old.get(name, UNSET), new.get(name, UNSET)
        if one is UNSET or other is UNSET:
            yield FieldChange(f"{field}[{name}]", one, other)
        else:
            yield from compared(f"{field}[{name}]", one, other)
    stayed = [name for name in old if name in new]
    order = [name for name in new if name in old]
    if stayed != order:
        yield FieldChange(f"{field} (order)", stayed, order)


def key_of(before: Sequence[Any], after: Sequence[Any]) -> tuple[str, ...] | None:
    """What tells the items of two lists apart; None when nothing does."""
    every = [*before, *after]
    if not every or not all(yaml.is_mapping(item) for item in every):
        return None
    for key in KEYS:
        if all(key[0] in item for item in every) and all(
            len({named(item, key) for item in items}) == len(items) for items in (before, after)
        ):
            return key
    return None


def named(item: Object, key: tuple[str, ...]) -> str:
    """The key of an item, as it stands in a path."""
    return ",".join(f"{name}={item[name]}" for name in key if name in item)


def step(field: str, name: str) -> str:
    """The path of a field below another."""
    if not PLAIN.fullmatch(name):
        return f"{field}[{name}]"
    return f"{field}.{name}" if field else name


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same; true is not 1."""
    return type(one) is type(other) and cast("object", one) == cast("object", other)
