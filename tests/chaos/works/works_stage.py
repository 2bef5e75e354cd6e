"""A hub and clusters that have joined it, each agent with a connection to the hub of its own."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from knfleet.api.cluster.managedcluster import AVAILABLE, CLUSTERS
from knfleet.api.core import CONFIG_MAPS, CRDS, NAMESPACES
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key, Object
from knfleet.api.operator import CLUSTER_MANAGER, CLUSTER_MANAGERS, OPERATOR_NAMESPACE
from knfleet.install.deployments import HubInstall, cluster_manager
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.workflows import accept_clusters
from testbed import hubs
from testbed.agent_process import Agent, bootstrap_token, condition, prepare_spoke
from testbed.clusters import Lent, Pool
from testbed.fakes.ways import Way
from testbed.hub_process import HubProcess, kubeconfig
from testbed.waiting import until
from tests.chaos.works.wanted_works import PLACE, WantedWorks, config_map

BY_HAND = ClientOptions(manager="by-hand")
FOREIGN = ("foreign-a", "foreign-b")
"""Objects beside those of works that nothing may change."""


class Member:
    """A cluster with its agent, and what is wanted of it."""

    def __init__(self, lent: Lent, client: Client, agent: Agent, way: Way) -> None:
        self.name = lent.name
        self.lent = lent
        self.client = client
        self.agent = agent
        self.way = way
        self.works = WantedWorks(lent.name)
        self.foreign: dict[str, Object] = {}
        self.flags: tuple[str, ...] = ()
        """How the agent is started."""
        self.is_down = asyncio.Lock()
        """Held while the agent is kept from running."""

    async def keep(self) -> None:
        """Start the agent again whenever it has ended, unless it is to stay down."""
        while True:
            async with self.is_down:
                process = self.agent.process
                if process is None or process.returncode is not None:
                    await self.agent.start(*self.flags)
            await asyncio.sleep(0.5)


class WorksStage:
    """Everything that faults can strike."""

    def __init__(self, pool: Pool, lent: Lent, client: Client, root: Path) -> None:
        self.pool = pool
        self.lent = lent
        self.client = client
        self.root = root
        self.members: dict[str, Member] = {}
        self.process: HubProcess
        self.flags = ("--disable-ha",)
        """How the hub is started."""

    async def prepare(self, closing: AsyncExitStack) -> None:
        """Make the hub ready to be started."""
        await hubs.install(self.lent.connection)
        await self.client.apply(CLUSTER_MANAGERS, self.cluster_manager())
        account = await hubs.as_account(self.lent.connection, CLUSTER_MANAGER)
        config = kubeconfig(self.root, account)
        self.process = HubProcess(config, self.releases(), self.root / "hub.log")
        closing.push_async_callback(self.process.kill)

    def cluster_manager(self) -> Object:
        """How the hub is configured."""
        return cluster_manager(HubInstall(image=""))

    def releases(self) -> Path:
        """The folder with the release files of Knative; there are none."""
        return self.root

    async def start_hub(self) -> None:
        """Start the hub's process."""
        await self.process.start(*self.flags, SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)

    async def way_to_hub(self, closing: AsyncExitStack) -> Way:
        """The connection of the next cluster to the hub, which can be struck."""
        return await closing.enter_async_context(Way(self.lent.connection.endpoint.server))

    async def introduce(self, member: Member) -> None:
        """Tell an agent where the hub is."""
        endpoint = replace(self.lent.connection.endpoint, server=member.way.url)
        member.agent.point_to(endpoint, await bootstrap_token(self.client))


@asynccontextmanager
async def works_stage(
    root: Path, *, spokes: int, kind: type[WorksStage] = WorksStage
) -> AsyncGenerator[WorksStage]:
    """Fresh clusters that have joined a hub."""
    pool = Pool(root / "ground")
    try:
        first, *others = await pool.lend(spokes + 1)
        async with AsyncExitStack() as closing:
            client = await closing.enter_async_context(Client(first.connection, BY_HAND))
            made = kind(pool, first, client, root)
            await made.prepare(closing)
            await made.start_hub()
            for each in others:
                made.members[each.name] = await join(made, each, closing)
            yield made
    finally:
        await asyncio.to_thread(pool.close)


async def join(made: WorksStage, lent: Lent, closing: AsyncExitStack) -> Member:
    """Have a cluster join the hub by a connection that can be struck."""
    client = await closing.enter_async_context(Client(lent.connection, BY_HAND))
    way = await made.way_to_hub(closing)
    for each in spoke_definitions():
        await client.apply(CRDS, each)
        await hubs.established(client, each["metadata"]["name"])
    await prepare_spoke(client)
    folder = made.root / lent.name
    folder.mkdir()
    agent = Agent(lent, folder, lent.name)
    member = Member(lent, client, agent, way)
    await made.introduce(member)
    closing.push_async_callback(agent.end, signal.SIGKILL)
    await agent.start(*member.flags)

    async def is_pending() -> bool:
        return bool(await accept_clusters.pending_requests(made.client, lent.name))

    await until(is_pending, f"the agent of {lent.name} asks for a certificate")
    await accept_clusters.accept(made.client, lent.name)
    await made.client.patch(CLUSTERS, Key("", lent.name), {"spec": {"hubAcceptsClient": True}})
    await condition(made.client, AVAILABLE, "True", name=lent.name)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}}
    await client.apply(NAMESPACES, namespace)
    for name in FOREIGN:
        member.foreign[name] = await client.create(CONFIG_MAPS, config_map(name, {"mine": "yes"}))
    return member
