"""Records which tunnels this replica has, and follows which ones others have.

A Lease is written when a tunnel opens and closes, and not between: whether the replica that it
names is there is seen when a stream is sent to it.
"""

from collections.abc import Callable
from datetime import datetime

from knfleet.api.cluster.tunnel import TUNNEL_LEASE
from knfleet.api.core import LEASES
from knfleet.api.meta import HUB, Key, Request
from knfleet.hub.tunnel.holder_lease import TunnelHolder, holder, holder_lease
from knfleet.hub.tunnel.tunnel_registry import TunnelRegistry
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, NotFound
from knfleet.runtime.controller import Controller, ControllerOptions, Result
from knfleet.runtime.queue import Backoff, QueueOptions

OPTIONS = ControllerOptions(queue=QueueOptions(backoff=Backoff(0.2, 30)), deadline_seconds=30)
MEASURED_SECONDS = 2.0
"""How long after it opened a tunnel's round-trip time is recorded."""


class HolderRecords:
    """The Leases of tunnels."""

    def __init__(
        self,
        client: Client,
        registry: TunnelRegistry,
        address: str,
        now: Callable[[], datetime],
    ) -> None:
        self.client = client
        self.registry = registry
        self.address = address
        self.now = now
        self.leases = Informer(
            client, LEASES, fields=f"metadata.name={TUNNEL_LEASE}", trim=without_managed_fields
        )
        self.controller = Controller("tunnelholder", self.reconcile, OPTIONS)
        self.leases.on_change(self.lease_changed)
        registry.changed = self.tunnel_changed

    def find(self, cluster: str) -> TunnelHolder | None:
        """Which replica has the tunnel of a cluster."""
        return holder(self.leases.get(Key(cluster, TUNNEL_LEASE)))

    def tunnel_changed(self, cluster: str) -> None:
        """A tunnel of ours opened or closed."""
        self.controller.queue.add(Request(HUB, Key("", cluster)))

    def lease_changed(self, change: StoreChange) -> None:
        """Another replica, or we, recorded something: the newest connection counts."""
        cluster = change.key.namespace
        held, tunnel = holder(change.new), self.registry.get(cluster)
        if tunnel is None:
            if held is not None and held.address == self.address:
                self.tunnel_changed(cluster)
        elif held is None or held.address == self.address:
            self.tunnel_changed(cluster)
        elif held.since > tunnel.since:
            self.registry.remove(tunnel)
            tunnel.retire()
        else:
            self.tunnel_changed(cluster)

    async def reconcile(self, request: Request) -> Result:
        """Record whether this replica has the tunnel of a cluster."""
        cluster = request.key.name
        found, tunnel = self.find(cluster), self.registry.get(cluster)
        if tunnel is None:
            if found is not None and found.address == self.address:
                patch = {"spec": {"holderIdentity": "", "acquireTime": None}}
                try:
                    await self.client.patch(LEASES, Key(cluster, TUNNEL_LEASE), patch)
                except (NotFound, Forbidden):
                    return Result.never()
            return Result.never()
        trip = tunnel.session.round_trip_seconds
        milliseconds = None if trip is None else max(1, round(trip * 1000))
        wanted = TunnelHolder(self.address, tunnel.since, milliseconds)
        is_recorded = found is not None and (found.address, found.since) == (
            wanted.address,
            wanted.since,
        )
        if not is_recorded or (found is not None and found.round_trip_milliseconds is None):
            await self.client.apply(LEASES, holder_lease(cluster, wanted))
        return Result.after(MEASURED_SECONDS) if milliseconds is None else Result.never()
