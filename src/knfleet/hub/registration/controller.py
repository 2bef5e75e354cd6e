"""The controller of ManagedClusters: one pass makes the hub right for one cluster.

finalizers, default set, taints → rights or their loss → conditions → when to look again
"""

from collections.abc import Iterable
from typing import Any

from knfleet.api.cluster.clusterset import DEFAULT_SET, ManagedClusterSet
from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    ALL_AGENTS,
    API_FINALIZER,
    AVAILABLE,
    CLEANUP_FINALIZER,
    LEASE_NAME,
    SET_LABEL,
    ManagedCluster,
    MemberNamespace,
)
from knfleet.api.conditions import StandardCondition, find, put
from knfleet.api.meta import Key, Object, Request
from knfleet.api.schema import decode
from knfleet.apply.manifest_parts import part
from knfleet.hub.context import Parts, look_at, patch_cluster, plain
from knfleet.hub.registration.acceptance import RESYNC_SECONDS, Registration
from knfleet.hub.registration.deletion import Deletion
from knfleet.hub.registration.lease import Beat, availability, clock, same_taints, silent_in, taints
from knfleet.kube.cache.informer import Change
from knfleet.kube.errors import ApiError, Conflict
from knfleet.runtime.controller import Again

CONFLICT_SECONDS = 0.05
DRAIN_SECONDS = 30.0
"""When to look again whether a denied cluster has works left; they are watched besides."""


class Clusters:
    """Reconciles ManagedClusters."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.registration = Registration(parts)
        self.deletion = Deletion(parts, self.registration)

    def by_cluster(self, change: Change) -> Iterable[Request]:
        """A cluster changed."""
        yield look_at(change.key.name)

    def by_namespace(self, change: Change) -> Iterable[Request]:
        """Something in a cluster's namespace changed."""
        yield look_at(change.key.namespace)

    def by_work(self, change: Change) -> Iterable[Request]:
        """A work changed: its cluster may wait for it to be gone."""
        cluster = self.parts.views.clusters.get(Key("", change.key.namespace))
        if cluster is None:
            return
        is_leaving = bool(cluster["metadata"].get("deletionTimestamp"))
        is_denied = not part(cluster, "spec").get("hubAcceptsClient")
        if is_leaving or (is_denied and change.new is None):
            yield look_at(change.key.namespace)

    def by_set(self, change: Change) -> Iterable[Request]:
        """A set changed: it may want namespaces on its clusters."""
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        if old != new:
            yield from (look_at(key.name) for key in list(self.parts.views.clusters.store.objects))

    def by_manager(self, change: Change) -> Iterable[Request]:
        """The settings changed: they say which finalizers clusters have."""
        yield from self.by_set(change)

    async def reconcile(self, request: Request) -> Again:
        """Make the hub right for one cluster."""
        name = request.key.name
        cluster = self.parts.views.cluster(name)
        if cluster is None:
            self.parts.heartbeats.forget(name)
            self.registration.forget(name)
            return Again.never()
        try:
            return await self.make_right(cluster)
        except Conflict:
            # The agent wrote meanwhile; what it wrote is on its way to us.
            return Again.after(CONFLICT_SECONDS)

    async def make_right(self, cluster: ManagedCluster) -> Again:
        """Make the hub right for one cluster in the state that we know."""
        lease = self.parts.views.leases.get(Key(cluster.name, LEASE_NAME))
        if lease is None and cluster.metadata.deleting:
            self.parts.heartbeats.forget(cluster.name)
        beat = self.parts.heartbeats.observe(cluster, lease, self.parts.now())
        if cluster.metadata.deleting:
            cluster = await self.report(cluster, beat, None)
            again = await self.deletion.step(cluster)
            waits = again.after_seconds is not None
            return again.within(self.next_look(cluster, beat)) if waits else again
        cluster = await self.settle(cluster)
        error: ApiError | None = None
        settled = True
        try:
            if cluster.name == ALL_AGENTS:
                await self.registration.refuse(cluster)
            elif cluster.spec.hub_accepts_client:
                await self.registration.admit(cluster)
            else:
                settled = await self.registration.hold_off(cluster)
        except ApiError as failed:
            error = failed
        cluster = await self.report(cluster, beat, error)
        if error is not None:
            raise error
        if not settled:
            return Again.after(DRAIN_SECONDS)
        return Again.after(self.next_look(cluster, beat))

    def next_look(self, cluster: ManagedCluster, beat: Beat | None) -> float:
        """Seconds until the cluster may be lost, or everything is to be applied again."""
        silent = silent_in(cluster, beat, self.parts.now())
        return min(silent, RESYNC_SECONDS) if silent > 0 else RESYNC_SECONDS

    async def settle(self, cluster: ManagedCluster) -> ManagedCluster:
        """Give a cluster the finalizers, set and taints that it should have."""
        patch = self.settling(cluster)
        if not patch:
            return cluster
        return decode(await patch_cluster(self.parts.client, cluster, patch), ManagedCluster)

    def settling(self, cluster: ManagedCluster) -> Object:
        """What of a cluster's metadata and spec must change."""
        meta: dict[str, Any] = {}
        installation = self.parts.installation
        finalizers = wanted_finalizers(cluster, cleans_up=installation.cleans_up)
        if finalizers != cluster.metadata.finalizers:
            meta["finalizers"] = finalizers
        if installation.has_default_sets and not cluster.metadata.labels.get(SET_LABEL):
            meta["labels"] = {SET_LABEL: DEFAULT_SET}
        patch: Object = {"metadata": meta} if meta else {}
        wanted = taints(cluster, self.parts.now())
        if not same_taints(wanted, cluster.spec.taints):
            patch["spec"] = {"taints": plain(wanted)}
        return patch

    async def report(
        self, cluster: ManagedCluster, beat: Beat | None, error: ApiError | None
    ) -> ManagedCluster:
        """Write what the hub has to say about a cluster, if that is news."""
        old = cluster.status
        conditions = list(old.conditions)
        for said in (
            acceptance(cluster, error),
            availability(cluster, beat, self.parts.now()),
            clock(cluster, beat),
        ):
            if said is not None:
                conditions = put(conditions, said, self.parts.now())
        namespaces = member_namespaces(cluster, self.parts.views.cluster_sets())
        patch: Object = {}
        if conditions != list(old.conditions):
            patch["conditions"] = plain(conditions)
        if namespaces != old.managed_namespaces:
            patch["managedNamespaces"] = plain(namespaces)
        if not patch:
            return cluster
        written = await patch_cluster(
            self.parts.client, cluster, {"status": patch}, subresource="status"
        )
        self.announce(cluster, conditions)
        return decode(written, ManagedCluster)

    def announce(self, cluster: ManagedCluster, conditions: list[StandardCondition]) -> None:
        """Tell by Events what changed."""
        for type_, status, reason in (
            (AVAILABLE, "Unknown", "AvailableUnknown"),
            (ACCEPTED, "True", "HubClusterAdminAccepted"),
            (ACCEPTED, "False", "HubClusterAdminDenied"),
        ):
            old, new = find(cluster.status.conditions, type_), find(conditions, type_)
            if new is None or new.status != status or (old is not None and old.status == status):
                continue
            record = self.parts.tell if status == "True" else self.parts.warn
            record(cluster, reason, new.message)


