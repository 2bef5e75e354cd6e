"""The tunnels that are open on this replica: the newest of each cluster gets all new streams.

A tunnel that is replaced keeps the streams that it has for a while. One whose cluster is denied or
deleted, or whose certificate expires, ends at once with all its streams.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.hub.tunnel.agent_identity import AgentIdentity, denial, is_issued_by
from knfleet.runtime.logs import log
from knfleet.runtime.mux.frames import GoAwayCode
from knfleet.runtime.mux.session import MuxLimits, MuxSession
from knfleet.runtime.mux.stream import MuxStream

REPLACED_SECONDS = 60.0
"""How long streams of a tunnel that was replaced may go on."""
PER_CLUSTER = 8
"""So many connections may a cluster have: the newest, and those that were replaced."""
LONGEST_TIMER_SECONDS = 24 * 3600.0

FindCluster = Callable[[str], ManagedCluster | None]
Changed = Callable[[str], None]


class TunnelStatus(Struct, frozen=True):
    """What is known of an open tunnel."""

    cluster: str
    agent: str
    since: datetime
    address: str
    """Where the agent's connection comes from."""
    round_trip_seconds: float | None
    streams: int
    bytes_sent: int
    bytes_received: int


class AgentTunnel:
    """One connection of an agent; the owner of its session."""

    def __init__(self, registry: "TunnelRegistry", limits: MuxLimits) -> None:
        self.registry = registry
        self.session = MuxSession(self, opens=True, limits=limits)
        self.identity: AgentIdentity | None = None
        self.address = ""
        self.since = registry.now()
        self.expiry: asyncio.TimerHandle | None = None
        self.retirement: asyncio.TimerHandle | None = None

    def connected(self, session: MuxSession) -> None:
        """The TLS handshake is done: see who it is."""
        self.registry.identify(self)

    def greeted(self, session: MuxSession, hello: bytes) -> None:
        """From now on the agent answers."""
        self.registry.add(self)

    def requested(self, stream: MuxStream) -> None:
        """Never called: agents open no streams."""

    def draining(self, session: MuxSession, code: int, reason: str) -> None:
        """The agent ends."""
        self.registry.remove(self)

    def ended(self, session: MuxSession, reason: str) -> None:
        """The connection is over."""
        for timer in (self.expiry, self.retirement):
            if timer is not None:
                timer.cancel()
        self.registry.remove(self)
        self.registry.connections.pop(self, None)
        if self.identity is not None:
            log.info("tunnel closed", cluster=self.identity.cluster, reason=reason)

    def deny(self, reason: str) -> None:
        """End the tunnel and its streams, and tell the agent why."""
        name = "" if self.identity is None else self.identity.cluster
        log.warning("tunnel denied", cluster=name, address=self.address, reason=reason)
        self.registry.remove(self)
        self.session.drain(GoAwayCode.DENIED, reason)
        self.session.end_streams(reason)

    def retire(self) -> None:
        """A newer tunnel takes new streams."""
        self.session.drain(GoAwayCode.REPLACED, "a newer connection of this cluster is open")
        if not self.session.is_over:
            loop = asyncio.get_running_loop()
            self.retirement = loop.call_later(
                REPLACED_SECONDS, self.session.abort, "replaced by a newer connection"
            )

    def status(self) -> TunnelStatus:
        """What is known of this tunnel."""
        assert self.identity is not None
        session = self.session
        return TunnelStatus(
            self.identity.cluster,
            self.identity.agent,
            self.since,
            self.address,
            session.round_trip_seconds,
            len(session.streams),
            session.bytes_sent,
            session.bytes_received,
        )


