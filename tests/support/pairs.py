"""A hub and an agent of either project, joined, for tests of what both projects promise."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct

from knfleet.api.cluster.managedcluster import AVAILABLE, CLUSTERS, JOINED
from knfleet.api.core import CRDS, NAMESPACES, SECRETS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key
from knfleet.api.operator import AGENT_NAMESPACE, CLUSTER_MANAGERS
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
from testbed.clusters import Lend, Lent
from testbed.peers.ocm import OFTEN, OcmSpoke, ocm_agents
from testbed.peers.ocm_hub import install_definitions, ocm_hub, prepare_hub, running
from testbed.printed import Printed
from testbed.waiting import until

OURS, OCM = "knfleet", "ocm"
CLUSTER = "c1"


class Pair(Struct, frozen=True):
    """A hub with one cluster that has joined and is available."""

    hub: Client
    hub_lent: Lent
    spoke: Client
    spoke_lent: Lent
    hub_side: str
    agent_side: str
    folder: Path


@asynccontextmanager
async def joined_pair(
    lend: Lend,
    folder: Path,
    hub_side: str,
    agent_side: str,
    *,
    controllers: Sequence[str] = ("registration", "placement", "work"),
) -> AsyncGenerator[Pair]:
    """Start a hub and an agent, accept the cluster, and wait until it is available.

    `controllers` are those of the hub of Open Cluster Management.
    """
    hub_lent, spoke_lent = await lend(2)
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(Client(hub_lent.connection))
        spoke = await stack.enter_async_context(Client(spoke_lent.connection))
        if hub_side == OURS:
            await hubs.install(hub_lent.connection)
            await hub.apply(CLUSTER_MANAGERS, cluster_manager(HubInstall(image="")))
            await stack.enter_async_context(hubs.running(hub_lent.connection))
        else:
            await prepare_hub(hub)
            binaries = await ocm_hub(Printed())
            processes = running(binaries, hub_lent, folder / "ocm-hub", controllers)
            await stack.enter_async_context(processes)
        token = await bootstrap_token(hub)
        pair = Pair(hub, hub_lent, spoke, spoke_lent, hub_side, agent_side, folder)
        start = our_agent if agent_side == OURS else ocm_agent
        await stack.enter_async_context(start(pair, token))
        yield pair


@asynccontextmanager
async def our_agent(pair: Pair, token: str) -> AsyncGenerator[None]:
    """Our agent runs, and its cluster has joined."""
    for each in spoke_definitions():
        await pair.spoke.apply(CRDS, each)
        await hubs.established(pair.spoke, each["metadata"]["name"])
    await prepare_spoke(pair.spoke)
    agent = Agent(pair.spoke_lent, pair.folder, CLUSTER)
    agent.point_to(pair.hub_lent.connection.endpoint, token)
    await agent.start()
    try:
        await accepted(pair.hub)
        yield
    finally:
        await agent.end()


@asynccontextmanager
async def ocm_agent(pair: Pair, token: str) -> AsyncGenerator[None]:
    """The agents of Open Cluster Management run, and their cluster has joined."""
    agents = await ocm_agents(Printed())
    await install_definitions(pair.spoke, spoke=True)
    await pair.spoke.apply(NAMESPACES, named("v1", "Namespace", AGENT_NAMESPACE))
    place = OcmSpoke(CLUSTER, pair.spoke_lent, pair.folder)
    config = kubeconfig(pair.hub_lent.connection.endpoint, token)
    place.bootstrap.write_bytes(config)
    await pair.spoke.apply(SECRETS, bootstrap_secret(config))
    async with place.registering(agents):
        await accepted(pair.hub)
        async with place.working(agents, *OFTEN):
            yield


async def accepted(hub: Client) -> None:
    """Do what a person does who accepts the cluster, and wait until it is available."""

    async def is_pending() -> bool:
        return bool(await accept_clusters.pending_requests(hub, CLUSTER))

    await until(is_pending, "the agent asks for a certificate")
    await accept_clusters.accept(hub, CLUSTER)
    await hub.patch(CLUSTERS, Key("", CLUSTER), {"spec": {"hubAcceptsClient": True}})
    await condition(hub, JOINED, "True")
    await condition(hub, AVAILABLE, "True")
