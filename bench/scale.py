"""One operator and many spokes: what it costs to install, restart, change, be disturbed and idle.

    python -m bench.scale [--spokes 100] [--plugin secretreader|script] [--real] [--json FILE]
    python -m bench.scale --replicas 3 …

The hub is a real API server with a ClusterProfile and a KnativeServing for each spoke; the spokes
are fake API servers, each with a port, a CA and a token, in processes of their own. With replicas,
the spokes are shared; one is killed, and another joins. CPU is told in seconds of a core, since the
spokes share this machine with what is measured. Everything has a time limit, and nothing is left
afterwards.
"""

import argparse
import asyncio
import json
import os
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from bench.requests import READS, WRITES, by_verb, requests
from bench.stopping import measured
from testbed import small_release
from testbed.clusters import Pool
from testbed.fakes.lean.farm import overlapping
from testbed.peers.goproject import go_project
from testbed.printed import Printed
from testbed.scale import NOTHING, Stage, a_stage

Figures = dict[str, float]
MIB = 2**20
IDLE_SECONDS = 60.0
FLAPS = 3
DOWN_SECONDS = 12.0
UP_SECONDS = 8.0
LOST_FILE = "a connection has lost its file"
"""What the operator says when the event loop and the system disagree about a file."""
GOALS = {
    ("restart to steady", "s"): 60.0,
    ("one joined", "s"): 20.0,
    ("one killed", "s"): 20.0,
    ("idle", "RSS per spoke, MiB"): 1.0,
    ("idle", "CPU, % of a core"): 10.0,
}


class Table:
    """The figures of all phases."""

    def __init__(self, stage: Stage, keep: Callable[[dict[str, Figures]], None]) -> None:
        self.stage = stage
        self.keep = keep
        """Is given all that is known after each phase, for a run may be stopped at any time."""
        self.phases: dict[str, Figures] = {}

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncGenerator[Figures, None]:
        """Measure what happens in a block; what it adds itself comes first."""
        stage, figures = self.stage, self.phases.setdefault(name, {})
        asked, counts = await requests(stage.hub.client), await stage.farm.counts()
        farm, began = stage.farm.cpu_seconds(), time.monotonic()
        before = stage.costs()
        yield figures
        after, seconds = stage.costs(), time.monotonic() - began
        used = sum((cost - before.get(pid, NOTHING) for pid, cost in after.items()), NOTHING)
        figures.setdefault("s", seconds)
        figures["operator CPU, s"] = used.cpu_seconds
        figures["plugin CPU, s"] = used.plugin_seconds
        figures["spokes' CPU, s"] = stage.farm.cpu_seconds() - farm
        more, hub = await stage.farm.counts(), await requests(stage.hub.client) - asked
        figures["handshakes per spoke"] = (more.handshakes - counts.handshakes) / stage.size
        total = sum(more.requests.values()) - sum(counts.requests.values())
        figures["requests per spoke"] = total / stage.size
        figures["hub reads per s"] = by_verb(hub, READS) / seconds
        figures["hub writes per s"] = by_verb(hub, WRITES) / seconds
        figures["connections per spoke"] = more.connections / stage.size
        figures["RSS, MiB"] = stage.cost().memory_bytes / MIB
        figures["load"] = os.getloadavg()[0]
        print(name, {key: round(value, 2) for key, value in figures.items()}, flush=True)
        self.keep(self.phases)


async def measure(table: Table, limit: float, *, idle_seconds: float) -> None:
    """All phases, one after the other."""
    stage = table.stage
    await stage.start()
    await stage.hub.client.version()
    async with table.phase("empty"):
        await asyncio.sleep(10)
    empty = table.phases["empty"]["RSS, MiB"]
    async with table.phase("install all") as figures:
        figures["s"] = await stage.install(limit)
        await stage.steady(limit)
    async with table.phase("restart to steady") as figures:
        figures["s"] = await stage.restart(limit)
    async with table.phase("change all") as figures:
        figures["s"] = await stage.change("changed", limit)
        await stage.steady(limit)
    async with table.phase("5 % flapping") as figures:
        figures.update(await flap(stage, limit))
    async with table.phase("idle") as figures:
        before, began = stage.cost(), time.monotonic()
        await asyncio.sleep(idle_seconds)
        used, seconds = stage.cost() - before, time.monotonic() - began
        figures["CPU, % of a core"] = 100 * used.cpu_seconds / seconds
        memory = stage.cost().memory_bytes / MIB
        figures["RSS per spoke, MiB"] = (memory - empty) / stage.size


