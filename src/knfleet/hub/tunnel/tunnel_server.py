"""The tunnel as a part of every replica of a hub: its ports, and what they trust and show.

All of it follows objects of the hub: the client CA of its API server, the Secret with the
certificate of the ports, the Secret behind routing keys, ManagedClusters and ClusterProfiles.
"""

import asyncio
import ssl
from collections.abc import Callable
from datetime import datetime

from msgspec import Struct
from yarl import URL

from knfleet.api.cluster.tunnel import KEY_SECRET, TUNNEL_SECRET
from knfleet.api.core import CONFIG_MAPS, SECRETS
from knfleet.api.meta import Key
from knfleet.hub.certificates.port_certificates import PortCertificates
from knfleet.hub.informers import HubInformers
from knfleet.hub.tunnel.agent_listener import (
    AgentListener,
    agent_context,
    peer_identity,
    server_context,
)
from knfleet.hub.tunnel.front.connect_request import ConnectRequest
from knfleet.hub.tunnel.front.forward import forward
from knfleet.hub.tunnel.front.front_authorizer import FrontAuthorizer
from knfleet.hub.tunnel.front.tunnel_front import TunnelFront, TunnelRoutes
from knfleet.hub.tunnel.holder_records import HolderRecords
from knfleet.hub.tunnel.key_secret import RoutingSecrets, routing_secrets
from knfleet.hub.tunnel.tunnel_registry import TunnelRegistry
from knfleet.kube.auth.tls import trusting
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.logs import log
from knfleet.runtime.mux.splice import SpliceSide

CLIENT_CA = Key("kube-system", "extension-apiserver-authentication")
"""Where every API server publishes by which CA it knows its clients."""
CLIENT_CA_FILE = "client-ca-file"


class TunnelOptions(Struct, frozen=True):
    """How the tunnel is set up."""

    agents: ListenAddress
    """Where agents connect to."""
    consumers: ListenAddress
    """Where consumers connect to."""
    endpoint: str
    """The address of the first as agents reach it: host:port."""
    front: str
    """The address of the second as consumers reach it: https://host:port."""
    server_name: str
    """The name by which agents and other replicas verify the ports."""
    namespace: str
    """Where the tunnel's Secrets and its ConfigMap are."""
    replica: str = ""
    """Where other replicas reach the front of this one: host:port; its own when empty."""

    @property
    def replica_address(self) -> str:
        """By which other replicas know this one."""
        return self.replica or f"{self.consumers.host or '127.0.0.1'}:{self.consumers.port}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the certificate of both ports."""
        return tuple(dict.fromkeys((self.server_name, URL(self.front).host or self.server_name)))


class TunnelServer:
    """The tunnel of one replica."""

    def __init__(
        self,
        client: Client,
        informers: HubInformers,
        options: TunnelOptions,
        now: Callable[[], datetime],
    ) -> None:
        self.options = options
        self.informers = informers
        self.client_ca = Informer(
            client, CONFIG_MAPS, CLIENT_CA.namespace, fields=f"metadata.name={CLIENT_CA.name}"
        )
        self.secret = Informer(
            client, SECRETS, options.namespace, fields=f"metadata.name={TUNNEL_SECRET}"
        )
        self.key_secret = Informer(
            client, SECRETS, options.namespace, fields=f"metadata.name={KEY_SECRET}"
        )
        self.trusted = ""
        """The CAs of agents, as PEM."""
        self.certificates: PortCertificates | None = None
        """What the ports show, and by which CAs they are verified."""
        self.registry = TunnelRegistry(informers.cluster, now, identify=peer_identity)
        self.listener = AgentListener(self.registry, options.agents)
        authorizer = FrontAuthorizer(client, informers, self.keys)
        self.records = HolderRecords(client, self.registry, options.replica_address, now)
        self.peers: ssl.SSLContext | None = None
        """How the fronts of other replicas are verified."""
        routes = TunnelRoutes(self.registry, self.forward)
        self.front = TunnelFront(routes.connect, authorizer, options.consumers)
        informers.clusters.on_change(self.cluster_changed)
        for informer in (self.client_ca, self.secret):
            informer.on_change(self.material_changed)

    @property
    def watched(self) -> list[Informer]:
        """What is followed beside what the hub follows anyway."""
        return [self.client_ca, self.secret, self.key_secret, self.records.leases]

    def keys(self) -> RoutingSecrets | None:
        """The secrets behind routing keys."""
        return routing_secrets(self.key_secret.get(Key(self.options.namespace, KEY_SECRET)))

    def cluster_changed(self, change: StoreChange) -> None:
        """A ManagedCluster changed: its tunnel may have to end."""
        self.registry.cluster_changed(change.key.name)

    def material_changed(self, _change: StoreChange) -> None:
        """Certificates changed: new connections use them, those that are open stay."""
        secret = self.secret.get(Key(self.options.namespace, TUNNEL_SECRET))
        found = self.certificates = PortCertificates.of(secret) or self.certificates
        data: dict[str, str] = (self.client_ca.get(CLIENT_CA) or {}).get("data") or {}
        clients = data.get(CLIENT_CA_FILE, "")
        try:
            if found is not None:
                self.front.context = server_context(found)
                self.peers = trusting(found.bundle)
                if clients:
                    self.listener.context = agent_context(found, clients.encode())
            if clients != self.trusted:
                self.trusted = clients
                self.registry.authorities_changed(clients.encode())
        except (KubeError, ValueError) as error:
            log.error("the tunnel's certificates cannot be used", error=str(error))

    async def run(self) -> None:
        """Serve until cancelled; at the end agents are asked to connect elsewhere."""
        await self.informers.synced()
        await self.listener.open()
        await self.front.open()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.listener.run())
                group.create_task(self.front.run())
                group.create_task(self.records.controller.run())
        finally:
            self.registry.drain()

    async def forward(self, request: ConnectRequest, side: SpliceSide) -> bool:
        """Connect through the replica that has the tunnel of a cluster; False when none has."""
        held = self.records.find(request.cluster)
        if held is None or self.peers is None or held.address == self.options.replica_address:
            return False
        await forward(request, held.address, self.peers, self.options.server_name, side)
        return True
