"""Both ends of a tunnel in one process, over loopback, with certificates of their own."""

import asyncio
import base64
import ssl
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import cast

from knfleet.agent.tunnel.backoff import ReconnectPolicy
from knfleet.agent.tunnel.dial import TunnelEndpoint
from knfleet.agent.tunnel.tunnel_client import TunnelClient, TunnelConfig
from knfleet.agent.tunnel.tunnel_targets import tunnel_targets
from knfleet.api.cluster.managedcluster import GROUP_PREFIX, ManagedCluster
from knfleet.api.schema import decode
from knfleet.hub.certificates.port_certificates import PortCertificates, renewal
from knfleet.hub.tunnel.agent_listener import (
    AgentListener,
    ListenerLimits,
    agent_context,
    peer_identity,
    server_context,
)
from knfleet.hub.tunnel.front.connect_request import ConnectRequest
from knfleet.hub.tunnel.front.tunnel_front import FrontLimits, TunnelFront, TunnelRoutes
from knfleet.hub.tunnel.tunnel_registry import TunnelRegistry
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.mux.session import MuxLimits
from testbed.fakes.certificates import Authority, Pair
from testbed.fakes.sockets import free_port

NAME = "knfleet-tunnel.test"
"""What the hub's certificate is for."""
HASTE = ReconnectPolicy(0.02, 0.2, 0.5, 0.2)


class AnyPassword:
    """Lets everybody in; the password is the name."""

    async def authorize(self, request: ConnectRequest) -> str:
        return request.password


class TunnelHub:
    """The hub's end: the port of agents and the port of consumers."""

    def __init__(
        self,
        *,
        mux: MuxLimits | None = None,
        front: FrontLimits | None = None,
        listener: ListenerLimits | None = None,
    ) -> None:
        self.clients = Authority("clients")
        self.clusters: dict[str, ManagedCluster] = {}
        self.ahead = timedelta(0)
        self.registry = TunnelRegistry(
            self.clusters.get,
            lambda: datetime.now(UTC) + self.ahead,
            identify=peer_identity,
        )
        self.listener = AgentListener(
            self.registry, ListenAddress("127.0.0.1", free_port()), limits=listener, mux=mux
        )
        routes = TunnelRoutes(self.registry)
        address = ListenAddress("127.0.0.1", free_port())
        self.front = TunnelFront(routes.connect, AnyPassword(), address, front)
        self.present(renewal(None, (NAME, "localhost"), datetime.now(UTC)).certificates)

    def present(self, serving: PortCertificates) -> None:
        """Show certificates to those who connect from now on."""
        self.serving = serving
        self.listener.context = agent_context(serving, self.clients.pem)
        self.front.context = server_context(serving)

    def accept(self, name: str, *, accepted: bool = True, deleting: bool = False) -> None:
        """Have a cluster, or change it."""
        meta: dict[str, str] = {"name": name}
        if deleting:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        manifest = {"metadata": meta, "spec": {"hubAcceptsClient": accepted}}
        self.clusters[name] = decode(manifest, ManagedCluster)
        self.registry.cluster_changed(name)

    def certificate(self, cluster: str, *, days: int = 30) -> Pair:
        """A registration certificate."""
        user = f"{GROUP_PREFIX}{cluster}:agent1"
        return self.clients.client(user, f"{GROUP_PREFIX}{cluster}", days=days)

    def config(self, pair: Pair, *, proxy_url: str | None = None) -> TunnelConfig:
        """How an agent with a certificate connects."""
        port = self.listener.address.port
        endpoint = TunnelEndpoint("127.0.0.1", port, self.serving.bundle, NAME, proxy_url)
        return TunnelConfig(endpoint, pair.certificate, pair.key)

    def proxy_url(self, cluster: str, password: str = "any") -> str:
        """What consumers of a cluster use."""
        return f"https://{cluster}:{password}@localhost:{self.front.address.port}"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["TunnelHub"]:
        """Serve both ports."""
        await self.listener.open()
        await self.front.open()
        async with AsyncExitStack() as stack:
            for each in (self.listener, self.front):
                await stack.enter_async_context(background(each))
            yield self

    @asynccontextmanager
    async def agent(
        self,
        cluster: str,
        api_server: str,
        *,
        services: Iterable[str] = (),
        config: TunnelConfig | None = None,
        mux: MuxLimits | None = None,
    ) -> AsyncGenerator[TunnelClient]:
        """An agent that connects with a certificate for a cluster, or as a test wants."""
        client = TunnelClient(tunnel_targets(api_server, services), policy=HASTE, limits=mux)
        client.configure(config or self.config(self.certificate(cluster)))
        async with background(client):
            yield client

    async def consumer(
        self,
        cluster: str,
        target: str = "kubernetes.default.svc:443",
        *,
        user: str = "any",
        authorization: str = "",
    ) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
        """Ask the front for a stream; the answer's head, and both ends of what follows."""
        trust = ssl.create_default_context(cadata=self.serving.bundle.decode())
        reader, writer = await asyncio.open_connection(
            "localhost", self.front.address.port, ssl=trust
        )
        given = authorization or f"Basic {base64.b64encode(f'{cluster}:{user}'.encode()).decode()}"
        writer.write(f"CONNECT {target} HTTP/1.1\r\nProxy-Authorization: {given}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return head, reader, writer


@asynccontextmanager
async def background(component: object) -> AsyncGenerator[None]:
    """Run a component meanwhile."""
    task = asyncio.ensure_future(cast("TunnelClient", component).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
