"""The controller of profiles: one for each accepted cluster wherever a set of its is bound."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from knfleet.api.cluster.clusterset import ManagedClusterSet
from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.api.inventory import PROFILES, ProfileStatus
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.schema import decode
from knfleet.hub.context import HubContext, remove
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.informers import is_in, labels_of
from knfleet.hub.profiles import cluster_profile
from knfleet.hub.profiles.cluster_profile import (
    TOKEN_LABEL,
    ClusterAccess,
    access_of,
    digest,
    is_ours,
)
from knfleet.hub.profiles.profile_namespaces import NotOurs, ProfileNamespaces
from knfleet.hub.profiles.rights import RULES
from knfleet.hub.profiles.tunnel_access import reach_properties, through_tunnel, tunnel_mode
from knfleet.hub.registration.rbac import ACCESS_SECRET
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Conflict, Forbidden, Invalid
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log


class WrittenProfile(Struct, frozen=True):
    """What we last wrote to a profile."""

    profile: Object
    status: str
    resource_version: str


class ProfileAccess(Struct, frozen=True):
    """How consumers of a profile get to its cluster, and what it says about that."""

    access: ClusterAccess | None
    reach: dict[str, str]


class ClusterProfileController:
    """Reconciles the profile of one cluster in one namespace; the key has both names."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.tunnel = context.tunnel
        self.namespaces = ProfileNamespaces(context.client, context.lifetime)
        self.written: dict[Key, WrittenProfile] = {}

    def watches(self) -> Sequence[Watch]:
        """Clusters, sets and bindings, what agents hand over, and what is published."""
        informers = self.context.informers
        return [
            Watch(informers.clusters.on_change, self.by_cluster),
            Watch(informers.access.on_change, self.by_access),
            Watch(informers.bindings.on_change, self.by_binding),
            Watch(informers.sets.on_change, self.by_set),
            Watch(informers.profiles.on_change, self.by_profile),
            Watch(self.namespaces.on_change, self.by_secret),
            *self.tunnel_watches(),
        ]

    def tunnel_watches(self) -> Sequence[Watch]:
        """Routes of all clusters, and tunnels as they open and close."""
        if self.tunnel is None:
            return []
        return [
            Watch(self.tunnel.on_change, self.by_tunnel),
            Watch(self.tunnel.on_holder_change, self.by_access),
        ]

    def by_cluster(self, change: StoreChange) -> Iterable[Request]:
        """A cluster changed: its profiles, wherever they are or should be."""
        name = change.key.name
        places = set(self.context.informers.bound_sets())
        there = self.context.informers.profiles.by_index("cluster", name)
        places.update(each["metadata"]["namespace"] for each in there)
        yield from (Request(HUB, Key(place, name)) for place in sorted(places))

    def by_access(self, change: StoreChange) -> Iterable[Request]:
        """An agent handed over access, or its tunnel changed: both are in its namespace."""
        name = change.key.namespace
        yield from (Request(HUB, Key(place, name)) for place in self.context.informers.bound_sets())

    def by_binding(self, change: StoreChange) -> Iterable[Request]:
        """A binding changed: all profiles of its namespace."""
        spec = [(each or {}).get("spec") for each in (change.old, change.new)]
        if spec[0] != spec[1]:
            yield from self.everything_in(change.key.namespace)

    def by_set(self, change: StoreChange) -> Iterable[Request]:
        """A set changed: all profiles of the namespaces that it is bound in."""
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        if old == new:
            return
        for manifest in self.context.informers.bindings.items():
            if manifest["spec"]["clusterSet"] == change.key.name:
                yield from self.everything_in(manifest["metadata"]["namespace"])

    def by_profile(self, change: StoreChange) -> Iterable[Request]:
        yield Request(HUB, change.key)

    def by_secret(self, change: StoreChange) -> Iterable[Request]:
        """A Secret changed beside profiles."""
        known = self.context.informers.profiles.get(change.key)
        if known is not None or (change.new and TOKEN_LABEL in labels_of(change.new)):
            yield Request(HUB, change.key)

    def by_tunnel(self, _change: StoreChange) -> Iterable[Request]:
        """Routing keys or certificates of the tunnel changed: all profiles."""
        for namespace in self.context.informers.bound_sets():
            yield from self.everything_in(namespace)

    def everything_in(self, namespace: str) -> Iterable[Request]:
        """All profiles that a namespace has or should have."""
        names = {key.name for key in self.context.informers.clusters.store.objects}
        there = (key for key in self.context.informers.profiles.store.objects)
        names.update(key.name for key in there if key.namespace == namespace)
        yield from (Request(HUB, Key(namespace, name)) for name in sorted(names))

    async def reconcile(self, request: Request) -> Result:
        """Make one profile right, or remove it."""
        key = request.key
        cluster = self.context.informers.cluster(key.name)
        sets = self.context.informers.bound_sets().get(key.namespace, [])
        try:
            if cluster is None or not is_published(cluster, sets):
                await self.withdraw(key, bound=bool(sets))
                return Result.never()
            return await self.publish(key, cluster)
        except Conflict:
            return Result.after(0.05)

    async def publish(self, key: Key, cluster: ManagedCluster) -> Result:
        """Write a cluster's profile, its status, and the copy of its token."""
        there = self.context.informers.profiles.get(key)
        if there is not None and not is_ours(there):
            self.report_conflict(
                key, f"ClusterProfile {key} exists and is not managed by knfleet; it is not changed"
            )
            return Result.never()
        now = self.context.now()
        secret = self.context.informers.access.get(Key(cluster.name, ACCESS_SECRET))
        access = access_of(cluster, secret, now)
        direct = access
        if direct is not None:
            access = await self.reached(key, direct, secret)
        reach: dict[str, str] = {}
        if self.tunnel is not None and access is not None:
            held = self.tunnel.holder(key.name)
            reach = reach_properties(by_tunnel=access is not direct, held=held)
        written = await self.write(key, cluster, ProfileAccess(access, reach), there)
        if access is not None and access.token:
            await self.copy(cluster_profile.token_copy(written, access))
        else:
            await self.namespaces.erase(key)
        if access is None or access.expires is None:
            return Result.never()
        return Result.after((access.expires - now).total_seconds())

    async def reached(
        self, key: Key, access: ClusterAccess, secret: Object | None
    ) -> ClusterAccess | None:
        """How consumers get to a cluster: directly, through the tunnel, or not at all."""
        mode = tunnel_mode(secret)
        if mode == "never":
            return access
        # An agent that always wants the tunnel handed over no other address.
        otherwise = None if mode == "always" else access
        if self.tunnel is None:
            return otherwise
        if not access.authorities:
            # With the tunnel's CA alone, a consumer would not trust the machine's own any more.
            log.warning("no tunnel for a cluster without a CA of its own", cluster=key.name)
            return otherwise
        route = self.tunnel.route(key.name, key.namespace)
        if route is None or (mode == "auto" and await self.tunnel.is_direct(access)):
            return otherwise
        return through_tunnel(access, secret, route)

    async def write(
        self, key: Key, cluster: ManagedCluster, offered: ProfileAccess, there: Object | None
    ) -> Object:
        """Write a profile and its status, unless they are as we wrote them; the profile."""
        observed = decode((there or {}).get("status") or {}, ProfileStatus)
        wanted = cluster_profile.profile(key.namespace, cluster)
        now = self.context.now()
        status = cluster_profile.status(
            key,
            cluster,
            access=offered.access,
            observed=observed,
            now=now,
            reach=offered.reach,
        )
        known, content = self.written.get(key), digest(status)
        if (
            there is None
            or known is None
            or (known.profile, known.resource_version)
            != (wanted, there["metadata"]["resourceVersion"])
        ):
            await self.client.apply(PROFILES, wanted)
        elif known.status == content:
            return there
        identity = {name: wanted[name] for name in ("apiVersion", "kind")}
        meta = {"name": key.name, "namespace": key.namespace}
        whole = {**identity, "metadata": meta, "status": status}
        made = await self.client.apply(PROFILES, whole, subresource="status")
        self.written[key] = WrittenProfile(wanted, content, made["metadata"]["resourceVersion"])
        return made

    async def copy(self, manifest: Object) -> None:
        """Write the copy of a token, unless another client has a Secret there."""
        try:
            await self.namespaces.write(manifest)
        except NotOurs as error:
            self.report_conflict(Key.of(manifest), str(error))

    async def withdraw(self, key: Key, *, bound: bool) -> None:
        """Remove a profile of ours and its token; and when it was the last, our right there."""
        self.written.pop(key, None)
        there = self.context.informers.profiles.get(key)
        if there is not None and is_ours(there):
            with suppress(Forbidden, Invalid, TimeoutError):
                # Where we lost the right to Secrets, or get it no more because no set is bound,
                # the garbage collector takes the copy together with the profile.
                await self.namespaces.erase(key)
            await remove(self.client, PROFILES, key)
        if not bound and not self.publishes_in(key.namespace, other_than=key):
            await self.namespaces.leave(key.namespace)

    def publishes_in(self, namespace: str, *, other_than: Key) -> bool:
        return any(
            key.namespace == namespace and key != other_than and is_ours(manifest)
            for key, manifest in self.context.informers.profiles.store.objects.items()
        )

    def report_conflict(self, key: Key, message: str) -> None:
        """Tell that something stands in the way of a profile."""
        log.warning("profile not complete", profile=str(key), reason=message)
        cluster = self.context.informers.cluster(key.name)
        if cluster is not None:
            self.context.record_warning(cluster, "ProfileBlocked", message)


def is_published(cluster: ManagedCluster, sets: Iterable[ManagedClusterSet]) -> bool:
    """Whether a cluster has a profile where these sets are bound."""
    return (
        cluster.spec.hub_accepts_client
        and not cluster.metadata.deleting
        and is_in(cluster.metadata.labels, sets)
    )


CONTROLLER = HubController("clusterprofile", ClusterProfileController, RULES)
