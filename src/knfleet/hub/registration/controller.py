"""The controller of ManagedClusters: one pass makes the hub right for one cluster.

finalizers, default set, taints → rights or their loss → conditions → when to look again
"""

from collections.abc import Iterable, Sequence
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
from knfleet.apply.manifest_fields import part
from knfleet.hub.context import HubContext, cluster_request, patch_cluster, plain
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.registration.acceptance import RESYNC_SECONDS, Acceptance
from knfleet.hub.registration.deletion import ClusterDeletion
from knfleet.hub.registration.lease import (
    LeaseObservation,
    availability,
    clock,
    same_taints,
    seconds_until_expired,
    taints,
)
from knfleet.hub.registration.rights import RULES
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import ApiError, Conflict
from knfleet.runtime.controller import Result

CONFLICT_SECONDS = 0.05
DRAIN_SECONDS = 30.0
"""When to look again whether a denied cluster has works left; they are watched besides."""


class ManagedClusterController:
    """Reconciles ManagedClusters."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.registration = Acceptance(context)
        self.deletion = ClusterDeletion(context, self.registration)

    def watches(self) -> Sequence[Watch]:
        """Clusters, what is in their namespaces, their sets, and the configuration of the hub."""
        informers = self.context.informers
        return [
            Watch(informers.clusters.on_change, self.by_cluster),
            Watch(informers.leases.on_change, self.by_namespace),
            Watch(informers.access.on_change, self.by_namespace),
            Watch(informers.works.on_change, self.by_work),
            Watch(informers.sets.on_change, self.by_set),
            Watch(informers.managers.on_change, self.by_manager),
        ]

    def by_cluster(self, change: StoreChange) -> Iterable[Request]:
        yield cluster_request(change.key.name)

    def by_namespace(self, change: StoreChange) -> Iterable[Request]:
        yield cluster_request(change.key.namespace)

    def by_work(self, change: StoreChange) -> Iterable[Request]:
        """A work changed: its cluster may wait for it to be gone."""
        cluster = self.context.informers.clusters.get(Key("", change.key.namespace))
        if cluster is None:
            return
        is_leaving = bool(cluster["metadata"].get("deletionTimestamp"))
        is_denied = not part(cluster, "spec").get("hubAcceptsClient")
        if is_leaving or (is_denied and change.new is None):
            yield cluster_request(change.key.namespace)

    def by_set(self, change: StoreChange) -> Iterable[Request]:
        """A set changed: it may want namespaces on its clusters."""
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        if old != new:
            yield from (
                cluster_request(key.name)
                for key in list(self.context.informers.clusters.store.objects)
            )

    def by_manager(self, change: StoreChange) -> Iterable[Request]:
        """The settings changed: they say which finalizers clusters have."""
        yield from self.by_set(change)

    async def reconcile(self, request: Request) -> Result:
        """Make the hub right for one cluster."""
        name = request.key.name
        cluster = self.context.informers.cluster(name)
        if cluster is None:
            self.context.lease_observations.forget(name)
            self.registration.forget(name)
            return Result.never()
        try:
            return await self.reconcile_cluster(cluster)
        except Conflict:
            # The agent wrote meanwhile; what it wrote is on its way to us.
            return Result.after(CONFLICT_SECONDS)

    async def reconcile_cluster(self, cluster: ManagedCluster) -> Result:
        """Make the hub right for one cluster in the state that we know."""
        lease = self.context.informers.leases.get(Key(cluster.name, LEASE_NAME))
        if lease is None and cluster.metadata.deleting:
            self.context.lease_observations.forget(cluster.name)
        beat = self.context.lease_observations.observe(cluster, lease, self.context.now())
        if cluster.metadata.deleting:
            cluster = await self.report(cluster, beat, None)
            result = await self.deletion.step(cluster)
            waits = result.after_seconds is not None
            return result.within(self.requeue_seconds(cluster, beat)) if waits else result
        cluster = await self.set_defaults(cluster)
        error: ApiError | None = None
        settled = True
        try:
            if cluster.name == ALL_AGENTS:
                await self.registration.revoke_reserved(cluster)
            elif cluster.spec.hub_accepts_client:
                await self.registration.grant(cluster)
            else:
                settled = await self.registration.restrict(cluster)
        except ApiError as failed:
            error = failed
        cluster = await self.report(cluster, beat, error)
        if error is not None:
            raise error
        if not settled:
            return Result.after(DRAIN_SECONDS)
        return Result.after(self.requeue_seconds(cluster, beat))

    def requeue_seconds(self, cluster: ManagedCluster, beat: LeaseObservation | None) -> float:
        """Seconds until the cluster may be lost, or everything is to be applied again."""
        silent = seconds_until_expired(cluster, beat, self.context.now())
        return min(silent, RESYNC_SECONDS) if silent > 0 else RESYNC_SECONDS

    async def set_defaults(self, cluster: ManagedCluster) -> ManagedCluster:
        """Give a cluster the finalizers, set and taints that it should have."""
        patch = self.default_changes(cluster)
        if not patch:
            return cluster
        return decode(await patch_cluster(self.context.client, cluster, patch), ManagedCluster)

    def default_changes(self, cluster: ManagedCluster) -> Object:
        """What of a cluster's metadata and spec must change."""
        meta: dict[str, Any] = {}
        configuration = self.context.configuration
        finalizers = wanted_finalizers(cluster, cleans_up=configuration.cleans_up)
        if finalizers != cluster.metadata.finalizers:
            meta["finalizers"] = finalizers
        if configuration.has_default_sets and not cluster.metadata.labels.get(SET_LABEL):
            meta["labels"] = {SET_LABEL: DEFAULT_SET}
        patch: Object = {"metadata": meta} if meta else {}
        wanted = taints(cluster, self.context.now())
        if not same_taints(wanted, cluster.spec.taints):
            patch["spec"] = {"taints": plain(wanted)}
        return patch

    async def report(
        self, cluster: ManagedCluster, beat: LeaseObservation | None, error: ApiError | None
    ) -> ManagedCluster:
        """Write what the hub has to say about a cluster, if that is news."""
        old = cluster.status
        conditions = list(old.conditions)
        for condition in (
            acceptance(cluster, error),
            availability(cluster, beat, self.context.now()),
            clock(cluster, beat),
        ):
            if condition is not None:
                conditions = put(conditions, condition, self.context.now())
        namespaces = member_namespaces(cluster, self.context.informers.cluster_sets())
        patch: Object = {}
        if conditions != list(old.conditions):
            patch["conditions"] = plain(conditions)
        if namespaces != old.managed_namespaces:
            patch["managedNamespaces"] = plain(namespaces)
        if not patch:
            return cluster
        written = await patch_cluster(
            self.context.client, cluster, {"status": patch}, subresource="status"
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
            record = self.context.record_event if status == "True" else self.context.record_warning
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
    """What the hub says about having accepted a cluster; None before a decision."""
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


CONTROLLER = HubController("managedcluster", ManagedClusterController, RULES)
