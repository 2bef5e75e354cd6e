"""Objects of one collection in memory, with indexes."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

import structlog
from msgspec import Struct

from knfleet.api.meta import Key, Object

log = structlog.get_logger()

Index = Callable[[Object], Iterable[str]]


class StoreChange(Struct, frozen=True):
    """What happened to one object."""

    type: Literal["added", "updated", "deleted"]
    key: Key
    old: Object | None
    new: Object | None


class Store:
    """Objects by key, and by the values that each index function finds in them."""

    def __init__(self, indexes: Mapping[str, Index]) -> None:
        self.objects: dict[Key, Object] = {}
        self.indexes = dict(indexes)
        self.keys: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in indexes}
        self.values: dict[Key, list[tuple[str, str]]] = {}
        """Where each object stands in the indexes, whatever became of it since."""

    def put(self, key: Key, new: Object) -> StoreChange | None:
        """Remember an object; None when it is the version that was there already."""
        old = self.objects.get(key)
        if old is not None and version(old) == version(new):
            return None
        self.objects[key] = new
        if self.indexes:
            self.index(key, new)
        return StoreChange("added" if old is None else "updated", key, old, new)

    def remove(self, key: Key, last: Object | None = None) -> StoreChange | None:
        """Forget an object, whose last state may be known; None when it was not there."""
        old = self.objects.pop(key, None)
        if old is None:
            return None
        self.unindex(key)
        return StoreChange("deleted", key, last if last is not None else old, None)

    def index(self, key: Key, new: Object) -> None:
        """Give an object its place in the indexes; one that is right it keeps."""
        places = [(name, value) for name in self.indexes for value in self.found_in(new, name)]
        if places == self.values.get(key):
            return
        self.unindex(key)
        self.values[key] = places
        for name, value in places:
            self.keys[name].setdefault(value, {})[key] = None

    def found_in(self, manifest: Object, name: str) -> list[str]:
        """What an index finds in an object; one that fails finds nothing."""
        try:
            return list(self.indexes[name](manifest))
        except Exception:
            log.exception("an index failed", index=name, key=str(Key.of(manifest)))
            return []

    def unindex(self, key: Key) -> None:
        """Forget an object's place in the indexes."""
        for name, value in self.values.pop(key, ()):
            keys = self.keys[name].get(value, {})
            keys.pop(key, None)
            if not keys:
                self.keys[name].pop(value, None)

    def by_index(self, name: str, value: str) -> list[Object]:
        return [self.objects[key] for key in self.keys[name].get(value, ())]

    def others(self, keep: Collection[Key]) -> list[Key]:
        return [key for key in self.objects if key not in keep]


def version(manifest: Object) -> tuple[str, str]:
    """What tells two states of an object apart."""
    meta = manifest["metadata"]
    return meta.get("uid", ""), meta.get("resourceVersion", "")
