"""Who is measured: a hub with agents on its spokes, ours or those of Open Cluster Management."""

import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import psutil
from msgspec import Struct

from bench.usage import seconds
from knfleet.api.cluster.managedcluster import AVAILABLE, CLUSTERS
from knfleet.api.core import CRDS, NAMESPACES, SECRETS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key
from knfleet.api.operator import (
    AGENT_NAMESPACE,
    CLUSTER_MANAGER,
    CLUSTER_MANAGERS,
    OPERATOR_NAMESPACE,
)
from knfleet.install.deployments import HubInstall, cluster_manager
from knfleet.install.hub_manifests import named
from knfleet.kube.client.verbs import Client
from knfleet.workflows import accept_clusters
from testbed import hubs
from testbed.agent_process import (
    Agent,
    bootstrap_secret,
    bootstrap_token,
    condition,
    kubeconfig,
    prepare_spoke,
)
from testbed.clusters import Lent
from testbed.hub_process import HubProcess
from testbed.hub_process import kubeconfig as hub_kubeconfig
from testbed.peers.ocm import OcmSpoke, ocm_agents
from testbed.peers.ocm_hub import install_definitions, ocm_hub, prepare_hub, running
from testbed.printed import Printed
from testbed.waiting import until

OURS, THEIRS, FLOOR = "knfleet", "Open Cluster Management", "floor"
MB = 10**6


class Processes(Struct, frozen=True):
    """The processes of one side."""

    hub: Sequence[int] = ()
    agents: Sequence[Sequence[int]] = ()
    """Those of each spoke."""

    @property
    def agent_seconds(self) -> float:
        """CPU seconds of all agents so far."""
        return sum(seconds(each) for group in self.agents for each in family(group))

    @property
    def hub_seconds(self) -> float:
        """CPU seconds of the hub so far."""
        return sum(map(seconds, family(self.hub)))

    @property
    def hub_mb(self) -> float:
        """Memory of the hub."""
        return sum(each.memory_info().rss for each in family(self.hub)) / MB

    @property
    def agent_mb(self) -> float:
        """Memory of the agents of the spoke that needs most."""
        groups = [sum(each.memory_info().rss for each in family(group)) for group in self.agents]
        return max(groups, default=0) / MB


def family(pids: Sequence[int]) -> list[psutil.Process]:
    """Processes without the small ones that only hold a program of a peer."""
    found: list[psutil.Process] = []
    for pid in pids:
        process = psutil.Process(pid)
        found += process.children(recursive=True) or [process]
    return found


class Ground(Struct, frozen=True):
    """Clean clusters, and a client for each."""

    hub_lent: Lent
    hub: Client
    spokes: Sequence[tuple[Lent, Client]]
    folder: Path

    def cluster(self, index: int) -> str:
        """The name of the managed cluster of a spoke."""
        return f"c{index + 1}"


Started = Callable[[Ground], contextlib.AbstractAsyncContextManager[Processes]]


@contextlib.asynccontextmanager
async def knfleet(ground: Ground) -> AsyncGenerator[Processes]:
    """Our hub and agents, with every spoke accepted and available."""
    admin = ground.hub_lent.connection
    await hubs.install(admin)
    await ground.hub.apply(CLUSTER_MANAGERS, cluster_manager(HubInstall(image="")))
    account = await hubs.as_account(admin, CLUSTER_MANAGER)
    releases = ground.folder / "releases"
    releases.mkdir()
    hub = HubProcess(hub_kubeconfig(ground.folder, account), releases, ground.folder / "hub.log")
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(hub.kill)
        await hub.start("--disable-ha", SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)
        token = await bootstrap_token(ground.hub)
        agents: list[Agent] = []
        for index, (lent, client) in enumerate(ground.spokes):
            for each in spoke_definitions():
                await client.apply(CRDS, each)
                await hubs.established(client, each["metadata"]["name"])
            await prepare_spoke(client)
            folder = ground.folder / ground.cluster(index)
            folder.mkdir()
            agent = Agent(lent, folder, ground.cluster(index))
            agent.point_to(admin.endpoint, token)
            stack.push_async_callback(agent.end, signal.SIGKILL)
            await agent.start()
            agents.append(agent)
            await accepted(ground.hub, agent.name)
        assert hub.process is not None
        pids = [[each.process.pid] for each in agents if each.process is not None]
        yield Processes([hub.process.pid], pids)


@contextlib.asynccontextmanager
async def ocm(ground: Ground) -> AsyncGenerator[Processes]:
    """The hub and agents of Open Cluster Management, with every spoke accepted and available."""
    binaries, agents = await ocm_hub(Printed()), await ocm_agents(Printed())
    await prepare_hub(ground.hub)
    async with contextlib.AsyncExitStack() as stack:
        hub = await stack.enter_async_context(
            running(binaries, ground.hub_lent, ground.folder / "hub", ("registration", "work"))
        )
        config = kubeconfig(ground.hub_lent.connection.endpoint, await bootstrap_token(ground.hub))
        groups: list[list[int]] = []
        for index, (lent, client) in enumerate(ground.spokes):
            folder = ground.folder / ground.cluster(index)
            folder.mkdir()
            await install_definitions(client, spoke=True)
            await client.apply(NAMESPACES, named("v1", "Namespace", AGENT_NAMESPACE))
            await client.apply(SECRETS, bootstrap_secret(config))
            place = OcmSpoke(ground.cluster(index), lent, folder)
            place.bootstrap.write_bytes(config)
            registration = await stack.enter_async_context(place.registering(agents))
            await accepted(ground.hub, place.name)
            work = await stack.enter_async_context(place.working(agents))
            groups.append([registration, work])
        yield Processes(list(hub.values()), groups)


async def accepted(hub: Client, cluster: str) -> None:
    """Accept a cluster as a person does, and wait until it is available."""

    async def is_pending() -> bool:
        return bool(await accept_clusters.pending_requests(hub, cluster))

    await until(is_pending, f"{cluster} asks for a certificate")
    await accept_clusters.accept(hub, cluster)
    await hub.patch(CLUSTERS, Key("", cluster), {"spec": {"hubAcceptsClient": True}})
    await condition(hub, AVAILABLE, "True", name=cluster)
