"""What this process wrote last, until its watch shows that or something newer.

Who acts on a watch alone would act twice: a write takes some time to come back.
"""

from collections import OrderedDict

from knfleet.api.meta import Key, Object
from knfleet.kube.cache.informer import Informer, StoreChange

REMEMBERED = 10_000
"""Objects that are gone and still remembered."""


def version_of(manifest: Object) -> str:
    """The resource version of an object."""
    return str(manifest["metadata"].get("resourceVersion", ""))


def is_newer(one: str, other: str) -> bool:
    """Whether a resource version came after another; unlike numbers are taken for newer."""
    if one.isdecimal() and other.isdecimal():
        return int(one) > int(other)
    return one != other


class OwnWrites:
    """The objects of an informer, as they are after our own writes."""

    def __init__(self, informer: Informer) -> None:
        self.informer = informer
        self.written: dict[Key, Object] = {}
        self.removed: OrderedDict[Key, str] = OrderedDict()
        """UIDs of the last objects that we know to be gone; answers about them may come late."""
        informer.on_change(self.seen)

    def note(self, manifest: Object) -> None:
        """Remember what a write returned."""
        key = Key.of(manifest)
        if self.removed.get(key) == uid_of(manifest):
            return
        known = self.get(key)
        if known is None or not is_newer(version_of(known), version_of(manifest)):
            self.written[key] = self.informer.trim(manifest)

    def note_gone(self, key: Key, uid: str) -> None:
        """Remember that an object is gone."""
        self.written.pop(key, None)
        self.removed[key] = uid
        if len(self.removed) > REMEMBERED:
            self.removed.popitem(last=False)

    def get(self, key: Key) -> Object | None:
        """An object as it is now, as far as we know."""
        found = self.written.get(key) or self.informer.get(key)
        if found is not None and self.removed.get(key) == uid_of(found):
            return None
        return found

    def seen(self, change: StoreChange) -> None:
        """Forget what the watch has shown by now."""
        if change.new is None:
            if change.old is not None:
                self.note_gone(change.key, uid_of(change.old))
            return
        own = self.written.get(change.key)
        if own is not None and not is_newer(version_of(own), version_of(change.new)):
            del self.written[change.key]
        if self.removed.get(change.key) != uid_of(change.new):
            self.removed.pop(change.key, None)


def uid_of(manifest: Object) -> str:
    """The UID of an object."""
    return str(manifest["metadata"].get("uid", ""))
