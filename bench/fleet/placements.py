"""Clusters accepted and Placements decided, by knfleet and by Open Cluster Management in turns.

    python -m bench.fleet.placements [--rounds 3] [--clusters 300] [--json FILE]

Clusters have no agents: what is measured is the hub alone.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from bench.fleet.contest import connected, hold, parser_of
from bench.fleet.sides import OURS, THEIRS, Ground, Processes, knfleet
from bench.knative.scenarios import Figures
from bench.requests import coded_requests
from bench.resting import lend_rested
from knfleet.api.cluster.clusterset import BINDINGS, CLUSTER_SETS
from knfleet.api.cluster.managedcluster import ACCEPTED, CLUSTERS, SET_LABEL
from knfleet.api.cluster.placement import DECISIONS, PLACEMENT_LABEL, PLACEMENTS
from knfleet.api.core import NAMESPACES, ROLE_BINDINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.install.hub_manifests import named
from knfleet.kube.cache.informer import Informer
from knfleet.kube.errors import AlreadyExists
from testbed.clusters import Pool
from testbed.peers.ocm_hub import ocm_hub, prepare_hub, running
from testbed.printed import Printed
from testbed.waiting import until

SPACE, SET = "places", "fleet"
DONE_SECONDS = 300.0
ANYWHERE: Object = {"tolerations": [{"operator": "Exists"}]}
"""Clusters without an agent have taints after a while."""
MANY = 50
"""Placements that are created at once, and clusters that are relabelled."""
GOALS = {
    "clusters accepted: namespace and rights for all, s": "≤ 0.35 of OCM",
    "requests to the hub per accepted cluster": "≤ 8",
    "one Placement decided, s": "≤ 1 of OCM",
    "50 clusters relabelled, s": "≤ 1 of OCM",
    "50 Placements at once, s": "≤ 0.5 of OCM",
}


@contextlib.asynccontextmanager
async def ocm(ground: Ground) -> AsyncGenerator[Processes]:
    """The controllers of Open Cluster Management for registration and placement."""
    binaries = await ocm_hub(Printed())
    await prepare_hub(ground.hub)
    controllers = ("registration", "placement")
    async with running(binaries, ground.hub_lent, ground.folder / "hub", controllers) as pids:
        yield Processes(list(pids.values()))


SIDES = {THEIRS: ocm, OURS: knfleet}


class HubWork:
    """What is asked of a hub, and how long it takes."""

    def __init__(self, ground: Ground, count: int, processes: Processes) -> None:
        self.client = ground.hub
        self.processes = processes
        self.names = [f"c{number:04}" for number in range(count)]
        self.watched = {
            each: Informer(ground.hub, each)
            for each in (CLUSTERS, NAMESPACES, ROLE_BINDINGS, PLACEMENTS, DECISIONS)
        }
        self.figures: Figures = {}

    def thing(self, resource: Resource, name: str, namespace: str = "", **parts: object) -> Object:
        """An object of a kind."""
        return {**named(resource.api_version, resource.kind, name, namespace), **parts}

    async def register(self) -> None:
        """Have all clusters ask to join."""
        for resource, name in ((CLUSTER_SETS, SET), (NAMESPACES, SPACE)):
            with contextlib.suppress(AlreadyExists):
                await self.client.create(resource, self.thing(resource, name))
        binding = self.thing(BINDINGS, SET, SPACE, spec={"clusterSet": SET})
        await self.client.create(BINDINGS, binding)

        async def ask(name: str) -> None:
            cluster = self.thing(CLUSTERS, name, spec={})
            cluster["metadata"]["labels"] = {SET_LABEL: SET, "env": "test"}
            await self.client.create(CLUSTERS, cluster)

        await asyncio.gather(*map(ask, self.names))

    async def accept(self) -> None:
        """Accept all clusters, and wait for their namespaces and rights."""
        asked = await coded_requests(self.client)
        began, cpu = time.monotonic(), self.processes.hub_seconds
        patch = {"spec": {"hubAcceptsClient": True}}
        await asyncio.gather(
            *(self.client.patch(CLUSTERS, Key("", name), patch) for name in self.names)
        )
        await until(self.is_accepted, "all clusters are accepted", seconds=DONE_SECONDS)
        self.figures["clusters accepted: namespace and rights for all, s"] = (
            time.monotonic() - began
        )
        self.figures["clusters accepted: CPU of the hub, s"] = self.processes.hub_seconds - cpu
        requests = (await coded_requests(self.client)) - asked
        total = sum(
            count
            for (verb, resource, _), count in requests.items()
            if verb != "WATCH"
            and resource in ("managedclusters", "namespaces", "rolebindings", "clusterroles",
                             "clusterrolebindings", "roles", "secrets")
        )  # fmt: skip
        own = len(self.names)
        self.figures["requests to the hub per accepted cluster"] = (total - own) / own

    def is_accepted(self) -> bool:
        """Whether every cluster is accepted, with a namespace and rights in it."""
        places = {each["metadata"]["namespace"] for each in self.watched[ROLE_BINDINGS].items()}
        there = {each["metadata"]["name"] for each in self.watched[NAMESPACES].items()}
        accepted = {
            each["metadata"]["name"]
            for each in self.watched[CLUSTERS].items()
            if any(
                said["type"] == ACCEPTED and said["status"] == "True"
                for said in items(each, "status", "conditions")
            )
        }
        return set(self.names) <= places & there & accepted

    async def place(self) -> None:
        """Have Placements decided: one, one after clusters changed, and many at once."""
        prod = {"requiredClusterSelector": {"labelSelector": {"matchLabels": {"env": "prod"}}}}
        began = time.monotonic()
        await self.client.create(PLACEMENTS, self.thing(PLACEMENTS, "all", SPACE, spec=ANYWHERE))
        await self.decided({"all": len(self.names)})
        self.figures["one Placement decided, s"] = time.monotonic() - began

        spec = {**ANYWHERE, "predicates": [prod]}
        await self.client.create(PLACEMENTS, self.thing(PLACEMENTS, "prod", SPACE, spec=spec))
        await self.decided({"prod": 0})
        began = time.monotonic()
        patch = {"metadata": {"labels": {"env": "prod"}}}
        await asyncio.gather(
            *(self.client.patch(CLUSTERS, Key("", name), patch) for name in self.names[:MANY])
        )
        await self.decided({"prod": MANY})
        self.figures[f"{MANY} clusters relabelled, s"] = time.monotonic() - began

        began, cpu = time.monotonic(), self.processes.hub_seconds
        every = [f"many-{number}" for number in range(MANY)]
        await asyncio.gather(
            *(
                self.client.create(PLACEMENTS, self.thing(PLACEMENTS, name, SPACE, spec=ANYWHERE))
                for name in every
            )
        )
        await self.decided(dict.fromkeys(every, len(self.names)))
        self.figures[f"{MANY} Placements at once, s"] = time.monotonic() - began
        self.figures[f"{MANY} Placements at once: CPU of the hub, s"] = (
            self.processes.hub_seconds - cpu
        )
        self.figures["RSS of the hub, MB"] = self.processes.hub_mb

    async def decided(self, wanted: dict[str, int]) -> None:
        """Wait until Placements have decisions for so many clusters, and say so."""

        def holds() -> bool:
            counts = dict.fromkeys(wanted, 0)
            for each in self.watched[DECISIONS].items():
                name = part(each["metadata"], "labels").get(PLACEMENT_LABEL, "")
                if name in counts:
                    counts[name] += len(items(each, "status", "decisions"))
            said = {
                each["metadata"]["name"]: part(each, "status").get("numberOfSelectedClusters", 0)
                for each in self.watched[PLACEMENTS].items()
                if items(each, "status", "conditions")
            }
            return all(counts[name] == said.get(name) == count for name, count in wanted.items())

        await until(holds, f"{len(wanted)} Placements are decided", seconds=DONE_SECONDS)


async def turn(pool: Pool, name: str, folder: Path, *, clusters: int) -> Figures:
    """The figures of one side, from an empty cluster on."""
    lents = await lend_rested(pool, 1)
    folder.mkdir()
    async with connected(lents) as (client,):
        ground = Ground(lents[0], client, (), folder)
        async with SIDES[name](ground) as processes:
            work = HubWork(ground, clusters, processes)
            watching = [asyncio.create_task(each.run()) for each in work.watched.values()]
            try:
                for each in work.watched.values():
                    await asyncio.wait_for(each.synced.wait(), 60)
                await work.register()
                await work.accept()
                await work.place()
            finally:
                for task in watching:
                    task.cancel()
    print(f"{name}: {clusters} clusters", json.dumps(work.figures), flush=True)
    return work.figures


def main() -> None:
    """Measure and print."""
    parser = parser_of("Compare hubs with many clusters.", list(SIDES))
    parser.add_argument("--clusters", type=int, default=300)
    arguments = parser.parse_args()

    async def one(pool: Pool, name: str, folder: Path) -> Figures:
        return await turn(pool, name, folder, clusters=arguments.clusters)

    hold(arguments, list(SIDES), one, GOALS)


if __name__ == "__main__":
    main()
