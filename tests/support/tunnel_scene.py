"""A hub with a tunnel in this process, and a spoke whose agent is a process."""

import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from knfleet.api.meta import Object
from knfleet.dev.network.outbound import ways_out
from knfleet.hub.manager import HubManager
from knfleet.hub.tunnel.tunnel_server import TunnelOptions, TunnelServer
from knfleet.kube.client.verbs import Client
from testbed import hubs
from testbed.agent_process import Agent, Scene, bootstrap_token, prepare_spoke
from testbed.clusters import Lent
from testbed.waiting import until
from tests.support.tunnel_objects import access_provider, tunnel_options


class TunnelScene:
    """A hub with a tunnel, and a spoke with an agent."""

    def __init__(self, scene: Scene, options: TunnelOptions, fleet: HubManager) -> None:
        self.scene = scene
        self.options = options
        self.fleet = fleet

    @property
    def server(self) -> TunnelServer:
        assert self.fleet.tunnel is not None
        return self.fleet.tunnel

    async def open(self) -> None:
        await until(lambda: self.server.registry.get("c1") is not None, "the tunnel is open")

    async def closed(self) -> None:
        await until(lambda: self.server.registry.get("c1") is None, "the tunnel is closed")

    async def published(self, *, tunnel: bool) -> Object:
        """Wait until the profile leads through the tunnel, or does not."""

        async def holds() -> bool:
            found = await access_provider(self.scene.hub)
            return found is not None and ("proxy-url" in found) == tunnel

        await until(holds, f"the profile leads {'through the tunnel' if tunnel else 'directly'}")
        found = await access_provider(self.scene.hub)
        assert found is not None
        return found


@asynccontextmanager
async def tunnel_scene(clusters: Sequence[Lent], folder: Path) -> AsyncGenerator[TunnelScene]:
    """A hub with our controllers and a tunnel, and a spoke whose agent is not started yet."""
    hub_lent, spoke_lent = clusters
    options = tunnel_options()
    async with Client(hub_lent.connection) as hub, Client(spoke_lent.connection) as spoke:
        await hubs.install(hub_lent.connection)
        await prepare_spoke(spoke)
        agent = Agent(spoke_lent, folder)
        agent.point_to(hub_lent.connection.endpoint, await bootstrap_token(hub))
        async with AsyncExitStack() as running:
            if spoke_lent.inner_sockets is not None:
                out = ways_out(spoke_lent.inner_sockets, [options.agents.port])
                await running.enter_async_context(out)
            fleet = await running.enter_async_context(
                hubs.running(hub_lent.connection, tunnel=options)
            )
            scene = Scene(hub, hub_lent, spoke, agent, running)
            try:
                yield TunnelScene(scene, options, fleet)
            finally:
                await agent.end(signal.SIGKILL)
