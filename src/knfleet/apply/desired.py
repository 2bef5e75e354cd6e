"""The objects that must exist, made ready to be applied.

Each object gets the label of its set, its owner, and the hash of all that; what is never ours is
left out. This is done once for each rendering: an idle pass compares hashes and nothing more.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from knfleet.api.core import CRDS
from knfleet.api.meta import Object, Resource, api_group
from knfleet.apply import well_known
from knfleet.apply.applyset import ApplySet
from knfleet.apply.change_set import FailureKind, ObjectFailure
from knfleet.apply.manifest_fields import part
from knfleet.apply.refs import CLUSTER_ROLE, GroupKind, Ref

Kinds = Mapping[tuple[str, str], Resource]
"""How each `apiVersion` and kind is addressed; what is not in it, the cluster does not serve."""

SERVERS_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
encode = msgspec.json.Encoder(order="deterministic").encode


class Desired(Struct, frozen=True):
    """One object that must exist."""

    ref: Ref
    resource: Resource
    manifest: Object
    digest: str


class OwnerReferences(Struct, frozen=True):
    """Who owns the objects of a set."""

    owner: Object | None = None
    """The controller of everything in its namespace."""
    keeper: Object | None = None
    """Owns the same objects, so that they outlive the owner: garbage collection takes an object
    only when none of its owners is there."""

    @property
    def uids(self) -> tuple[str, ...]:
        """Which objects they are, whatever else changes on them."""
        every = (self.owner, self.keeper)
        return tuple("" if each is None else each["metadata"]["uid"] for each in every)

    def references(self, ref: Ref) -> list[Object]:
        if self.owner is None or not owns(self.owner, ref):
            return []
        kept = [] if self.keeper is None else [plain_reference(self.keeper)]
        return [owner_reference(self.owner), *kept]


NO_OWNERS = OwnerReferences()


class DesiredSet(Struct, frozen=True):
    """All objects that must exist."""

    objects: Mapping[Ref, Desired]
    rejected: tuple[ObjectFailure, ...] = ()
    """Objects that cannot even be asked for."""

    @property
    def has_unknown_kinds(self) -> bool:
        """Whether some kinds were not served when the objects were made ready."""
        return any(failure.why == FailureKind.UNKNOWN_KIND for failure in self.rejected)

    @property
    def refs(self) -> frozenset[Ref]:
        """Every object that is wanted, whether it can be had or not."""
        return frozenset(self.objects) | {failure.ref for failure in self.rejected}

    @property
    def resources(self) -> dict[GroupKind, Resource]:
        """How each kind of object is addressed."""
        return {ref.group_kind: each.resource for ref, each in self.objects.items()}


def defined_kinds(objects: Iterable[Object]) -> dict[tuple[str, str], Resource]:
    """The kinds that CRDs among the objects define, so that discovery is not needed."""
    found: dict[tuple[str, str], Resource] = {}
    for manifest in objects:
        if (manifest.get("apiVersion"), manifest.get("kind")) != (CRDS.api_version, CRDS.kind):
            continue
        spec = manifest["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            if version.get("served"):
                resource = Resource(
                    spec["group"],
                    version["name"],
                    names["kind"],
                    names["plural"],
                    namespaced=spec["scope"] == "Namespaced",
                )
                found[resource.api_version, resource.kind] = resource
    return found


def prepare(
    objects: Iterable[Object], kinds: Kinds, applyset: ApplySet, owners: OwnerReferences = NO_OWNERS
) -> DesiredSet:
    """Objects ready to be applied; of several with the same name the last one counts."""
    wanted: dict[Ref, Desired] = {}
    rejected: dict[Ref, ObjectFailure] = {}
    for manifest in objects:
        resource = kinds.get(kind_of(manifest))
        ref = ref_in(manifest, resource)
        rejected.pop(ref, None)
        wanted.pop(ref, None)
        problem = problem_of(ref, manifest, resource)
        if problem is not None or resource is None:
            rejected[ref] = problem or unknown_kind(ref, manifest)
            continue
        ours = dressed(manifest, ref, applyset, owners)
        digest = hashlib.sha256(encode(ours)).hexdigest()[:32]
        ours["metadata"]["annotations"][well_known.APPLIED_HASH] = digest
        wanted[ref] = Desired(ref, resource, ours, digest)
    return DesiredSet(wanted, tuple(rejected.values()))


def kind_of(manifest: Object) -> tuple[str, str]:
    """The `apiVersion` and kind of a manifest; empty when it has none."""
    return manifest.get("apiVersion") or "", manifest.get("kind") or ""


def ref_in(manifest: Object, resource: Resource | None) -> Ref:
    """The object a manifest is about; kinds of the cluster lose a namespace given by mistake."""
    meta = part(manifest, "metadata")
    api_version, kind = kind_of(manifest)
    namespace = meta.get("namespace") or ""
    if resource is not None and not resource.namespaced:
        namespace = ""
    return Ref(api_group(api_version)[0], kind, namespace, meta.get("name") or "")


def problem_of(ref: Ref, manifest: Object, resource: Resource | None) -> ObjectFailure | None:
    """Why an object cannot be applied, whatever the cluster says."""
    if not ref.name:
        return ObjectFailure(
            ref, FailureKind.INVALID, "it has no name (generateName is not supported)"
        )
    if resource is None:
        return unknown_kind(ref, manifest)
    if resource.namespaced and not ref.namespace:
        return ObjectFailure(
            ref, FailureKind.INVALID, "it has no namespace, and its kind needs one"
        )
    return None


def unknown_kind(ref: Ref, manifest: Object) -> ObjectFailure:
    """The failure for a kind that the cluster does not serve, in the words of other tools."""
    version, kind = kind_of(manifest)
    return ObjectFailure(
        ref, FailureKind.UNKNOWN_KIND, f'no matches for kind "{kind}" in version "{version}"'
    )


def dressed(manifest: Object, ref: Ref, applyset: ApplySet, owners: OwnerReferences) -> Object:
    """A copy of a manifest with our marks, without what is never ours."""
    given: dict[str, Any] = manifest["metadata"]
    meta = {name: value for name, value in given.items() if name not in SERVERS_METADATA}
    meta["labels"] = {**part(given, "labels"), well_known.PART_OF: applyset.id}
    meta["annotations"] = dict(part(given, "annotations"))
    for name in (well_known.APPLIED_HASH, *well_known.LEGACY_ANNOTATIONS):
        meta["annotations"].pop(name, None)
    if ref.namespace:
        meta["namespace"] = ref.namespace
    else:
        meta.pop("namespace", None)
    if references := owners.references(ref):
        meta["ownerReferences"] = references
    ours = {name: value for name, value in manifest.items() if name != "status"}
    ours["metadata"] = meta
    if ref.group_kind == CLUSTER_ROLE and manifest.get("aggregationRule"):
        # They belong to the aggregation controller.
        ours.pop("rules", None)
    return ours


def owns(owner: Object, ref: Ref) -> bool:
    """Whether an object may own another: across namespaces, garbage collection would delete it."""
    return bool(ref.namespace) and owner["metadata"].get("namespace", "") in ("", ref.namespace)


def owner_reference(owner: Object) -> Object:
    """The reference that makes an object the controller of another."""
    return {**plain_reference(owner), "controller": True, "blockOwnerDeletion": True}


def plain_reference(owner: Object) -> Object:
    """The reference that makes an object one owner of another among several."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def crd_of(desired: Desired) -> Ref:
    """The CRD that defines the kind of a custom resource."""
    name = f"{desired.resource.plural}.{desired.resource.group}"
    return Ref(CRDS.group, CRDS.kind, "", name)
