"""knfleet, Open Cluster Management and a bare client deliver the same works, turn by turn.

    python -m bench.fleet.works [--rounds 3] [--works 200] [--spokes 2] [--json FILE]

Every turn begins with empty clusters and fresh processes. The bare client makes the writes that an
agent cannot avoid, on the hub and on the spoke, and nothing else: it is the floor.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.fleet.contest import connected, hold, parser_of
from bench.fleet.floor import Floor
from bench.fleet.sides import FLOOR, OURS, THEIRS, Ground, Processes, Started, knfleet, ocm
from bench.knative.scenarios import Figures
from bench.requests import WRITES, Coded, coded_requests
from bench.resting import lend_rested
from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS
from knfleet.api.meta import Key, Object
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.apply.manifest_fields import part
from knfleet.kube.cache.informer import Informer
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed.clusters import Pool
from testbed.waiting import until

IDLE_SECONDS = 60.0
SINGLE = 20
BACK_SECONDS = 20.0
"""What is not repaired by then counts as not at all."""
DONE_SECONDS = 600.0
GOALS = {
    "works of a ConfigMap: Applied and Available, s": "≤ 0.6 of OCM",
    "works of a ConfigMap and a Deployment: Applied and Available, s": "≤ 0.8 of OCM",
    "writes to the hub per work: create": "≤ 3",
    "writes to the hub per work: change": "≤ 1",
    "writes to the hub per work: delete": "≤ 2",
    "refused conflicts on the hub": "0",
    "requests to a spoke per work: create": "≤ 6 with delete",
    "idle minute: requests to a spoke": "≤ 10",
    "idle minute: CPU of one spoke's agents, s": "≤ 0.3",
    "feedback after an object changed, s": "≤ 1",
    "deleted object is back, s": "≤ 2",
    "one work when idle: create to Applied, median, s": "≤ 1.3 of OCM",
    "one field of all works changed: on all spokes, s": "≤ 0.5 of OCM",
    "all works deleted: works and objects gone, s": "≤ 0.5 of OCM",
    "RSS of one spoke's agents, MB": "≤ 80",
    "RSS of the hub, MB": "≤ 150",
}


def config_map(name: str, value: str) -> Object:
    """A small object."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"value": value},
    }


