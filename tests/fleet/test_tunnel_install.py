"""Knative on a spoke that only its agent reaches: processes of the hub and of the agent."""

import signal
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.cluster.tunnel import TUNNEL_LEASE
from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, LEASES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.operator import CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.dev.network.outbound import ways_out
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.operator.spoke_access.packaged import packaged_rights
from knfleet.operator.spoke_access.rights import SpokeRights
from knfleet.workflows.accept_clusters import NotAcceptable, accept
from testbed import hubs
from testbed.agent_process import Agent, bootstrap_token, prepare_spoke
from testbed.clusters import Lend, Lent
from testbed.fakes.balancers import Balancer
from testbed.fakes.sockets import free_port
from testbed.hub_process import HubProcess, kubeconfig
from testbed.operators import Hub
from testbed.waiting import until
from tests.support.fleets import SMALL
from tests.support.tunnel_objects import access_provider, consumer

pytestmark = [pytest.mark.xdist_group("agent"), pytest.mark.full]
NOWHERE = "https://127.0.0.1:9"
"""Where the hub finds nothing: there is no way to the spoke but the tunnel."""
CUTS = 25
"""During an installation, and as many during a removal."""


class Replica(Struct):
    """One process of the hub."""

    process: HubProcess
    name: str
    agents: int = 0
    consumers: int = 0

    @property
    def address(self) -> str:
        """By which other replicas know it."""
        return f"127.0.0.1:{self.consumers}"


class TunnelLife(Struct):
    """A hub and a spoke behind a tunnel, both with their processes."""

    hub: Hub
    spoke: Client
    replicas: list[Replica]
    agent: Agent
    wire: Balancer
    """Between agent and hub."""
    front: Balancer
    """Between consumers and hub."""

    async def start_hub(self) -> None:
        """Start all processes of the hub."""
        for each in self.replicas:
            await each.process.start(
                *(["--disable-ha"] if len(self.replicas) == 1 else ["--v=0"]),
                f"--tunnel-endpoint=127.0.0.1:{self.wire.port}",
                f"--tunnel-listen=127.0.0.1:{each.agents}",
                f"--tunnel-front-listen=127.0.0.1:{each.consumers}",
                f"--tunnel-front=https://localhost:{self.front.port}",
                SYSTEM_NAMESPACE=OPERATOR_NAMESPACE,
                POD_NAME=each.name,
                POD_IP="127.0.0.1",
            )

    async def kill_hub(self) -> None:
        """End all processes of the hub as the kernel does when memory runs out."""
        for each in self.replicas:
            await each.process.kill()

    async def start_agent(self) -> None:
        """Start the agent's process; the hub is given no other way."""
        await self.agent.start("--spoke-external-server-urls", NOWHERE)

    async def holder(self) -> str:
        """The address of the replica that has the tunnel."""
        lease = await self.hub.client.get(LEASES, TUNNEL_LEASE, "c1")
        return str(lease["spec"].get("holderIdentity") or "")

    async def is_ready(self) -> bool:
        """Whether Serving is ready."""
        return (await self.hub.condition(SERVINGS, "Ready")).get("status") == "True"

    async def joined(self) -> None:
        """Have the cluster accepted, and its profile lead through the tunnel."""

        async def is_accepted() -> bool:
            try:
                await accept(self.hub.client, "c1")
            except NotAcceptable:
                return False
            return True

        async def is_published() -> bool:
            found = await access_provider(self.hub.client)
            return found is not None and "proxy-url" in found

        await until(is_accepted, "the cluster is accepted")
        await until(is_published, "the profile leads through the tunnel")

    async def install(self) -> None:
        """Ask for Serving on the spoke."""
        profile = {"name": "c1", "namespace": OPERATOR_NAMESPACE}
        await self.hub.create(SERVINGS, clusterProfileRef=profile, **SMALL)


@asynccontextmanager
async def tunnel_life(
    clusters: list[Lent],
    releases: Path,
    folder: Path,
    *,
    replicas: int = 1,
    rights: SpokeRights | None = None,
) -> AsyncGenerator[TunnelLife]:
    """All processes run, and the cluster is joined."""
    hub_lent, spoke_lent = clusters
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(hub_lent.connection))
        spoke = await stack.enter_async_context(Client(spoke_lent.connection))
        await hubs.install(hub_lent.connection)
        await prepare_spoke(spoke, rights)
        serving = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "knative-serving"}}
        await client.apply(await client.discovery.resource("v1", "Namespace"), serving)
        account = await hubs.as_account(hub_lent.connection, CLUSTER_MANAGER)
        config = kubeconfig(folder, account)
        made = [
            Replica(
                HubProcess(config, releases, folder / f"hub-{number}.log"),
                f"hub-{number}",
                free_port(),
                free_port(),
            )
            for number in range(replicas)
        ]
        wire = await stack.enter_async_context(Balancer(*(each.agents for each in made)))
        front = await stack.enter_async_context(Balancer(*(each.consumers for each in made)))
        if spoke_lent.inner_sockets is not None:
            await stack.enter_async_context(ways_out(spoke_lent.inner_sockets, [wire.port]))
        agent = Agent(spoke_lent, folder)
        agent.point_to(hub_lent.connection.endpoint, await bootstrap_token(client))
        life = TunnelLife(Hub(hub_lent, client), spoke, made, agent, wire, front)
        stack.push_async_callback(life.kill_hub)
        stack.push_async_callback(agent.end, signal.SIGKILL)
        await life.start_hub()
        await life.start_agent()
        await life.joined()
        yield life


