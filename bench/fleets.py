"""A change of many clusters by a KnativeFleet in waves, beside the same change by hand at once.

    python -m bench.fleets [--spokes 100] [--waves 4] [--rounds 3] [--json FILE]

One hub process has the operator and the controllers of the fleet; the spokes are fake API servers
in processes of their own. Each round changes one word in all KnativeServings, first by a patch of
each of them, then by a patch of the KnativeFleet that has taken them over. What the hub's API
server was asked is told by its own count, until no spoke is asked any more.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from bench.requests import READS, WRITES, by_verb, requests
from bench.stopping import measured
from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import part
from knfleet.kube.cache.informer import Informer, StoreChange
from testbed import small_release
from testbed.clusters import Pool
from testbed.hub_process import HubProcess
from testbed.scale import FLEET, SMALL, Stage, a_stage
from testbed.waiting import until

NAME = "all"
FLAGS = ("--disable-ha", "--install-crds")
GOALS = {"seconds, ratio": 3.0, "requests, ratio": 1.2, "status writes per s": 1.0, "KB": 300.0}


class FleetLook:
    """What the KnativeFleet says, how often it is written, and how large it is."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.informer = Informer(stage.hub.client, KNATIVE_FLEETS)
        self.informer.on_change(self.note)
        self.changed = asyncio.Event()
        self.statuses: list[tuple[float, Object]] = []
        """When the status was found to be another one."""
        self.largest = 0

    def note(self, change: StoreChange) -> None:
        """The fleet changed."""
        self.changed.set()
        if change.new is None:
            return
        self.largest = max(self.largest, len(msgspec.json.encode(change.new)))
        status = part(change.new, "status")
        if not self.statuses or self.statuses[-1][1] != status:
            self.statuses.append((time.monotonic(), status))

    async def complete(self, seconds: float) -> None:
        """Wait until the rollout of the present spec is complete."""
        async with asyncio.timeout(seconds):
            while not self.is_complete():
                self.changed.clear()
                await self.changed.wait()

    def is_complete(self) -> bool:
        """Whether the rollout of the present spec is complete."""
        found = self.informer.get(Key("", NAME))
        if found is None:
            return False
        status = part(found, "status")
        is_current = status.get("observedGeneration") == found["metadata"]["generation"]
        return is_current and status.get("phase") == "RolloutComplete"

    async def gone(self, seconds: float) -> None:
        """Wait until the fleet is gone."""
        async with asyncio.timeout(seconds):
            while self.informer.get(Key("", NAME)) is not None:
                self.changed.clear()
                await self.changed.wait()


