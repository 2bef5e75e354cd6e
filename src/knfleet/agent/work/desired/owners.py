"""Owner references of objects that works share, and what is done about an object that must go."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS

Removal = Literal["forget", "disown", "delete", "wait"]


def owner_reference(name: str, uid: str) -> Object:
    """The reference by which an AppliedManifestWork owns objects."""
    return {
        "apiVersion": APPLIED_WORKS.api_version,
        "kind": APPLIED_WORKS.kind,
        "name": name,
        "uid": uid,
    }


def with_owner(owners: Sequence[Object], own: Object) -> list[Object]:
    """References with one more, in their old order; the same when it is there."""
    if any(each.get("uid") == own["uid"] for each in owners):
        return list(owners)
    return [*owners, own]


def without_owner(owners: Sequence[Object], uid: str) -> list[Object]:
    """References without those to one owner."""
    return [each for each in owners if each.get("uid") != uid]


def is_work(owner: Object) -> bool:
    """Whether a reference is to an AppliedManifestWork."""
    return (owner.get("apiVersion"), owner.get("kind")) == (
        APPLIED_WORKS.api_version,
        APPLIED_WORKS.kind,
    )


class OwnedState(Struct, frozen=True):
    """What decides about the removal of an object."""

    uid: str
    works: frozenset[str]
    """UIDs of the AppliedManifestWorks that own it."""
    deleting: bool = False


def removal(state: OwnedState, own: str, *, orphaned: bool) -> Removal:
    """What becomes of an object that leaves a work.

    Only what this work owns is touched; other works keep what they own too.
    """
    if own not in state.works:
        return "forget"
    if orphaned or state.works - {own}:
        return "disown"
    return "wait" if state.deleting else "delete"
