"""Acceptance and denial: which objects of a cluster are there, before that is reported."""

import asyncio
import time
from contextlib import suppress

from msgspec import Struct

from knfleet.api.cluster.managedcluster import ACCEPTED, LEASE_NAME, ManagedCluster
from knfleet.api.conditions import find
from knfleet.api.core import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    LEASES,
    NAMESPACES,
    ROLE_BINDINGS,
    SECRETS,
)
from knfleet.api.meta import Key, Object
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.context import HubContext, remove
from knfleet.hub.registration import rbac
from knfleet.hub.registration.rbac import ACCESS_ROLE, ACCESS_SECRET, REGISTRATION_ROLE, WORK_ROLE
from knfleet.kube.errors import Conflict, Invalid, NotFound

RESYNC_SECONDS = 300.0
"""So often is everything applied again, in case that a client changed it."""


class GrantedRights(Struct, frozen=True):
    """What a cluster was last given."""

    uid: str
    accepted: bool
    at: float


class Acceptance:
    """Gives clusters what they may have, and takes it away again."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.granted: dict[str, GrantedRights] = {}
        self.shared_at = float("-inf")
        self.sharing = asyncio.Lock()
        self.dropped = False
        """Whether roles of older releases are gone."""

    def forget(self, cluster: str) -> None:
        self.granted.pop(cluster, None)

    def is_granted(self, cluster: ManagedCluster) -> bool:
        """Whether all that a cluster should have was given to it not long ago."""
        known = self.granted.get(cluster.name)
        return (
            known is not None
            and (known.uid, known.accepted)
            == (cluster.metadata.uid, cluster.spec.hub_accepts_client)
            and time.monotonic() - known.at < RESYNC_SECONDS
        )

    async def remember(self, cluster: ManagedCluster) -> None:
        """All that a cluster should have was given to it."""
        accepted = cluster.spec.hub_accepts_client
        self.granted[cluster.name] = GrantedRights(cluster.metadata.uid, accepted, time.monotonic())
        await self.drop_old_roles()

    async def grant(self, cluster: ManagedCluster) -> None:
        """Make everything that an accepted cluster has.

        The Lease comes before the rights: by it a hub that restarts knows that there may be some.
        """
        name = cluster.name
        is_granted = self.is_granted(cluster)
        if not is_granted:
            await self.make_namespace(cluster)
        if self.lease(name) is None:
            await self.client.apply(LEASES, rbac.lease(name, self.context.now()))
        if self.context.informers.access.get(Key(name, ACCESS_SECRET)) is None:
            await self.client.apply(SECRETS, rbac.access_secret(name))
        if not is_granted:
            await self.share_roles()
            await self.client.apply(CLUSTER_ROLES, rbac.cluster_role(name, accepted=True))
            await asyncio.gather(
                self.client.apply(CLUSTER_ROLE_BINDINGS, rbac.cluster_role_binding(name)),
                *(self.bind(each) for each in rbac.role_bindings(name)),
            )
            await self.remember(cluster)

    async def make_namespace(self, cluster: ManagedCluster) -> None:
        """Make a cluster's namespace, or label the one that is there.

        Only one that we made carries the cluster's uid, so that no other is ever deleted.
        """
        name, uid = cluster.name, cluster.metadata.uid
        try:
            found = await self.client.get(NAMESPACES, name)
        except NotFound:
            await self.client.create(NAMESPACES, rbac.namespace(name, created_for=uid))
            return
        if rbac.created_for(found) not in ("", uid):
            made = rbac.namespace(name, created_for=uid)
            await self.client.patch(NAMESPACES, Key("", name), {"metadata": made["metadata"]})
        await self.client.apply(NAMESPACES, rbac.namespace(name))

    def lease(self, cluster: str) -> Object | None:
        """The Lease of a cluster, as far as we know."""
        return self.context.informers.leases.get(Key(cluster, LEASE_NAME))

    async def share_roles(self) -> None:
        """Make the roles that all clusters share, once in a while."""
        async with self.sharing:
            if time.monotonic() - self.shared_at >= RESYNC_SECONDS:
                for each in rbac.shared_roles():
                    await self.client.apply(CLUSTER_ROLES, each)
                self.shared_at = time.monotonic()

    async def bind(self, binding: Object) -> None:
        """Bind a shared role; a binding of an older release's role is replaced."""
        try:
            await self.client.apply(ROLE_BINDINGS, binding)
        except Invalid:
            await self.unbind(Key.of(binding))
            await self.client.apply(ROLE_BINDINGS, binding)

    async def drop_old_roles(self) -> None:
        """Delete the shared roles of older releases, when no cluster has them any more."""
        if self.dropped or len(self.granted) < len(self.context.informers.clusters.store.objects):
            return
        for name in rbac.OLD_SHARED_ROLES:
            with suppress(NotFound, Conflict):
                found = await self.client.get(CLUSTER_ROLES, name)
                if rbac.is_shared(found):
                    uid = found["metadata"]["uid"]
                    await self.client.delete(CLUSTER_ROLES, Key("", name), uid=uid)
        self.dropped = True

    async def restrict(self, cluster: ManagedCluster) -> bool:
        """Leave a cluster that is not accepted only the sight of itself.

        True when nothing is left to do: the rights to works stay for as long as there are works.
        """
        name = cluster.name
        if self.is_granted(cluster):
            return True
        await self.client.apply(CLUSTER_ROLES, rbac.cluster_role(name, accepted=False))
        await self.client.apply(CLUSTER_ROLE_BINDINGS, rbac.cluster_role_binding(name))
        was_accepted = find(cluster.status.conditions, ACCEPTED) is not None
        if (was_accepted or self.lease(name) is not None) and not await self.withdraw(name):
            return False
        await self.remember(cluster)
        return True

    async def revoke_reserved(self, cluster: ManagedCluster) -> None:
        """Take everything from a cluster whose rights would be those of others."""
        if not self.is_granted(cluster):
            await self.revoke(cluster.name)
            await self.remember(cluster)

    async def withdraw(self, name: str) -> bool:
        """Take from a cluster what it got when it was accepted; False while it has works."""
        names = rbac.binding_names(name)
        await remove(self.client, ROLE_BINDINGS, Key(name, names[REGISTRATION_ROLE]))
        await remove(self.client, ROLE_BINDINGS, Key(name, names[ACCESS_ROLE]))
        await remove(self.client, SECRETS, Key(name, ACCESS_SECRET))
        if await self.has_works(name):
            return False
        await self.release_work_binding(name)
        return True

    async def revoke(self, cluster: str) -> None:
        """Take everything away from a cluster but its namespace."""
        await self.release_work_binding(cluster)
        for role in (REGISTRATION_ROLE, ACCESS_ROLE):
            name = rbac.binding_names(cluster)[role]
            await remove(self.client, ROLE_BINDINGS, Key(cluster, name))
        await remove(self.client, SECRETS, Key(cluster, ACCESS_SECRET))
        await remove(self.client, LEASES, Key(cluster, LEASE_NAME))
        await remove(self.client, CLUSTER_ROLE_BINDINGS, Key("", rbac.role_name(cluster)))
        await remove(self.client, CLUSTER_ROLES, Key("", rbac.role_name(cluster)))
        self.forget(cluster)

    async def has_works(self, cluster: str) -> bool:
        """Whether a cluster has works left; that it has none is asked of the API server."""
        if self.context.informers.works_of(cluster):
            return True
        try:
            found = await self.client.list(WORKS, cluster, metadata_only=True)
        except NotFound:
            return False
        return bool(found.items)

    async def release_work_binding(self, cluster: str) -> None:
        """Remove the binding that lets an agent clean up its works, and what keeps it."""
        await self.unbind(Key(cluster, rbac.binding_names(cluster)[WORK_ROLE]))

    async def unbind(self, key: Key) -> None:
        """Remove a binding, and what keeps it."""
        try:
            await self.client.patch(ROLE_BINDINGS, key, {"metadata": {"finalizers": None}})
        except NotFound:
            return
        await remove(self.client, ROLE_BINDINGS, key)
