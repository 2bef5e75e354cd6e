"""Changes that are the same in many objects, such as a version label: shown once. Pure."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from knfleet.apply.refs import Ref
from knfleet.view.differences import FieldChange
from knfleet.view.plan.model import ObjectChange, PlannedAction

COMMON = 5
"""A change of a field that is the same in so many objects is folded."""


class CommonChange(Struct, frozen=True):
    """A field that changes in the same way in several objects."""

    change: FieldChange
    refs: tuple[Ref, ...]


def fold(changes: Iterable[ObjectChange]) -> tuple[list[CommonChange], list[ObjectChange]]:
    """What many objects have in common, and each object with what else changes in it.

    Only changes of objects are folded: what is created, deleted or not changed any more is listed.
    An object of which nothing is left is not listed.
    """
    every = list(changes)
    found: defaultdict[bytes, list[tuple[FieldChange, Ref]]] = defaultdict(list)
    for each in every:
        if is_foldable(each):
            for field in each.fields:
                found[digest(field)].append((field, each.ref))
    common = {key: pairs for key, pairs in found.items() if len(pairs) >= COMMON}
    rest: list[ObjectChange] = []
    for each in every:
        fields = tuple(field for field in each.fields if digest(field) not in common)
        if not is_foldable(each) or fields == each.fields:
            rest.append(each)
        elif fields:
            rest.append(replace(each, fields=fields))
    folded = [
        CommonChange(pairs[0][0], tuple(ref for _, ref in pairs)) for pairs in common.values()
    ]
    return sorted(folded, key=lambda each: (-len(each.refs), each.change.field)), rest


def is_foldable(change: ObjectChange) -> bool:
    """Whether an object is only changed, and there is nothing to say about it as a whole."""
    return change.act is PlannedAction.CHANGE and not change.note


def digest(change: FieldChange) -> bytes:
    """Tells changes of fields apart, whatever the values are."""
    sides = [[] if side is UNSET else [side] for side in (change.before, change.after)]
    return msgspec.json.encode([change.field, change.is_secret, *sides])
