"""What is known of an object from its metadata alone."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.plan.field_sets import FieldSet, set_of
from knfleet.apply.refs import Ref


class ObservedObject(Struct, frozen=True):
    """One object as a server has it."""

    ref: Ref
    uid: str
    version: str
    part_of: str = ""
    """The set that the object says it belongs to."""
    applied_hash: str = ""
    created_by: str = ""
    provides: tuple[str, ...] = ()
    """Of a role that an administrator made: the digests of what it stands for."""
    legacy: tuple[str, ...] = ()
    """Annotations of the Go operator that are on the object."""
    deleted_at: str = ""
    """When its deletion was requested, by the server's clock."""
    finalizers: tuple[str, ...] = ()
    managed: tuple[Object, ...] = ()
    """The entries of managedFields."""

    @property
    def deleting(self) -> bool:
        """Whether it is on its way out."""
        return bool(self.deleted_at)

    @property
    def is_ours(self) -> bool:
        """Whether we have written it: labels and annotations may be copied, field managers not."""
        return any(
            entry.get("manager") == well_known.MANAGER and not entry.get("subresource")
            for entry in self.managed
        )

    @property
    def own(self) -> FieldSet:
        """The fields that we own by having applied them."""
        return set_of(self.own_entry)

    @property
    def own_text(self) -> str:
        """The same as text, where it is kept so; else empty."""
        fields = self.own_entry.get("fieldsV1")
        return fields if isinstance(fields, str) else ""

    @property
    def own_entry(self) -> Object:
        """What managedFields say of us; empty when we applied nothing."""
        for entry in self.managed:
            if is_own(entry):
                return entry
        return {}

    @property
    def others(self) -> Iterable[Object]:
        return (entry for entry in self.managed if not is_own(entry))


def is_own(entry: Object) -> bool:
    """Whether an entry of managedFields is what we applied."""
    return (
        entry.get("manager") == well_known.MANAGER
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
    )


def observe(manifest: Object) -> ObservedObject:
    """What an object's metadata says."""
    meta = manifest["metadata"]
    annotations = part(meta, "annotations")
    legacy = tuple(name for name in well_known.LEGACY_ANNOTATIONS if name in annotations)
    return ObservedObject(
        Ref.of(manifest),
        uid=meta.get("uid", ""),
        version=meta.get("resourceVersion", ""),
        part_of=part(meta, "labels").get(well_known.PART_OF, ""),
        applied_hash=annotations.get(well_known.APPLIED_HASH, ""),
        created_by=annotations.get(well_known.CREATED_BY, ""),
        provides=tuple(filter(None, annotations.get(well_known.PROVIDES, "").split(","))),
        legacy=legacy,
        deleted_at=meta.get("deletionTimestamp") or "",
        finalizers=tuple(meta.get("finalizers") or ()),
        managed=tuple(items(meta, "managedFields")),
    )


def slim(manifest: Object) -> Object:
    """An object with only the metadata that we look at; for informers, which keep thousands.

    Sets of fields are kept as text, which takes a tenth of the memory.
    """
    meta = manifest["metadata"]
    small: Object = {
        name: meta[name]
        for name in ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
        if name in meta
    }
    labels, annotations = part(meta, "labels"), part(meta, "annotations")
    small["labels"] = {name: labels[name] for name in (well_known.PART_OF,) if name in labels}
    kept = (well_known.APPLIED_HASH, well_known.CREATED_BY, *well_known.LEGACY_ANNOTATIONS[:1])
    small["annotations"] = {name: annotations[name] for name in kept if name in annotations}
    if meta.get("finalizers"):
        small["finalizers"] = meta["finalizers"]
    small["managedFields"] = [slim_entry(entry) for entry in items(meta, "managedFields")]
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": small}


def slim_entry(entry: Object) -> Object:
    """An entry of managedFields with its set as text."""
    small = {
        name: entry[name]
        for name in ("manager", "operation", "subresource", "time")
        if name in entry
    }
    small["fieldsV1"] = msgspec.json.encode(entry.get("fieldsV1") or {}).decode()
    return small


def slim_workload(manifest: Object) -> Object:
    """The same, with what readiness is judged by."""
    small = slim(manifest)
    small["metadata"]["generation"] = manifest["metadata"].get("generation", 0)
    spec = part(manifest, "spec")
    names = ("replicas", "completions", "updateStrategy", "paused")
    small["spec"] = {name: spec[name] for name in names if name in spec}
    small["status"] = part(manifest, "status")
    return small


def is_newer(version: str, than: str) -> bool:
    """Whether a resource version came after another; one that is no number never did."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return False