def wanted_finalizers(cluster: ManagedCluster, *, cleans_up: bool) -> list[str]:
    """The finalizers that a cluster should have; those of others stay."""
    ours = [API_FINALIZER, CLEANUP_FINALIZER] if cleans_up else [API_FINALIZER]
    others = [
        each
        for each in cluster.metadata.finalizers
        if each not in (API_FINALIZER, CLEANUP_FINALIZER)
    ]
    kept = [each for each in cluster.metadata.finalizers if each in [*ours, *others]]
    return [*kept, *(each for each in ours if each not in kept)]


def acceptance(cluster: ManagedCluster, error: ApiError | None) -> StandardCondition | None:
    """What the hub says about having accepted a cluster; None while nobody decided."""
    if cluster.metadata.deleting:
        return None
    if cluster.name == ALL_AGENTS:
        return StandardCondition(
            type=ACCEPTED,
            status="False",
            reason="ReservedName",
            message=(
                "The name is reserved: what this cluster may do, all would. Delete the"
                " ManagedCluster, and have the cluster join by another name."
            ),
        )
    if not cluster.spec.hub_accepts_client:
        if find(cluster.status.conditions, ACCEPTED) is None:
            return None
        return StandardCondition(
            type=ACCEPTED,
            status="False",
            reason="HubClusterAdminDenied",
            message="The administrator of the hub does not accept the cluster.",
        )
    if error is not None:
        return StandardCondition(
            type=ACCEPTED, status="False", reason="Error", message=error.message
        )
    return StandardCondition(
        type=ACCEPTED,
        status="True",
        reason="HubClusterAdminAccepted",
        message="The administrator of the hub accepts the cluster.",
    )


def member_namespaces(
    cluster: ManagedCluster, sets: list[ManagedClusterSet]
) -> list[MemberNamespace]:
    """The namespaces that a cluster's sets want on it, with what its agent says about them."""
    known = {(each.cluster_set, each.name): each for each in cluster.status.managed_namespaces}
    wanted = sorted(
        (each.metadata.name, namespace.name)
        for each in sets
        if each.spec.managed_namespaces and each.has(cluster.metadata.labels)
        for namespace in each.spec.managed_namespaces
    )
    return [
        known.get((owner, name)) or MemberNamespace(name=name, cluster_set=owner)
        for owner, name in wanted
    ]
