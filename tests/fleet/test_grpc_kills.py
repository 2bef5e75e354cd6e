"""Server and agent are killed at random moments: nothing is lost, and nothing is done twice."""

import asyncio
import random
import signal
from pathlib import Path

import pytest

from knfleet.agent.grpc.grpc_config import GrpcConfig
from knfleet.api.cluster.managedcluster import AVAILABLE
from knfleet.api.core import CONFIG_MAPS, CRDS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key
from knfleet.api.operator import CLUSTER_MANAGERS
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Endpoint
from testbed import hubs
from testbed.agent_process import Agent, bootstrap_token, condition, prepare_spoke
from testbed.clusters import Lend
from testbed.grpc_servers import HOST, grpc_manager, published_ca, server_process
from testbed.waiting import until
from tests.support.grpc_works import is_applied, work
from tests.support.pairs import accepted

pytestmark = [pytest.mark.xdist_group("agent"), pytest.mark.full]
COUNT = 100
KILLS = 6
SEED = 20261118


async def test_a_hundred_works_survive_kills_of_server_and_agent(lend: Lend, tmp_path: Path):
    hub_lent, spoke_lent = await lend(2, definitions=True)
    chance = random.Random(SEED)
    async with Client(hub_lent.connection) as hub, Client(spoke_lent.connection) as spoke:
        await hubs.install(hub_lent.connection)
        for each in spoke_definitions():
            await spoke.apply(CRDS, each)
            await hubs.established(spoke, each["metadata"]["name"])
        await prepare_spoke(spoke)
        async with hubs.running(hub_lent.connection):
            await hub.apply(CLUSTER_MANAGERS, grpc_manager())
            ca = await published_ca(hub)
            server = await server_process(hub_lent.connection, tmp_path)
            agent = Agent(spoke_lent, tmp_path, "c1")
            agent.point_to(Endpoint("https://127.0.0.1:1"), "")
            config = tmp_path / "grpc.yaml"
            config.write_bytes(config_of(f"{HOST}:{server.port}", ca, await bootstrap_token(hub)))
            flags = ("--registration-auth", "grpc", "--grpc-bootstrap-config", str(config))
            try:
                await server.start()
                await agent.start(*flags)
                await accepted(hub)
                creating = asyncio.create_task(create_all(hub, chance))
                for number in range(KILLS):
                    await asyncio.sleep(chance.uniform(0.2, 1.5))
                    if number % 2:
                        await agent.end(signal.SIGKILL)
                        await agent.start(*flags)
                    else:
                        await server.kill()
                        await server.start()
                await creating
                await all_applied(hub, spoke)
                await delete_half(hub, spoke)
                await condition(hub, AVAILABLE, "True")
            finally:
                await agent.end(signal.SIGKILL)
                await server.kill()


def config_of(url: str, ca: bytes, token: str) -> bytes:
    """The configuration by which the agent begins."""
    return GrpcConfig(url, ca, token).with_token()


async def create_all(hub: Client, chance: random.Random) -> None:
    """Create the works, one after another."""
    for number in range(COUNT):
        await hub.create(WORKS, work(f"w{number:03}"))
        await asyncio.sleep(chance.uniform(0, 0.05))


async def all_applied(hub: Client, spoke: Client) -> None:
    """Wait until all works are applied; each has one AppliedManifestWork and one object."""

    async def holds() -> bool:
        found = (await hub.list(WORKS, "c1")).items
        return len(found) == COUNT and all(map(is_applied, found))

    await until(holds, "all works are applied", seconds=240)
    assert len((await spoke.list(APPLIED_WORKS)).items) == COUNT
    made = (await spoke.list(CONFIG_MAPS, "default")).items
    assert len([each for each in made if each["metadata"]["name"].startswith("w")]) == COUNT


async def delete_half(hub: Client, spoke: Client) -> None:
    """Delete every other work, and see that exactly those are gone."""
    for number in range(0, COUNT, 2):
        await hub.delete(WORKS, Key("c1", f"w{number:03}"))

    async def holds() -> bool:
        return len((await hub.list(WORKS, "c1", metadata_only=True)).items) == COUNT // 2

    await until(holds, "half of the works are gone")
    made = (await spoke.list(CONFIG_MAPS, "default")).items
    left = {each["metadata"]["name"] for each in made if each["metadata"]["name"].startswith("w")}
    assert left == {f"w{number:03}" for number in range(1, COUNT, 2)}
    assert len((await spoke.list(APPLIED_WORKS)).items) == COUNT // 2