async def measure_shared(table: Table, limit: float, *, replicas: int) -> None:
    """What several operators do that share the spokes, when another joins and one is killed.

    A change is made everywhere only when every spoke is somebody's again.
    """
    stage = table.stage
    for number in range(replicas):
        await stage.start("--share-spokes", number=number)
    await stage.shared_by(replicas, limit)
    async with table.phase("install all") as figures:
        figures["s"] = await stage.install(limit)
        await stage.steady(limit)
        shares = [len(share) for share in (await stage.shares()).values()]
        figures["smallest share"], figures["largest share"] = min(shares), max(shares)
    async with table.phase("one joined") as figures:
        began = time.monotonic()
        await stage.start("--share-spokes", number=replicas)
        figures["all agree, s"] = await stage.shared_by(replicas + 1, limit)
        await stage.change("joined", limit)
        figures["s"] = time.monotonic() - began
        await stage.steady(limit)
    async with table.phase("one killed") as figures:
        began = time.monotonic()
        victim, *stage.operators = stage.operators
        await victim.kill()
        await stage.change("killed", limit)
        figures["s"] = time.monotonic() - began
        figures["all agree, s"] = figures["s"] + await stage.shared_by(replicas, limit)
        await stage.steady(limit)
    written = await stage.farm.written()
    both = overlapping(written)
    print(f"{sum(each.count for each in written)} writes by {len({each.who for each in written})}")
    assert not both, f"spokes that two wrote on at the same time: {both}"


async def flap(stage: Stage, limit: float) -> Figures:
    """Cut some spokes off and let them back, while a healthy one is changed again and again."""
    names = [place.name for place in stage.farm.places]
    random.seed(7)
    flapping = random.sample(names, max(1, len(names) // 20))
    healthy = [place for place in stage.farm.places if place.name not in set(flapping)]
    waits: list[float] = []
    for number in range(FLAPS):
        await stage.farm.behave(flapping[::2], "cut")
        await stage.farm.behave(flapping[1::2], "hung")
        began = time.monotonic()
        while time.monotonic() - began < DOWN_SECONDS:
            word = f"{number}-{len(waits)}"
            waits.append(await stage.change_one(random.choice(healthy).name, word, limit))
            await asyncio.sleep(0.5)
        await stage.farm.behave(flapping, "well")
        await asyncio.sleep(UP_SECONDS)
    back = time.time()
    await stage.all_ready(limit)
    done = await stage.steady(limit)
    waits.sort()
    return {
        "back to steady, s": max(0.0, done - back),
        "a change on a healthy spoke, median, s": waits[len(waits) // 2],
        "a change on a healthy spoke, longest, s": waits[-1],
    }


async def run(
    arguments: argparse.Namespace, keep: Callable[[dict[str, Figures]], None], folder: Path
) -> dict[str, Figures]:
    """Set the stage, and measure."""
    if arguments.real:
        releases = (await go_project(Printed())).kodata
    else:
        (folder / "releases").mkdir()
        releases = small_release.write(folder / "releases")
    pool = Pool(folder / "ground")
    try:
        (lent,) = await pool.lend(1)
        async with a_stage(
            lent, folder, releases, spokes=arguments.spokes, plugin=arguments.plugin
        ) as stage:
            if arguments.real:
                stage.spec = {"version": "1.23.0", "ingress": {"kourier": {"enabled": True}}}
            if arguments.latency:
                await stage.farm.slow(arguments.latency / 1000)
            limit = 120 + arguments.spokes * 1.5
            table = Table(stage, keep)
            if arguments.replicas > 1:
                await measure_shared(table, limit, replicas=arguments.replicas)
            else:
                await measure(table, limit, idle_seconds=arguments.idle)
            lost = sum(log.read_text().count(LOST_FILE) for log in folder.glob("operator*.log"))
            print(f"connections that lost their files: {lost}")
            return table.phases
    finally:
        pool.close()


def table(phases: dict[str, Figures]) -> str:
    """The figures as Markdown, a column for each phase."""
    names: list[str] = []
    for figures in phases.values():
        names += [name for name in figures if name not in names]
    lines = [row(("", *phases)), row(["---"] * (len(phases) + 1))]
    for name in names:
        cells = [shown(phases[phase].get(name), (phase, name)) for phase in phases]
        lines.append(row((name, *cells)))
    return "\n".join(lines)


def shown(value: float | None, place: tuple[str, str]) -> str:
    """A figure, with its goal if it has one."""
    if value is None:
        return ""
    text = f"{value:.0f}" if value >= 100 else f"{value:.2f}"
    goal = GOALS.get(place)
    return text if goal is None else f"{text} ({'≤' if value <= goal else 'not ≤'} {goal:g})"


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure one operator with many spokes.")
    parser.add_argument("--spokes", type=int, default=100)
    parser.add_argument("--replicas", type=int, default=1, help="operators that share the spokes")
    parser.add_argument("--plugin", choices=("secretreader", "script"), default="secretreader")
    parser.add_argument("--real", action="store_true", help="Knative's own release, with Kourier")
    parser.add_argument("--latency", type=float, default=0, help="of spokes, in milliseconds")
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds")
    parser.add_argument("--json", type=Path, help="where to keep all figures")
    arguments = parser.parse_args()
    before = os.getloadavg()
    result = {name: getattr(arguments, name) for name in ("spokes", "replicas", "plugin")}

    def keep(phases: dict[str, Figures]) -> None:
        if arguments.json is not None:
            known = {**result, "phases": phases, "load": [before, os.getloadavg()]}
            arguments.json.write_text(json.dumps(known, indent=2) + "\n")

    phases = measured(partial(run, arguments, keep))
    print(f"{table(phases)}\n\n{', '.join(f'{key}: {value}' for key, value in result.items())};")
    print(f"load {before[0]:.1f} before, {os.getloadavg()[0]:.1f} after; {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
