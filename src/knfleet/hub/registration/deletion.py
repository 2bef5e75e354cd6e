"""How a cluster leaves: add-ons first, then works by their priority, then its rights.

Works are removed by the cluster's agent. For a cluster that is gone for good, an annotation gives
them up after a time that the administrator chooses, and an Event names what is orphaned.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from msgspec import Struct

from knfleet.api.addon import ADDONS
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
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.context import HubContext, patch_cluster, plain, remove
from knfleet.hub.registration.acceptance import Acceptance
from knfleet.hub.registration.drivers.registry import DRIVERS
from knfleet.hub.registration.lease import as_moment
from knfleet.hub.registration.rbac import created_for
from knfleet.kube.errors import Conflict, NotFound
from knfleet.operator.settings import SettingError, duration_seconds
from knfleet.runtime.controller import Result

KINDS = (ADDONS, WORKS)
"""What is removed with a cluster, in this order."""
AGAIN_SECONDS = 1.0


class RemainingObjects(Struct, frozen=True):
    """What is still there of one kind."""

    resource: Resource
    items: list[Object]

    @property
    def words(self) -> str:
        """How many of what, for people."""
        names = ", ".join(each["metadata"]["name"] for each in self.items[:5])
        more = " …" if len(self.items) > 5 else ""
        return f"{len(self.items)} {self.resource.plural} ({names}{more})"


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
    wanted = cluster.metadata.annotations.get(FORCE_DETACH)
    if wanted is None:
        return False
    since = unreachable_since(cluster)
    if since is None:
        return False
    try:
        return (now - since).total_seconds() >= duration_seconds(wanted)
    except SettingError:
        return False


def unreachable_since(cluster: ManagedCluster) -> datetime | None:
    """Since when nothing is heard of a cluster; None while it is available."""
    said = find(cluster.status.conditions, AVAILABLE)
    if said is None:
        return as_moment(cluster.metadata.creation_timestamp)
    return None if said.status == "True" else as_moment(said.last_transition_time)


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
        """Do what can be done now, and say what is left."""
        finalizers = cluster.metadata.finalizers
        if not {API_FINALIZER, CLEANUP_FINALIZER}.intersection(finalizers):
            return Result.never()
        remaining = await self.remaining(cluster.name)
        if remaining is not None:
            await self.clear(cluster, remaining, cleans_up=CLEANUP_FINALIZER in finalizers)
            return Result.after(AGAIN_SECONDS)
        await self.registration.revoke(cluster.name)
        for driver in DRIVERS:
            await driver.clean_up(self.context, cluster.name)
        if cluster.metadata.annotations.get(DELETE_NAMESPACE) == "true":
            await self.delete_namespace(cluster)
        ours = (API_FINALIZER, CLEANUP_FINALIZER)
        kept = [each for each in finalizers if each not in ours]
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
            " make it for this cluster; delete it yourself if nobody uses it",
        )

    async def remaining(self, cluster: str) -> RemainingObjects | None:
        """What is left of the first kind of which something is."""
        for resource in KINDS:
            try:
                found = await self.client.list(resource, cluster, metadata_only=True)
            except NotFound:
                continue
            if found.items:
                return RemainingObjects(resource, list(found.items))
        return None

    async def clear(
        self, cluster: ManagedCluster, remaining: RemainingObjects, *, cleans_up: bool
    ) -> None:
        """Delete those objects whose turn it is, and say what is left."""
        if is_abandoned(cluster, self.context.now()):
            await self.abandon(cluster, remaining)
            return
        turn = next_group(remaining.items) if cleans_up else []
        for each in turn:
            if not each["metadata"].get("deletionTimestamp"):
                await remove(self.client, remaining.resource, Key.of(each))
        await self.write_condition(cluster, remaining, turn)

    async def write_condition(
        self, cluster: ManagedCluster, remaining: RemainingObjects, turn: list[Object]
    ) -> None:
        """Tell what is left, and what to do when it does not go."""
        waits = unreachable_since(cluster) is not None
        remedy = (
            " The cluster cannot clean up: it is not available. If it is gone for good, run"
            f" `knfleet detach {cluster.name} --force`, or annotate the ManagedCluster with"
            f" {FORCE_DETACH}=10m."
        )
        left = f"{remaining.words} left in namespace {cluster.name}"
        order = f", of which {len(turn)} are being deleted." if turn else "; delete them."
        said = StandardCondition(
            type=DELETING,
            status="False",
            reason="ResourceRemaining",
            message=left + order + (remedy if waits else ""),
        )
        old = cluster.status.conditions
        new = put(old, said, self.context.now())
        if new != old:
            patch = {"status": {"conditions": plain(new)}}
            await patch_cluster(self.client, cluster, patch, subresource="status")

    async def abandon(self, cluster: ManagedCluster, remaining: RemainingObjects) -> None:
        """Let go of what nobody cleans up any more, and name it."""
        for each in remaining.items:
            key = Key.of(each)
            try:
                await self.client.patch(remaining.resource, key, {"metadata": {"finalizers": None}})
            except NotFound:
                continue
            await remove(self.client, remaining.resource, key)
        self.context.record_warning(
            cluster,
            "Orphaned",
            f"given up without cleaning the cluster, because of {FORCE_DETACH}: {remaining.words}",
        )