async def deployments(spoke: Client) -> int:
    return len((await spoke.list(DEPLOYMENTS, "knative-serving")).items)


async def test_knative_is_installed_and_removed_through_the_tunnel(
    isolated: list[Lent], small_root: Path, tmp_path: Path
):
    async with tunnel_life(isolated, small_root, tmp_path) as life:
        await life.install()
        await life.hub.ready(SERVINGS, "1.23.0")
        assert await deployments(life.spoke) > 0

        await life.hub.delete(SERVINGS)
        await life.hub.gone(SERVINGS)

        assert await deployments(life.spoke) == 0
        said = life.replicas[0].process.said
        await until(lambda: "stream closed" in said(), "streams that are idle end")
        assert "k1." not in said()


async def test_fifty_cuts_and_a_kill_of_each_side_lose_nothing(
    lend: Lend, bundle_root: Path, tmp_path: Path
):
    """Every cut hits an open tunnel with data on its way; each later one lets more through."""
    async with tunnel_life(
        await lend(2, definitions=True), bundle_root, tmp_path, rights=packaged_rights()
    ) as life:
        wire = life.wire
        wire.allowances.extend(3000 * (number + 1) for number in range(CUTS))
        await wire.cut()
        await life.install()
        await life.agent.end(signal.SIGKILL)
        await life.start_agent()
        await until(lambda: wire.cuts >= CUTS - 1, "the tunnel is cut again and again", seconds=400)
        assert not await life.is_ready()
        await until(lambda: wire.cuts == CUTS, "and once more", seconds=60)
        await life.hub.ready(SERVINGS, "1.23.0")
        installed = await deployments(life.spoke)
        assert installed > 0

        wire.allowances.extend(3000 * (number + 1) for number in range(CUTS))
        await wire.cut()
        await life.hub.delete(SERVINGS)
        await life.kill_hub()
        await life.start_hub()
        await until(lambda: wire.cuts >= 2 * CUTS - 1, "cut again and again", seconds=400)
        assert (await life.hub.client.list(SERVINGS)).items
        await until(lambda: wire.cuts == 2 * CUTS, "and once more", seconds=60)
        await life.hub.gone(SERVINGS)

        assert await deployments(life.spoke) == 0


async def test_three_replicas_of_which_the_one_with_the_tunnel_is_killed(
    lend: Lend, bundle_root: Path, tmp_path: Path
):
    """Consumers come by any of them; the agent connects to another, and all goes on."""
    async with tunnel_life(
        await lend(2, definitions=True), bundle_root, tmp_path, replicas=3, rights=packaged_rights()
    ) as life:
        await life.install()
        held = await life.holder()
        (victim,) = [each for each in life.replicas if each.address == held]
        await victim.process.kill()

        async def has_moved() -> bool:
            return await life.holder() not in ("", held)

        await until(has_moved, "another replica has the tunnel")
        await life.hub.ready(SERVINGS, "1.23.0")
        assert await deployments(life.spoke) > 0

        await life.hub.delete(SERVINGS)
        await life.hub.gone(SERVINGS)
        assert await deployments(life.spoke) == 0


@pytest.mark.soak
async def test_a_list_of_100_megabytes_takes_at_most_twice_as_long_as_directly(
    lend: Lend, small_root: Path, tmp_path: Path
):
    """In two pages, because clients of ours read no larger answer; the median of pairs."""
    async with tunnel_life(await lend(2, definitions=True), small_root, tmp_path) as life:
        data = {"data": {"text": "x" * 1_000_000}}
        for number in range(50):
            named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"l{number}"}}
            await life.spoke.create(CONFIG_MAPS, {**named, **data}, "default")
        # The hub's account may list no ConfigMaps there; an administrator may, by the same way.
        administrator = life.agent.spoke.connection
        offered = await consumer(life.hub.client)
        through = replace(offered, credentials=administrator.credentials)
        server = administrator.endpoint.server
        direct = replace(through, endpoint=replace(through.endpoint, server=server, proxy_url=None))

        pairs = [(await list_seconds(direct), await list_seconds(through)) for _ in range(9)]

        ratio = statistics.median(alone / tunnelled for alone, tunnelled in pairs)
        assert ratio >= 0.5, pairs


async def list_seconds(connection: Connection) -> float:
    """How long two lists of fifty megabytes take."""
    async with Client(connection, ClientOptions(attempts=1)) as client:
        await client.version()
        began = time.perf_counter()
        for _ in range(2):
            await client.raw("GET", CONFIG_MAPS.path("default"), deadline=120)
        return time.perf_counter() - began