def fleet(names: list[str], waves: int, word: str) -> Object:
    """A fleet of all spokes in waves of one size, the last one being that of the others."""
    size = -(-len(names) // waves)
    groups = [names[start : start + size] for start in range(0, len(names), size)]
    return {
        "apiVersion": KNATIVE_FLEETS.api_version,
        "kind": KNATIVE_FLEETS.kind,
        "metadata": {"name": NAME},
        "spec": {
            "clusters": {"namespace": FLEET, "selector": {}},
            "serving": {"spec": spec(word)},
            "strategy": {
                "waves": [
                    {"name": f"wave-{number}", "names": group}
                    for number, group in enumerate(groups[:-1], start=1)
                ],
            },
            "deletionPolicy": "Orphan",
        },
    }


def spec(word: str) -> Object:
    """The spec of each KnativeServing."""
    return {**SMALL, "config": {"network": {"scale-word": word}}}


Figures = dict[str, float]


@asynccontextmanager
async def counted(stage: Stage, limit: float) -> AsyncGenerator[Figures, None]:
    """Seconds that a block takes, and what the hub was asked until all is quiet again."""
    before, began = await requests(stage.hub.client), time.monotonic()
    cost, figures = stage.cost(), Figures()
    yield figures
    figures["s"] = time.monotonic() - began
    await stage.steady(limit)
    asked = await requests(stage.hub.client) - before
    figures["requests"] = by_verb(asked, READS | WRITES)
    figures["hub CPU, s"] = (stage.cost() - cost).cpu_seconds


async def compare(stage: Stage, look: FleetLook, word: str, *, waves: int, limit: float) -> Figures:
    """One round: the change by hand, then by a fleet that takes all over and lets go of them."""
    client, names = stage.hub.client, sorted(place.name for place in stage.farm.places)
    async with counted(stage, limit) as by_hand:
        await stage.change(f"{word}-hand", limit)
    await client.create(KNATIVE_FLEETS, fleet(names, waves, f"{word}-hand"))
    await look.complete(limit)
    await stage.steady(limit)
    look.statuses.clear()
    stage.wanted = {
        key.name: each["metadata"]["generation"] + 1
        for key, each in stage.servings.store.objects.items()
    }
    stage.pending = set(names)
    async with counted(stage, limit) as by_fleet:
        change = {"spec": {"serving": {"spec": spec(f"{word}-fleet")}}}
        await client.patch(KNATIVE_FLEETS, Key("", NAME), change)
        await stage.all_ready(limit)
        await look.complete(limit)
    moments = [moment for moment, _ in look.statuses]
    await client.delete(KNATIVE_FLEETS, Key("", NAME))
    await look.gone(limit)
    await stage.steady(limit)
    return {
        "by hand, s": by_hand["s"],
        "by fleet, s": by_fleet["s"],
        "seconds, ratio": by_fleet["s"] / by_hand["s"],
        "by hand, requests": by_hand["requests"],
        "by fleet, requests": by_fleet["requests"],
        "requests, ratio": by_fleet["requests"] / by_hand["requests"],
        "by hand, hub CPU s": by_hand["hub CPU, s"],
        "by fleet, hub CPU s": by_fleet["hub CPU, s"],
        "status writes": len(moments),
        "status writes per s": (len(moments) - 1) / max(moments[-1] - moments[0], 1.0),
        "KB": look.largest / 1000,
    }


async def run(arguments: argparse.Namespace, folder: Path) -> list[Figures]:
    """Set the stage, and measure."""
    (folder / "releases").mkdir()
    releases = small_release.write(folder / "releases")
    pool = Pool(folder / "ground")
    limit = 180 + arguments.spokes * 3.0
    rounds: list[Figures] = []
    try:
        (lent,) = await pool.lend(1)
        async with a_stage(
            lent, folder, releases, spokes=arguments.spokes, plugin="script"
        ) as stage:
            stage.process = HubProcess
            await stage.start(*FLAGS)
            look = FleetLook(stage)
            await until(lambda: stage.hub.serves(KNATIVE_FLEETS), "KnativeFleets are served")
            following = asyncio.create_task(look.informer.run())
            try:
                took = await stage.install(limit)
                await stage.steady(limit)
                print(f"{stage.size} spokes installed in {took:.1f} s", flush=True)
                for number in range(arguments.rounds):
                    word = f"round-{number}"
                    found = await compare(stage, look, word, waves=arguments.waves, limit=limit)
                    rounds.append(found)
                    print({key: round(value, 2) for key, value in found.items()}, flush=True)
            finally:
                following.cancel()
                await asyncio.wait([following])
    finally:
        pool.close()
    return rounds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure changes by a KnativeFleet.")
    parser.add_argument("--spokes", type=int, default=100)
    parser.add_argument("--waves", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to keep all figures")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    rounds = measured(partial(run, arguments))
    print(
        f"\n| {arguments.spokes} spokes, {arguments.waves} waves | median | goal |\n|---|---|---|"
    )
    for name in rounds[0]:
        value, goal = median(each[name] for each in rounds), GOALS.get(name)
        met = "" if goal is None else f"≤ {goal:g}: {'met' if value <= goal else 'not met'}"
        print(f"| {name} | {value:.2f} | {met} |")
    print(f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after; {os.cpu_count()} cores")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rounds, indent=2) + "\n")


if __name__ == "__main__":
    main()
