"""Reads and writes the parent of a set, so that no member is ever out of its sight."""

from collections.abc import Callable

from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.applyset import ApplySet, Inventory, Parent, read_parent, write_parent
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, NotFound

ATTEMPTS = 5


class Parents:
    """The parent object of one set in one cluster."""

    def __init__(self, client: Client, applyset: ApplySet) -> None:
        self.client = client
        self.applyset = applyset
        self.parent: Parent | None = None
        """As last read or written by us; another process may have written since."""

    async def read(self) -> Parent:
        """The parent as it is now; one without a version is not there."""
        applyset = self.applyset
        try:
            manifest = await self.client.get(
                applyset.parent, applyset.key.name, applyset.key.namespace
            )
            return self.remember(manifest)
        except NotFound:
            self.parent = Parent(Inventory())
        return self.parent

    def remember(self, manifest: Object) -> Parent:
        """The parent, which a caller has just read or written."""
        self.parent = read_parent(self.applyset, manifest)
        return self.parent

    async def change(self, new: Callable[[Inventory], Inventory]) -> Inventory:
        """Write a new inventory, made from the present one, unless it says that already."""
        parent = self.parent or await self.read()
        for attempt in range(ATTEMPTS):
            wanted = new(parent.inventory)
            if parent.is_marked and wanted == parent.inventory:
                return wanted
            manifest = write_parent(self.applyset, wanted, parent.version)
            try:
                written = await self.client.apply(
                    self.applyset.parent, manifest, manager=well_known.PARENT_MANAGER
                )
            except (Conflict, NotFound):
                # Another client wrote or deleted it meanwhile; NotFound again means no namespace.
                if attempt == ATTEMPTS - 1:
                    raise
                parent = await self.read()
                continue
            self.remember(written)
            return wanted
        raise AssertionError("the last attempt either returns or raises")