def deployment(name: str) -> Object:
    """A workload without pods."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "example.com/none"}]},
            },
        },
    }


def work(cluster: str, name: str, manifests: Sequence[Object], **spec: Any) -> Object:
    """A work for a cluster."""
    return {
        "apiVersion": WORKS.api_version,
        "kind": WORKS.kind,
        "metadata": {"name": name, "namespace": cluster},
        "spec": {"workload": {"manifests": list(manifests)}, **spec},
    }


def is_done(manifest: Object) -> bool:
    """Whether a work is Applied and Available in its newest generation."""
    generation = manifest["metadata"]["generation"]
    conditions: list[Object] = manifest.get("status", {}).get("conditions") or []
    done = {
        each["type"]
        for each in conditions
        if each["status"] == "True" and each.get("observedGeneration", generation) == generation
    }
    return {"Applied", "Available"} <= done


class Delivery:
    """Works on a hub, and what became of them."""

    def __init__(self, ground: Ground, count: int, processes: Processes) -> None:
        self.ground = ground
        self.count = count
        self.processes = processes
        self.informer = Informer(ground.hub, WORKS)
        self.clusters = [ground.cluster(index) for index in range(len(ground.spokes))]
        self.figures: Figures = {}

    @property
    def title(self) -> str:
        """How many works there are."""
        return f"{len(self.clusters)} spokes with {self.count} works each"

    async def everywhere(self, act: Callable[[str, str], Awaitable[object]]) -> None:
        """Do something to all works at once."""
        every = [
            act(cluster, f"work-{index}")
            for index in range(self.count)
            for cluster in self.clusters
        ]
        await asyncio.gather(*every)

    async def settled(self) -> None:
        """Wait until all works are Applied and Available."""
        total = self.count * len(self.clusters)

        def holds() -> bool:
            return sum(map(is_done, self.informer.items())) == total

        await until(holds, "all works are Applied and Available", seconds=DONE_SECONDS)

    async def counted(self) -> tuple[Coded, Coded]:
        """What hub and first spoke were asked so far."""
        first = self.ground.spokes[0][1]
        return await coded_requests(self.ground.hub), await coded_requests(first)

    async def create(self, kind: str, manifests: Callable[[str], Sequence[Object]]) -> None:
        """Create all works, and wait until they are done."""
        hub, spoke = await self.counted()
        began = time.monotonic()
        await self.everywhere(
            lambda cluster, name: self.ground.hub.create(
                WORKS, work(cluster, name, manifests(name))
            )
        )
        await self.settled()
        self.figures[f"works of {kind}: Applied and Available, s"] = time.monotonic() - began
        await self.count_requests("create", hub, spoke, own_hub_writes=1)

    async def count_requests(
        self, phase: str, hub: Coded, spoke: Coded, *, own_hub_writes: int
    ) -> None:
        """What it took of hub and spoke, for each work, without what this program sent."""
        hub_now, spoke_now = await self.counted()
        total = self.count * len(self.clusters)
        writes, conflicts = hub_writes(hub_now - hub)
        name = f"writes to the hub per work: {phase}"
        self.figures.setdefault(name, writes / total - own_hub_writes)
        key = "refused conflicts on the hub"
        self.figures[key] = (self.figures.get(key) or 0) + conflicts
        asked = sum(
            count
            for (verb, resource, _), count in (spoke_now - spoke).items()
            if verb != "WATCH" and resource in ("configmaps", "deployments", APPLIED_WORKS.plural)
        )
        self.figures.setdefault(f"requests to a spoke per work: {phase}", asked / self.count)

    async def change(self) -> None:
        """Change one field of all works, and wait until all spokes have it."""
        hub, spoke = await self.counted()
        began = time.monotonic()

        async def patch(cluster: str, name: str) -> None:
            manifests = [config_map(name, "changed")]
            changed = {"spec": {"workload": {"manifests": manifests}}}
            await self.ground.hub.patch(WORKS, Key(cluster, name), changed)

        await self.everywhere(patch)
        for _, client in self.ground.spokes:
            await until(partial(self.has_changed, client), "spokes", seconds=DONE_SECONDS)
        self.figures["one field of all works changed: on all spokes, s"] = time.monotonic() - began
        await self.settled()
        await self.count_requests("change", hub, spoke, own_hub_writes=1)

    async def has_changed(self, client: Client) -> bool:
        """Whether a spoke has the newest content of all works."""
        found = (await client.list(CONFIG_MAPS, "default")).items
        changed = [each for each in found if part(each, "data").get("value") == "changed"]
        return len(changed) == self.count

    async def delete(self) -> None:
        """Delete all works, and wait until nothing of them is left."""
        hub, spoke = await self.counted()
        began = time.monotonic()
        await self.everywhere(
            lambda cluster, name: self.ground.hub.delete(WORKS, Key(cluster, name))
        )
        await until(lambda: not self.informer.items(), "works are gone", seconds=DONE_SECONDS)
        for _, client in self.ground.spokes:
            await until(partial(self.is_empty, client), "objects are gone", seconds=DONE_SECONDS)
        name = "all works deleted: works and objects gone, s"
        self.figures.setdefault(name, time.monotonic() - began)
        await self.count_requests("delete", hub, spoke, own_hub_writes=1)

    async def is_empty(self, client: Client) -> bool:
        """Whether a spoke has nothing of the works any more."""
        left = [
            each["metadata"]["name"]
            for resource in (CONFIG_MAPS, DEPLOYMENTS)
            for each in (await client.list(resource, "default", metadata_only=True)).items
        ]
        applied = await client.list(APPLIED_WORKS, metadata_only=True)
        return not applied.items and set(left) <= {"kube-root-ca.crt"}

    async def idle(self) -> None:
        """What is asked of a spoke in a minute in which nothing happens."""
        await asyncio.sleep(5)
        _, before = await self.counted()
        spent, began = self.processes.agent_seconds, time.monotonic()
        await asyncio.sleep(began + IDLE_SECONDS - time.monotonic())
        _, after = await self.counted()
        asked = {
            key: count
            for key, count in (after - before).items()
            if key[0] != "WATCH" and key[1] in ("configmaps", APPLIED_WORKS.plural, "namespaces")
        }
        used = self.processes.agent_seconds - spent
        self.figures["idle minute: requests to a spoke"] = sum(asked.values())
        self.figures["idle minute: CPU of one spoke's agents, s"] = used / len(self.clusters)
        self.figures["RSS of one spoke's agents, MB"] = self.processes.agent_mb
        self.figures["RSS of the hub, MB"] = self.processes.hub_mb

    async def single(self) -> None:
        """One work after the other, when nothing else happens."""
        times: list[float] = []
        cluster = self.clusters[0]
        for index in range(SINGLE):
            name = f"single-{index}"
            began = time.monotonic()
            await self.ground.hub.create(WORKS, work(cluster, name, [config_map(name, "one")]))
            await until(partial(self.is_single_done, cluster, name), f"{name} is done")
            times.append(time.monotonic() - began)
        median = statistics.median(times)
        self.figures["one work when idle: create to Applied, median, s"] = median
        for index in range(SINGLE):
            await self.ground.hub.delete(WORKS, Key(cluster, f"single-{index}"))
        await until(lambda: not self.informer.items(), "works are gone", seconds=DONE_SECONDS)

    def is_single_done(self, cluster: str, name: str) -> bool:
        """Whether one work is done."""
        found = self.informer.get(Key(cluster, name))
        return found is not None and is_done(found)

    async def feedback(self) -> None:
        """How long a change of an object takes to the hub, and how long a deleted one is away."""
        cluster, spoke = self.clusters[0], self.ground.spokes[0][1]
        paths = [{"name": "seen", "path": ".metadata.labels.seen"}]
        identifier = {
            "group": "",
            "resource": "configmaps",
            "namespace": "default",
            "name": "feedback",
        }
        rules = [{"type": "JSONPaths", "jsonPaths": paths}]
        options = [{"resourceIdentifier": identifier, "feedbackRules": rules}]
        manifests = [config_map("feedback", "one")]
        wanted = work(cluster, "feedback", manifests, manifestConfigs=options)
        await self.ground.hub.create(WORKS, wanted)
        await until(partial(self.is_single_done, cluster, "feedback"), "the work is done")
        key = Key("default", "feedback")
        await spoke.patch(CONFIG_MAPS, key, {"metadata": {"labels": {"seen": "yes"}}})
        began = time.monotonic()

        def is_reported() -> bool:
            found = self.informer.get(Key(cluster, "feedback"))
            return '"yes"' in json.dumps((found or {}).get("status"))

        await until(is_reported, "feedback is reported")
        self.figures["feedback after an object changed, s"] = time.monotonic() - began
        await spoke.delete(CONFIG_MAPS, key)
        began = time.monotonic()
        self.figures["deleted object is back, s"] = None
        while time.monotonic() - began < BACK_SECONDS:
            try:
                await spoke.get(CONFIG_MAPS, "feedback", "default")
            except NotFound:
                await asyncio.sleep(0.02)
                continue
            self.figures["deleted object is back, s"] = time.monotonic() - began
            break
        await self.ground.hub.delete(WORKS, Key(cluster, "feedback"))
        await until(lambda: not self.informer.items(), "the work is gone", seconds=DONE_SECONDS)


def hub_writes(asked: Coded) -> tuple[int, int]:
    """Writes of works on the hub, and how many of them were refused as conflicts."""
    writes = {
        key: count for key, count in asked.items() if key[0] in WRITES and key[1] == WORKS.plural
    }
    return sum(writes.values()), sum(count for key, count in writes.items() if key[2] == "409")


async def turn(
    pool: Pool, name: str, started: Started | None, folder: Path, *, works: int, spokes: int
) -> Figures:
    """The figures of one side, from empty clusters on."""
    lents = await lend_rested(pool, 1 + spokes)
    folder.mkdir()
    async with connected(lents) as clients:
        pairs = list(zip(lents[1:], clients[1:], strict=True))
        ground = Ground(lents[0], clients[0], pairs, folder)
        side = Floor(ground).started() if started is None else started(ground)
        async with side as processes:
            delivery = Delivery(ground, works, processes)
            watching = asyncio.create_task(delivery.informer.run())
            try:
                await delivery.informer.synced.wait()
                await delivery.create("a ConfigMap", lambda each: [config_map(each, "first")])
                if started is not None:
                    await delivery.idle()
                await delivery.change()
                await delivery.delete()
                await delivery.create(
                    "a ConfigMap and a Deployment",
                    lambda each: [config_map(each, "first"), deployment(each)],
                )
                await delivery.delete()
                if started is not None:
                    await delivery.single()
                    await delivery.feedback()
            finally:
                watching.cancel()
    print(f"{name}: {delivery.title}", json.dumps(delivery.figures), flush=True)
    return delivery.figures


SIDES: dict[str, Started | None] = {THEIRS: ocm, OURS: knfleet, FLOOR: None}


def main() -> None:
    """Measure and print."""
    parser = parser_of("Compare the delivery of works.", list(SIDES))
    parser.add_argument("--works", type=int, default=200, help="for each spoke")
    parser.add_argument("--spokes", type=int, default=2)
    arguments = parser.parse_args()

    async def one(pool: Pool, name: str, folder: Path) -> Figures:
        return await turn(
            pool, name, SIDES[name], folder, works=arguments.works, spokes=arguments.spokes
        )

    hold(arguments, list(SIDES), one, GOALS)


if __name__ == "__main__":
    main()
