"""How a cluster leaves: add-ons first, then works by their priority, then its rights.

Works are removed by the cluster's agent. For a cluster that is gone for good, an annotation gives
them up after a time that the administrator chooses, and an Event names what is orphaned.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec import Struct

from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    API_FINALIZER,
    AVAILABLE,
    CLEANUP_FINALIZER,
    CLEANUP_PRIORITY,
    DELETE_NAMESPACE,
    DELETING,
    FORCE_DETACH,
    ManagedCluster,
)
from knfleet.api.conditions import StandardCondition, find, put
from knfleet.api.core import NAMESPACES
from knfleet.api.knative.conditions import Status
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.moments import as_moment
from knfleet.api.schema import decode
from knfleet.api.work.manifestwork import DELETING as WORK_DELETING
from knfleet.api.work.manifestwork import WORKS
from knfleet.apply.manifest_fields import items
from knfleet.hub.context import HubContext, patch_cluster, plain, remove
from knfleet.hub.registration.acceptance import Acceptance
from knfleet.hub.registration.drivers.driver import DriverCleanUpFailed
from knfleet.hub.registration.drivers.registry import DRIVERS
from knfleet.hub.registration.rbac import created_for
from knfleet.kube.errors import ApiError, Conflict, NotFound
from knfleet.operator.settings import SettingError, duration_seconds
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log

KINDS = (ADDONS, WORKS)
"""What is removed with a cluster, in this order."""
AGAIN_SECONDS = {ADDONS: 1.0, WORKS: 30.0}
"""When to look again whether something is left; works are watched besides."""
NAMED = 5
"""So many objects are named in a condition."""
NAMES_BYTES = 800
"""So much of an Event is for the names of orphans."""


class RemainingObjects(Struct, frozen=True):
    """What is still there of one kind."""

    resource: Resource
    items: list[Object]

    @property
    def words(self) -> str:
        """How many of what, for people."""
        return f"{len(self.items)} {self.resource.plural} ({names(self.items)})"


def names(manifests: Sequence[Object], limit: int = NAMED) -> str:
    """The names of some objects, and how many more there are."""
    found = [each["metadata"]["name"] for each in manifests]
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(found[:limit]) + more


def orphan_names(manifests: Sequence[Object]) -> str:
    """As many names as an Event has space for."""
    size = count = 0
    for each in manifests:
        size += len(each["metadata"]["name"]) + 2
        count += size <= NAMES_BYTES
    return names(manifests, count)


def obstacles(works: Iterable[Object]) -> str:
    """What agents report about works whose deletion takes long, for people."""
    found = [
        f" {each['metadata']['name']}: {said['message']}"
        for each in works
        for said in items(each, "status", "conditions")
        if said.get("type") == WORK_DELETING and said.get("message")
    ]
    return "".join(found[:NAMED])


def priority(manifest: Object) -> int:
    """When an object is removed: lower is sooner, and what makes no sense is soonest."""
    annotations: dict[str, str] = manifest["metadata"].get("annotations") or {}
    text = annotations.get(CLEANUP_PRIORITY, "")
    if not text.isascii() or not text.isdecimal():
        return 0
    return int(text) if int(text) <= 100 else 0


def next_group(items: Iterable[Object]) -> list[Object]:
    """The objects whose turn it is: those of the lowest priority that is left."""
    every = list(items)
    lowest = min((priority(each) for each in every), default=0)
    return [each for each in every if priority(each) == lowest]


def is_abandoned(cluster: ManagedCluster, now: datetime) -> bool:
    """Whether the administrator gave up what the cluster can no longer clean up."""
    seconds = abandoned_in(cluster, now)
    return seconds is not None and seconds <= 0


def abandoned_in(cluster: ManagedCluster, now: datetime) -> float | None:
    """Seconds until what the cluster cannot clean up is given up; None when it is waited for."""
    wanted = cluster.metadata.annotations.get(FORCE_DETACH)
    since = unreachable_since(cluster)
    if wanted is None or since is None:
        return None
    try:
        return duration_seconds(wanted) - (now - since).total_seconds()
    except SettingError:
        return None


def unreachable_since(cluster: ManagedCluster) -> datetime | None:
    """Since when a cluster is unreachable; None while it is available."""
    condition = find(cluster.status.conditions, AVAILABLE)
    if condition is None:
        return as_moment(cluster.metadata.creation_timestamp)
    return None if condition.status == "True" else as_moment(condition.last_transition_time)


def is_ours(namespace: Object, cluster: ManagedCluster) -> bool:
    """Whether the hub made a namespace for this very cluster, which was accepted."""
    was_accepted = find(cluster.status.conditions, ACCEPTED) is not None
    return was_accepted and created_for(namespace) == cluster.metadata.uid


class ClusterDeletion:
    """Detaches clusters that are being deleted."""

    def __init__(self, context: HubContext, registration: Acceptance) -> None:
        self.context = context
        self.client = context.client
        self.registration = registration

    async def step(self, cluster: ManagedCluster) -> Result:
        """Do what can be done now, and report what is left."""
        if not {API_FINALIZER, CLEANUP_FINALIZER}.intersection(cluster.metadata.finalizers):
            return Result.never()
        try:
            return await self.detach(cluster)
        except Conflict:
            raise
        except (ApiError, DriverCleanUpFailed) as error:
            await self.report(cluster, "False", "DeletingError", f"{error}; it is tried again.")
            raise

    async def detach(self, cluster: ManagedCluster) -> Result:
        """Remove what is left of a cluster, and let it go when nothing is."""
        finalizers = cluster.metadata.finalizers
        remaining = await self.remaining(cluster.name)
        if remaining is not None:
            await self.clear(cluster, remaining, cleans_up=CLEANUP_FINALIZER in finalizers)
            result = Result.after(AGAIN_SECONDS[remaining.resource])
            seconds = abandoned_in(cluster, self.context.now())
            return result if seconds is None else result.within(seconds)
        await self.registration.revoke(cluster.name)
        for driver in DRIVERS:
            await driver.clean_up(self.context, cluster.name)
        if cluster.metadata.annotations.get(DELETE_NAMESPACE) == "true":
            await self.delete_namespace(cluster)
        ours = (API_FINALIZER, CLEANUP_FINALIZER)
        kept = [each for each in finalizers if each not in ours]
        if kept:
            waiting = f"Nothing of the cluster is left; finalizers of others: {', '.join(kept)}."
            cluster = await self.report(cluster, "True", "NoResource", waiting)
        await patch_cluster(self.client, cluster, {"metadata": {"finalizers": kept}})
        return Result.never()

    async def delete_namespace(self, cluster: ManagedCluster) -> None:
        """Delete the namespace that we made for an accepted cluster; any other stays."""
        try:
            found = await self.client.get(NAMESPACES, cluster.name)
        except NotFound:
            return
        if is_ours(found, cluster):
            with suppress(NotFound, Conflict):
                uid = found["metadata"]["uid"]
                await self.client.delete(NAMESPACES, Key("", cluster.name), uid=uid)
            return
        self.context.record_warning(
            cluster,
            "NamespaceKept",
            f"namespace {cluster.name} stays although {DELETE_NAMESPACE} is set: the hub did not"
            " make it for this cluster; delete it yourself if it is not in use",
        )

    async def remaining(self, cluster: str) -> RemainingObjects | None:
        """What is left of the first kind of which something is, in the order of names.

        That nothing is left is asked of the API server: a cache may not know the newest objects.
        """
        for resource in KINDS:
            known = self.context.informers.works_of(cluster) if resource == WORKS else []
            found = known or await self.listed(resource, cluster)
            if found:
                by_name = sorted(found, key=lambda each: each["metadata"]["name"])
                return RemainingObjects(resource, by_name)
        return None

    async def listed(self, resource: Resource, cluster: str) -> list[Object]:
        """What the API server has of a kind in a cluster's namespace."""
        try:
            return (await self.client.list(resource, cluster, metadata_only=True)).items
        except NotFound:
            return []

    async def clear(
        self, cluster: ManagedCluster, remaining: RemainingObjects, *, cleans_up: bool
    ) -> None:
        """Delete those objects whose turn it is, and report what is left."""
        if is_abandoned(cluster, self.context.now()):
            await self.abandon(cluster, remaining)
            return
        turn = next_group(remaining.items) if cleans_up else []
        await asyncio.gather(
            *(
                remove(self.client, remaining.resource, Key.of(each))
                for each in turn
                if not each["metadata"].get("deletionTimestamp")
            )
        )
        left = f"{remaining.words} left in namespace {cluster.name}"
        order = f", of which {len(turn)} are being deleted: {names(turn)}." if turn else ""
        wish = "" if turn else "; delete them."
        remedy = "" if unreachable_since(cluster) is None else unreachable_remedy(cluster.name)
        message = left + order + wish + obstacles(turn) + remedy
        await self.report(cluster, "False", "ResourceRemaining", message)

    async def report(
        self, cluster: ManagedCluster, status: Status, reason: str, message: str
    ) -> ManagedCluster:
        """Write how far the deletion is when it changed, and return the cluster as written."""
        condition = StandardCondition(type=DELETING, status=status, reason=reason, message=message)
        old = cluster.status.conditions
        new = put(old, condition, self.context.now())
        if new == old:
            return cluster
        patch = {"status": {"conditions": plain(new)}}
        written = await patch_cluster(self.client, cluster, patch, subresource="status")
        return decode(written, ManagedCluster)

    async def abandon(self, cluster: ManagedCluster, remaining: RemainingObjects) -> None:
        """Let go of what is not cleaned up any more, and name it."""
        await asyncio.gather(*(self.let_go(remaining.resource, each) for each in remaining.items))
        count, plural = len(remaining.items), remaining.resource.plural
        log.warning(
            "abandoned without cleaning the cluster",
            cluster=cluster.name,
            resource=plural,
            names=[each["metadata"]["name"] for each in remaining.items],
        )
        self.context.record_warning(
            cluster,
            "Orphaned",
            f"abandoned without cleaning the cluster, because of {FORCE_DETACH}: {count} {plural}"
            f" ({orphan_names(remaining.items)}); what they applied stays on the cluster",
        )

    async def let_go(self, resource: Resource, manifest: Object) -> None:
        """Delete an object, whatever waits for it."""
        key = Key.of(manifest)
        with suppress(NotFound):
            await self.client.patch(resource, key, {"metadata": {"finalizers": None}})
            await self.client.delete(resource, key)


def unreachable_remedy(cluster: str) -> str:
    """What to do about a cluster that cannot clean up."""
    return (
        " The cluster cannot clean up: it is not available. If it no longer exists, run"
        f" `knfleet detach {cluster} --force`, or annotate the ManagedCluster with"
        f" {FORCE_DETACH}=10m."
    )
