"""Versions of CRDs that a release no longer has, although objects may be stored in them. Pure.

An API server refuses a CRD without a version that its `status.storedVersions` names. Knative's
releases have a Job that writes all objects of some CRDs again, so that only the storage version is
left; it runs after the CRDs of the same release are written.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from knfleet.api.core import CRDS
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part

MIGRATION = "storage-version-migration"
"""What the names of such Jobs begin with."""


class ReleaseCrds(Struct, frozen=True):
    """The CRDs of a release."""

    title: str
    """As `serving 1.23.0`."""
    versions: Mapping[str, tuple[str, ...]]
    """By CRD."""
    storage: Mapping[str, str]
    """By CRD, the version that objects are stored in."""
    migrated: Mapping[str, str]
    """By CRD that the release migrates, the Job that does."""


def release_crds(title: str, objects: Iterable[Object]) -> ReleaseCrds:
    """The CRDs among the objects of a release, and which of them it migrates."""
    versions: dict[str, tuple[str, ...]] = {}
    storage: dict[str, str] = {}
    migrated: dict[str, str] = {}
    for each in objects:
        name = str(each["metadata"].get("name", ""))
        if each.get("kind") == CRDS.kind:
            found = items(each, "spec", "versions")
            versions[name] = tuple(str(version.get("name")) for version in found)
            stored = [str(version.get("name")) for version in found if version.get("storage")]
            storage[name] = stored[0] if stored else ""
        elif each.get("kind") == "Job" and name.startswith(MIGRATION):
            for container in items(part(each, "spec", "template", "spec"), "containers"):
                migrated |= {str(crd): name for crd in container.get("args") or ()}
    return ReleaseCrds(title, versions, storage, migrated)


def dropped_versions(
    stored: Mapping[str, tuple[str, ...]],
    installed: ReleaseCrds | None,
    steps: Iterable[ReleaseCrds],
) -> list[str]:
    """Why the API server of a cluster would refuse CRDs of releases on the way, one by one.

    `stored` has `status.storedVersions` of the CRDs that the cluster has.
    """
    known = {name: set(versions) for name, versions in stored.items()}
    before, found = installed, list[str]()
    for step in steps:
        for name, versions in sorted(step.versions.items()):
            lost = sorted(known.get(name, set()) - set(versions))
            if lost:
                found.append(problem(step, name, lost, before))
            left = known.get(name, set()) & set(versions)
            known[name] = {*([] if name in step.migrated else left), step.storage[name]}
        before = step
    return found


def problem(step: ReleaseCrds, crd: str, lost: list[str], before: ReleaseCrds | None) -> str:
    """Why a CRD is refused, and what to do first."""
    storage = step.storage[crd]
    job = "" if before is None else before.migrated.get(crd, "")
    how = f" as the Job {job} of {before.title} does," if before is not None and job else ""
    names = ", ".join(lost)
    return (
        f"{step.title}: CustomResourceDefinition {crd} has no version {names} any more, in which"
        f" objects may be stored; first write its objects again in {storage},{how} and remove"
        f" {names} from its status.storedVersions"
    )
