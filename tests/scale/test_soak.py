"""Three hundred clusters whose watches are cut, tokens rejected and requests failed at random.

Set KNFLEET_SOAK_SECONDS to let it run longer than a minute.
"""

import asyncio
import contextlib
import gc
import os
import random
from collections.abc import AsyncGenerator

import msgspec
import psutil
import pytest
import uvloop

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import ClusterName, Key, Object
from knfleet.kube.auth.credentials import Credential
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection, Endpoint
from testbed.fakes.apiserver import ApiServers
from testbed.fakes.certificates import Authority
from testbed.fakes.cluster import Cluster
from testbed.fakes.server import server_context

pytestmark = pytest.mark.soak
CLUSTERS = 300
SECONDS = float(os.environ.get("KNFLEET_SOAK_SECONDS", "60"))
SETTLE_SECONDS = 120
NAMES = 20
"""How many objects a cluster has, more or less."""
GROWTH_BYTES = 30 * 1024 * 1024


def config_map(name: str, text: str) -> Object:
    """A ConfigMap."""
    return {"metadata": {"name": name, "namespace": "n"}, "data": {"text": text}}


class Spoke(msgspec.Struct):
    """A fake cluster, and the informer that follows it."""

    cluster: Cluster
    informer: Informer
    seen: dict[str, asyncio.Event]

    async def settled(self, mark: str) -> None:
        """Write a mark, and wait until it arrives; all that was before has arrived then, too."""
        arrived = self.seen[mark] = asyncio.Event()
        self.cluster.put(CONFIG_MAPS, config_map(mark, mark))
        await arrived.wait()

    def note(self, change: StoreChange) -> None:
        """Notice a mark."""
        if change.key.name in self.seen and change.new is not None:
            self.seen[change.key.name].set()


class Rotating(msgspec.Struct):
    """A login at a cluster that accepts one token at a time."""

    cluster: Cluster

    async def fetch(self) -> Credential:
        """The token of the moment."""
        [token] = self.cluster.faults.tokens or {"any"}
        return Credential(token=token)


@contextlib.asynccontextmanager
async def fleet(servers: ApiServers, ca: bytes) -> AsyncGenerator[list[Spoke], None]:
    """Informers on all clusters."""
    spokes: list[Spoke] = []
    async with contextlib.AsyncExitStack() as clients:
        tasks: list[asyncio.Task[None]] = []
        for number in range(CLUSTERS):
            name = f"c{number}"
            cluster = servers.add(name, Cluster(CONFIG_MAPS, bookmark_seconds=5))
            for index in range(NAMES):
                cluster.put(CONFIG_MAPS, config_map(f"o{index}", "first"))
            cluster.faults.tokens = {"first"}
            cluster.faults.streams_lists = number % 3 > 0
            connection = Connection(
                ClusterName(name), Endpoint(servers.url(name), ca=ca), Rotating(cluster)
            )
            client = await clients.enter_async_context(
                Client(connection, ClientOptions(silence_seconds=20))
            )
            spoke = Spoke(cluster, Informer(client, CONFIG_MAPS), {})
            spoke.informer.on_change(spoke.note)
            spokes.append(spoke)
            tasks.append(asyncio.create_task(spoke.informer.run()))
        try:
            yield spokes
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def disturb(spokes: list[Spoke], chance: random.Random) -> None:
    """Do something to some cluster, again and again."""
    count = 0
    while True:
        count += 1
        cluster = chance.choice(spokes).cluster
        name = f"o{chance.randrange(NAMES)}"
        match chance.randrange(8):
            case 0:
                await cluster.cut()
            case 1:
                await cluster.cut()
                cluster.delete(CONFIG_MAPS, Key("n", name))
                cluster.forget()
            case 2:
                cluster.faults.fail = chance.randrange(3)
                await cluster.cut()
            case 3:
                cluster.faults.tokens = {f"token-{count}"}
                await cluster.cut()
            case 4:
                cluster.delete(CONFIG_MAPS, Key("n", name))
            case _:
                cluster.put(CONFIG_MAPS, config_map(name, str(count)))
        await asyncio.sleep(0.02)


def used_bytes() -> int:
    """Memory of this process."""
    gc.collect()
    return psutil.Process().memory_info().rss


async def soak() -> None:
    """Disturb a fleet, then look at what is left."""
    authority = Authority()
    process = psutil.Process()
    tasks, descriptors = len(asyncio.all_tasks()), process.num_fds()
    async with (
        ApiServers(tls=server_context(authority.server())) as servers,
        fleet(servers, authority.pem) as spokes,
    ):
        async with asyncio.timeout(SETTLE_SECONDS):
            await asyncio.gather(*(spoke.settled("begin") for spoke in spokes))
        before = used_bytes()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await disturb(spokes, random.Random(7))
        for spoke in spokes:
            spoke.cluster.faults.fail = 0
        async with asyncio.timeout(SETTLE_SECONDS):
            await asyncio.gather(*(spoke.settled("end") for spoke in spokes))

        different = [
            spoke.informer.client.cluster
            for spoke in spokes
            if spoke.informer.store.objects != spoke.cluster.objects[CONFIG_MAPS]
        ]
        failing = [spoke for spoke in spokes if spoke.informer.failing is not None]
        growth = used_bytes() - before
    await asyncio.sleep(0)
    print(f"{CLUSTERS} clusters disturbed for {SECONDS:.0f} s: {growth / 1e6:+.1f} MB")

    assert different == []
    assert failing == []
    assert growth < GROWTH_BYTES
    assert tasks == len(asyncio.all_tasks())
    assert descriptors >= process.num_fds() - 2


def test_a_disturbed_fleet_comes_to_rest() -> None:
    """Every informer equals its server in the end, and nothing is left behind."""
    uvloop.run(soak())
