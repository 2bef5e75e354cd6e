"""How the add-on manager writes: only what differs, and only over the state that it knows."""

from collections.abc import Iterable
from contextlib import suppress

from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS, ClusterManagementAddOn
from knfleet.api.addon.managedclusteraddon import (
    ADDONS,
    ManagedClusterAddOn,
    ManagedClusterAddOnStatus,
)
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.schema import decode
from knfleet.api.work.manifestwork import WORKS, ManifestWork
from knfleet.hub.context import plain
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, NotFound

CONFLICT_SECONDS = 0.05


def changed_fields(old: object, new: object, fields: Iterable[str]) -> Object:
    """Those fields of a status that change, as a merge patch has them."""
    before, after = plain(old), plain(new)
    return {name: after.get(name) for name in fields if before.get(name) != after.get(name)}


STATUS_FIELDS = (
    "addOnMeta",
    "conditions",
    "configReferences",
    "healthCheck",
    "kubeClientDriver",
    "namespace",
    "registrations",
    "relatedObjects",
    "supportedConfigs",
)


async def write_status(
    client: Client, addon: ManagedClusterAddOn, status: ManagedClusterAddOnStatus
) -> bool:
    """Write what changes of an add-on's status; `Conflict` when it has another state by now."""
    patch = changed_fields(addon.status, status, STATUS_FIELDS)
    if not patch:
        return False
    body = {"metadata": {"resourceVersion": addon.metadata.resource_version}, "status": patch}
    await client.patch(ADDONS, addon.key, body, subresource="status")
    return True


async def write_metadata(client: Client, addon: ManagedClusterAddOn, metadata: Object) -> None:
    """Change an add-on's metadata; `Conflict` when it has another state by now."""
    changed = {**metadata, "resourceVersion": addon.metadata.resource_version}
    await client.patch(ADDONS, addon.key, {"metadata": changed})


async def write_cluster_addon_status(
    client: Client, cluster_addon: ClusterManagementAddOn, status: object
) -> None:
    """Write what changes of the status of an add-on of the fleet."""
    fields = ("defaultconfigReferences", "installProgressions")
    patch = changed_fields(cluster_addon.status, status, fields)
    if patch:
        version = {"resourceVersion": cluster_addon.metadata.resource_version}
        body = {"metadata": version, "status": patch}
        key = Key("", cluster_addon.name)
        await client.patch(CLUSTER_ADDONS, key, body, subresource="status")


def same_work(found: Object, wanted: Object) -> bool:
    """Whether a work is as it should be, defaults of the API server aside."""
    return has_metadata(found, wanted) and (
        decode(found, ManifestWork).spec == decode(wanted, ManifestWork).spec
    )


def has_metadata(found: Object, wanted: Object) -> bool:
    """Whether an object has the labels, annotations and owners that it should have."""
    left, right = found["metadata"], wanted["metadata"]
    for part in ("labels", "annotations"):
        ours: dict[str, str] = right.get(part) or {}
        theirs: dict[str, str] = left.get(part) or {}
        if not ours.items() <= theirs.items():
            return False
    owners: list[Object] = left.get("ownerReferences") or []
    own: list[Object] = right.get("ownerReferences") or []
    return {each["uid"] for each in own} <= {each["uid"] for each in owners}


async def apply_work(client: Client, found: Object | None, wanted: Object) -> Object:
    """The work as it is now: written if it is not as it should be."""
    if found is not None and same_work(found, wanted):
        return found
    return await client.apply(WORKS, wanted)


async def delete_object(client: Client, found: Object, resource: Resource = WORKS) -> None:
    """Delete this very object, if it is there."""
    with suppress(NotFound, Conflict):
        if not found["metadata"].get("deletionTimestamp"):
            uid = found["metadata"]["uid"]
            await client.delete(resource, Key.of(found), uid=uid)
