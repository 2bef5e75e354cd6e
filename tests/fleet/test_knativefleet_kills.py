"""The hub is killed at random moments of a rollout, and keeps what a rollout promises."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.operator import CLUSTER_MANAGER
from knfleet.kube.client.verbs import Client
from testbed import hub_process, hubs
from testbed.clusters import Lend
from tests.support.knative_fleets import (
    OperatorDouble,
    add_profiles,
    children,
    fleet,
    operated,
    reports,
    set_version,
    version_of,
)

CLUSTERS = [f"k{number}" for number in range(8)]
STRATEGY = {
    "waves": [{"name": "canary", "names": CLUSTERS[:1]}, {"name": "some", "names": CLUSTERS[1:4]}],
    "maxConcurrency": 2,
}


class KilledHub:
    """A hub that is started again after each kill."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self.kubeconfig = kubeconfig
        self.log = log
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.support.hub_alone", str(self.kubeconfig)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            )

    async def kill(self) -> None:
        """End it as the kernel does when memory runs out."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def killed_hub(lend: Lend, folder: Path) -> AsyncGenerator[tuple[Client, KilledHub], None]:
    """A hub with clusters that can be killed."""
    (lent,) = await lend(1, definitions=True)
    await hubs.install(lent.connection)
    account = await hubs.as_account(lent.connection, CLUSTER_MANAGER)
    running = KilledHub(hub_process.kubeconfig(folder, account), folder / "hub.log")
    async with Client(lent.connection) as client:
        await add_profiles(client, CLUSTERS)
        await running.start()
        try:
            yield client, running
        finally:
            await running.kill()


async def changed(operator: OperatorDouble, count: int) -> None:
    """Return when so many more versions were given, or nothing is given for a while."""
    goal = sum(map(len, operator.versions.values())) + count
    with_patience = asyncio.get_running_loop().time() + 20
    while sum(map(len, operator.versions.values())) < goal:
        operator.seen.clear()
        left = with_patience - asyncio.get_running_loop().time()
        if left <= 0:
            return
        try:
            async with asyncio.timeout(left):
                await operator.seen.wait()
        except TimeoutError:
            return


async def survive(lend: Lend, folder: Path, kills: int, seed: int) -> None:
    """Kill the hub so often, at moments that depend on what it wrote, and look at every state."""
    chance = random.Random(seed)
    async with killed_hub(lend, folder) as (client, running), operated(client) as operator:
        await client.create(KNATIVE_FLEETS, fleet(version="1.20.0", strategy=STRATEGY))
        await reports(client, "RolloutComplete")
        number, done = 1, 0
        while done < kills:
            number += 1
            version = f"1.{20 + number % 2}.{number}"
            await set_version(client, version)
            for _ in range(min(chance.randrange(1, 4), kills - done)):
                await changed(operator, chance.randrange(1, 4))
                await running.kill()
                done += 1
                await running.start()
            await reports(client, "RolloutComplete", number=number)
            assert {version_of(each) for each in (await children(client)).values()} == {version}

    assert operator.largest <= 2
    for given in operator.versions.values():
        assert len(given) == number, "a cluster got a version twice, or one that it must not have"


async def test_a_rollout_survives_that_the_hub_is_killed(lend: Lend, tmp_path: Path):
    await survive(lend, tmp_path, kills=2, seed=1)


@pytest.mark.full
async def test_a_rollout_survives_thirty_kills_of_the_hub(lend: Lend, tmp_path: Path):
    await survive(lend, tmp_path, kills=30, seed=2)