class TunnelRegistry:
    """All tunnels of this replica."""

    def __init__(
        self,
        cluster: FindCluster,
        now: Callable[[], datetime],
        *,
        identify: Callable[[MuxSession], AgentIdentity],
        changed: Changed | None = None,
    ) -> None:
        self.cluster = cluster
        self.now = now
        self.identity_of = identify
        self.changed: Changed = changed or ignore
        self.tunnels: dict[str, AgentTunnel] = {}
        self.connections: dict[AgentTunnel, None] = {}
        """The oldest first, with those that were replaced and those that have not greeted."""

    def identify(self, tunnel: AgentTunnel) -> None:
        """A new connection: decide whether it may stay."""
        self.connections[tunnel] = None
        transport = tunnel.session.transport
        assert transport is not None
        peer = transport.get_extra_info("peername")
        tunnel.address = f"{peer[0]}:{peer[1]}" if peer else ""
        try:
            tunnel.identity = self.identity_of(tunnel.session)
        except Exception as error:  # noqa: BLE001  whatever a certificate holds
            tunnel.deny(str(error) or type(error).__name__)
            return
        if reason := self.denial(tunnel):
            tunnel.deny(reason)
            return
        self.make_room(tunnel.identity.cluster)
        self.watch_expiry(tunnel)

    def make_room(self, cluster: str) -> None:
        """End the oldest connections of a cluster that has too many: the hub's are limited."""
        own = [
            each
            for each in self.connections
            if each.identity is not None and each.identity.cluster == cluster
        ]
        for each in own[:-PER_CLUSTER]:
            each.session.abort(f"the cluster has {PER_CLUSTER} newer connections")

    def denial(self, tunnel: AgentTunnel) -> str:
        """Why a tunnel may not be; empty when it may."""
        assert tunnel.identity is not None
        return denial(tunnel.identity, self.cluster(tunnel.identity.cluster), self.now())

    def watch_expiry(self, tunnel: AgentTunnel) -> None:
        """Look again when the certificate expires."""
        assert tunnel.identity is not None
        seconds = (tunnel.identity.expires - self.now()).total_seconds()
        tunnel.expiry = asyncio.get_running_loop().call_later(
            min(max(0.05, seconds), LONGEST_TIMER_SECONDS), self.check, tunnel
        )

    def check(self, tunnel: AgentTunnel) -> None:
        """End a tunnel that may not be any more."""
        if tunnel.session.is_over or tunnel.identity is None:
            return
        if reason := self.denial(tunnel):
            tunnel.deny(reason)
        else:
            if tunnel.expiry is not None:
                tunnel.expiry.cancel()
            self.watch_expiry(tunnel)

    def cluster_changed(self, name: str) -> None:
        """A ManagedCluster changed or was deleted."""
        for tunnel in list(self.connections):
            if tunnel.identity is not None and tunnel.identity.cluster == name:
                self.check(tunnel)

    def authorities_changed(self, authorities: bytes) -> None:
        """The hub trusts other CAs than before: end tunnels whose certificates it would refuse."""
        for tunnel in list(self.connections):
            transport = tunnel.session.transport
            tls = None if transport is None else transport.get_extra_info("ssl_object")
            certificate = None if tls is None else tls.getpeercert(binary_form=True)
            if certificate is None or not is_issued_by(certificate, authorities):
                tunnel.deny("the hub does not trust the CA of the certificate any more")

    def add(self, tunnel: AgentTunnel) -> None:
        """A tunnel is ready: it takes the place of an older one."""
        if tunnel.identity is None or tunnel.session.drained_here:
            return
        name = tunnel.identity.cluster
        older = self.tunnels.get(name)
        self.tunnels[name] = tunnel
        log.info("tunnel open", cluster=name, agent=tunnel.identity.agent, address=tunnel.address)
        if older is not None:
            older.retire()
        tunnel.session.ping()
        self.changed(name)

    def remove(self, tunnel: AgentTunnel) -> None:
        """A tunnel gets no new streams."""
        name = "" if tunnel.identity is None else tunnel.identity.cluster
        if self.tunnels.get(name) is tunnel:
            del self.tunnels[name]
            self.changed(name)

    def get(self, cluster: str) -> AgentTunnel | None:
        """The tunnel for new streams to a cluster."""
        return self.tunnels.get(cluster)

    def drain(self) -> None:
        """The process ends: agents connect elsewhere, streams go on while there is time."""
        for tunnel in list(self.connections):
            tunnel.session.drain(GoAwayCode.STOPPING, "the hub stops")

    def abort(self) -> None:
        """End everything."""
        for tunnel in list(self.connections):
            tunnel.session.abort("the hub stops")


def ignore(_cluster: str) -> None:
    """Nobody wants to know."""
