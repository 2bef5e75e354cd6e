"""An installation through the tunnel beside one without it, in turn, on real clusters.

python -m bench.tunnel_install    Serving with Kourier, until it is Ready, and until it is gone
"""

import argparse
import asyncio
import signal
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct

from bench.machine import machine
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.apply.manifest_fields import items
from knfleet.kube.client.verbs import Client
from knfleet.operator.spoke_access.packaged import packaged_rights
from knfleet.release.source.sources import GoModuleSource
from knfleet.workflows.accept_clusters import NotAcceptable, accept
from testbed import hubs
from testbed.agent_process import Agent, bootstrap_token, prepare_spoke
from testbed.clusters import Pool
from testbed.fakes.sockets import free_port
from testbed.hub_process import HubProcess, kubeconfig
from testbed.operators import Hub
from testbed.waiting import until

VERSION = "1.23.0"
SPEC: Object = {"version": VERSION, "ingress": {"kourier": {"enabled": True}}}
PROFILE: Object = {"name": "c1", "namespace": OPERATOR_NAMESPACE}


class InstallScene(Struct):
    """A hub with a tunnel, and a spoke whose agent is started anew for each way."""

    hub: Hub
    agent: Agent
    way: str = ""

    async def reach(self, way: str) -> None:
        """Have the profile lead through the tunnel, or directly."""
        if way == self.way:
            return
        self.way = way
        await self.agent.end(signal.SIGKILL)
        await self.agent.start("--tunnel", "always" if way == "tunnel" else "never")

        async def is_accepted() -> bool:
            try:
                await accept(self.hub.client, "c1")
            except NotAcceptable:
                return False
            return True

        async def is_published() -> bool:
            found = await self.hub.client.list(
                PROFILES, OPERATOR_NAMESPACE, fields="metadata.name=c1"
            )
            given = [
                one for each in found.items for one in items(each, "status", "accessProviders")
            ]
            return bool(given) and ("proxy-url" in given[0]["cluster"]) == (way == "tunnel")

        await until(is_accepted, "the cluster is accepted")
        await until(is_published, f"the profile leads {way}")

    async def install(self) -> tuple[float, float]:
        """Seconds until Serving is Ready, and until it is gone again."""
        began = time.perf_counter()
        await self.hub.create(SERVINGS, clusterProfileRef=PROFILE, **SPEC)
        await self.hub.ready(SERVINGS, VERSION)
        ready = time.perf_counter()
        await self.hub.delete(SERVINGS)
        await self.hub.gone(SERVINGS)
        return ready - began, time.perf_counter() - ready


async def scene(stack: AsyncExitStack, pool: Pool, folder: Path) -> InstallScene:
    """Start everything but the agent."""
    hub_lent, spoke_lent = await pool.lend(2)
    client = await stack.enter_async_context(Client(hub_lent.connection))
    spoke = await stack.enter_async_context(Client(spoke_lent.connection))
    await hubs.install(hub_lent.connection)
    await prepare_spoke(spoke, packaged_rights())
    home: Object = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "knative-serving"},
    }
    await client.apply(await client.discovery.resource("v1", "Namespace"), home)
    account = await hubs.as_account(hub_lent.connection, CLUSTER_MANAGER)
    releases = await GoModuleSource().fetch()
    process = HubProcess(kubeconfig(folder, account), releases, folder / "hub.log")
    agents, consumers = free_port(), free_port()
    await process.start(
        "--disable-ha",
        f"--tunnel-endpoint=127.0.0.1:{agents}",
        f"--tunnel-listen=127.0.0.1:{agents}",
        f"--tunnel-front-listen=127.0.0.1:{consumers}",
        f"--tunnel-front=https://localhost:{consumers}",
        SYSTEM_NAMESPACE=OPERATOR_NAMESPACE,
    )
    stack.push_async_callback(process.kill)
    agent = Agent(spoke_lent, folder)
    agent.point_to(hub_lent.connection.endpoint, await bootstrap_token(client))
    stack.push_async_callback(agent.end, signal.SIGKILL)
    return InstallScene(Hub(hub_lent, client), agent)


async def measure(rounds: int) -> None:
    """Measure in turn."""
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="knfleet-bench-") as made:
        pool = Pool(Path(made) / "dev")
        try:
            async with AsyncExitStack() as stack:
                found = await scene(stack, pool, Path(made))
                took: dict[str, list[float]] = {"directly": [], "tunnel": []}
                await found.reach("directly")
                # The first one also reads the release files.
                await found.install()
                for number in range(rounds):
                    ways = list(took) if number % 2 else list(reversed(took))
                    for way in ways:
                        await found.reach(way)
                        ready, gone = await found.install()
                        took[way].append(ready)
                        print(f"{way}: Ready in {ready:.1f} s, gone in {gone:.1f} s", flush=True)
                medians = {way: statistics.median(each) for way, each in took.items()}
                print(f"ratio: {medians['tunnel'] / medians['directly']:.2f}", flush=True)
        finally:
            pool.close()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
