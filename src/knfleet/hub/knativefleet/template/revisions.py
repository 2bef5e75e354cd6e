"""Revisions of a fleet: what its templates were, as ControllerRevisions in the hub's namespace."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from knfleet.api.fleet.fleet_names import FLEET_LABEL, KNATIVE_FLEETS
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.meta import Object, Resource
from knfleet.apply.manifest_fields import items, part

CONTROLLER_REVISIONS = Resource("apps", "v1", "ControllerRevision", "controllerrevisions")


class Revision(Struct, frozen=True):
    """What the templates of a fleet were."""

    hash: str
    number: int
    content: Object
    name: str = ""
    created: str = ""
    uid: str = ""
    owner: str = ""
    """The uid of the fleet."""


def read_revision(manifest: Object) -> Revision:
    """What a ControllerRevision says."""
    meta = manifest["metadata"]
    return Revision(
        hash=meta["name"].rpartition("-")[2],
        number=int(manifest.get("revision") or 0),
        content=part(manifest, "data"),
        name=meta["name"],
        created=meta.get("creationTimestamp", ""),
        uid=meta.get("uid", ""),
        owner=next((each["uid"] for each in items(meta, "ownerReferences")), ""),
    )


def fleet_of(manifest: Object) -> list[str]:
    """The fleet that a revision or a child belongs to, for an index."""
    name = part(manifest, "metadata", "labels").get(FLEET_LABEL)
    return [name] if name else []


def revision_manifest(
    fleet: KnativeFleet, content: Object, digest: str, *, namespace: str, number: int
) -> Object:
    """A new revision."""
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": f"{fleet.metadata.name}-{digest}",
            "namespace": namespace,
            "labels": {FLEET_LABEL: fleet.metadata.name},
            "ownerReferences": [owner_reference(fleet)],
        },
        "data": content,
        "revision": number,
    }


def owner_reference(fleet: KnativeFleet) -> Object:
    """The fleet as the owner of what it makes."""
    return {
        "apiVersion": KNATIVE_FLEETS.api_version,
        "kind": KNATIVE_FLEETS.kind,
        "name": fleet.metadata.name,
        "uid": fleet.metadata.uid,
        "controller": True,
    }


def next_number(revisions: Mapping[str, Revision]) -> int:
    """The number of the next revision."""
    return max((each.number for each in revisions.values()), default=0) + 1


def obsolete(revisions: Mapping[str, Revision], used: Iterable[str], limit: int) -> list[Revision]:
    """Revisions that are not used and older than those that are kept."""
    needed = set(used)
    unused = [each for each in revisions.values() if each.hash not in needed]
    newest_first = sorted(unused, key=lambda each: each.number, reverse=True)
    return newest_first[limit:]
