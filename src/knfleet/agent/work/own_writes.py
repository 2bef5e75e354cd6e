"""What this process wrote last, until its watch shows that or something newer.

Who acts on a watch alone would act twice: a write takes some time to come back.
"""

from knfleet.api.meta import Key, Object
from knfleet.kube.cache.informer import Informer, StoreChange


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
        self.removed: dict[Key, str] = {}
        """UIDs of objects that we know to be gone."""
        informer.on_change(self.seen)

    def note(self, manifest: Object) -> None:
        """Remember what a write returned."""
        key = Key.of(manifest)
        known = self.get(key)
        if known is None or not is_newer(version_of(known), version_of(manifest)):
            self.written[key] = self.informer.trim(manifest)

    def note_gone(self, key: Key, uid: str) -> None:
        """Remember that an object is gone."""
        self.written.pop(key, None)
        self.removed[key] = uid

    def get(self, key: Key) -> Object | None:
        """An object as it is now, as far as we know."""
        found = self.written.get(key) or self.informer.get(key)
        if found is not None and self.removed.get(key) == found["metadata"].get("uid"):
            return None
        return found

    def seen(self, change: StoreChange) -> None:
        """Forget what the watch has shown by now."""
        shown = change.new or change.old
        own = self.written.get(change.key)
        is_shown = (
            own is not None
            and shown is not None
            and (not is_newer(version_of(own), version_of(shown)))
        )
        if is_shown:
            del self.written[change.key]
        if change.new is None or self.removed.get(change.key) != uid_of(change.new):
            self.removed.pop(change.key, None)


def uid_of(manifest: Object) -> str:
    """The UID of an object."""
    return str(manifest["metadata"].get("uid", ""))
