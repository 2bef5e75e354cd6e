"""Which objects belong to a set: the ApplySet convention (KEP-3659).

The parent names the kinds and namespaces in which members may be; each member carries the id of the
set. The parent's list is widened before anything is applied, and narrowed after everything was
applied and pruned, so at any moment it covers all members that there are.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from knfleet import __version__
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply import well_known
from knfleet.apply.manifest_fields import part
from knfleet.apply.refs import GroupKind, Ref

TOOLING = f"knfleet/v{__version__}"


@lru_cache(maxsize=4096)
def id_of(parent: str) -> str:
    """The label of a set; it is asked for with every change of a member."""
    digest = hashlib.sha256(parent.encode()).digest()
    return f"applyset-{base64.urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


class ApplySet(Struct, frozen=True):
    """A set of objects, known by its parent object."""

    parent: Resource
    key: Key

    @property
    def id(self) -> str:
        """The label that the parent and all members carry."""
        return id_of(f"{self.key.name}.{self.key.namespace}.{self.parent.kind}.{self.parent.group}")

    @property
    def ref(self) -> Ref:
        """The parent, as an object among others."""
        return Ref(self.parent.group, self.parent.kind, self.key.namespace, self.key.name)

    @property
    def selector(self) -> str:
        """The label selector of all members."""
        return f"{well_known.PART_OF}={self.id}"


class Inventory(Struct, frozen=True):
    """What the parent of a set says."""

    kinds: frozenset[GroupKind] = frozenset()
    namespaces: frozenset[str] = frozenset()
    """Namespaces of members, the parent's own among them or not."""
    second_look: frozenset[str] = frozenset()
    """ClusterRoles that were deleted, and may have been brought back by the cluster."""
    done_jobs: Mapping[str, str] = {}
    """Jobs that are complete, as `namespace/name`, with the hash of what was applied."""

    def widened(self, refs: Iterable[Ref]) -> "Inventory":
        """The inventory that covers some more objects."""
        kinds, namespaces = set(self.kinds), set(self.namespaces)
        for ref in refs:
            kinds.add(ref.group_kind)
            if ref.namespace:
                namespaces.add(ref.namespace)
        return replace(self, kinds=frozenset(kinds), namespaces=frozenset(namespaces))

    def merged(self, other: "Inventory") -> "Inventory":
        """The inventory with everything that another has as well."""
        return Inventory(
            self.kinds | other.kinds,
            self.namespaces | other.namespaces,
            self.second_look | other.second_look,
            {**self.done_jobs, **other.done_jobs},
        )

    def covers(self, refs: Iterable[Ref]) -> bool:
        """Whether it covers some objects."""
        return all(
            ref.group_kind in self.kinds and (not ref.namespace or ref.namespace in self.namespaces)
            for ref in refs
        )


class Parent(Struct, frozen=True):
    """The parent of a set, as it is in the cluster."""

    inventory: Inventory
    version: str = ""
    """Its resource version; empty when it is not there."""
    tooling: str = ""
    is_marked: bool = False
    """Whether it says that it is the parent of this set."""

    @property
    def is_foreign(self) -> bool:
        """Whether another tool keeps a set there."""
        return bool(self.tooling) and not self.tooling.startswith("knfleet/")


def read_parent(applyset: ApplySet, manifest: Object) -> Parent:
    """What the parent object says; an empty namespace list means the parent's own."""
    meta = manifest["metadata"]
    annotations: dict[str, str] = part(meta, "annotations")
    labels: dict[str, str] = part(meta, "labels")
    namespaces = words(annotations.get(well_known.ADDITIONAL_NAMESPACES, ""))
    if applyset.key.namespace:
        namespaces |= {applyset.key.namespace}
    jobs = (job.rpartition("=") for job in words(annotations.get(well_known.DONE_JOBS, "")))
    inventory = Inventory(
        frozenset(map(GroupKind.parse, words(annotations.get(well_known.CONTAINS, "")))),
        namespaces,
        words(annotations.get(well_known.SECOND_LOOK, "")),
        {name: digest for name, _, digest in jobs},
    )
    return Parent(
        inventory,
        meta.get("resourceVersion", ""),
        annotations.get(well_known.TOOLING, ""),
        is_marked=labels.get(well_known.SET_ID) == applyset.id
        and well_known.CONTAINS in annotations,
    )


def write_parent(applyset: ApplySet, inventory: Inventory, version: str) -> Object:
    """What to apply to the parent; with a version, only if no client wrote it meanwhile."""
    annotations = {
        well_known.TOOLING: TOOLING,
        well_known.CONTAINS: ",".join(sorted(map(str, inventory.kinds))),
        well_known.ADDITIONAL_NAMESPACES: ",".join(
            sorted(inventory.namespaces - {applyset.key.namespace})
        ),
    }
    if inventory.second_look:
        annotations[well_known.SECOND_LOOK] = ",".join(sorted(inventory.second_look))
    if inventory.done_jobs:
        jobs = (f"{name}={digest}" for name, digest in inventory.done_jobs.items())
        annotations[well_known.DONE_JOBS] = ",".join(sorted(jobs))
    meta: Object = {
        "name": applyset.key.name,
        "labels": {well_known.SET_ID: applyset.id},
        "annotations": annotations,
    }
    if applyset.key.namespace:
        meta["namespace"] = applyset.key.namespace
    if version:
        meta["resourceVersion"] = version
    return {
        "apiVersion": applyset.parent.api_version,
        "kind": applyset.parent.kind,
        "metadata": meta,
    }


def words(text: str) -> frozenset[str]:
    """The words of a list with commas."""
    return frozenset(word.strip() for word in text.split(",") if word.strip())
