"""What knfleet sends during an installation, when, and who uses how much CPU for it.

    python -m bench.knative.timeline [--spokes 1] [--floor] [--requests]

Beside it, with `--floor`, what a bare client needs for the same objects on the same clusters.
"""

import argparse
import contextlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.knative import floor
from bench.knative.contestants import Contestant, Running, running_knfleet
from bench.knative.scenarios import MIB, SPEC
from bench.knative.spokes import field, install
from bench.resting import lend_rested
from bench.stopping import measured
from bench.usage import usage, used
from knfleet.kube.client.verbs import Client
from testbed.clusters import Pool
from testbed.operators import Hub, Operator
from testbed.peers.goproject import go_project
from testbed.printed import Printed

NAME = re.compile(r"^(/apis?(?:/[^/]+)?/v[^/]+(?:/namespaces/[^/]+)?/[^/?]+)/[^/?]+")


class TracedOperator(Operator):
    """`knfleet operator` that writes down all requests."""

    module = "bench.knative.traced"


def traced(releases: Path, trace: Path) -> Contestant:
    """knfleet, writing down all requests."""

    @contextlib.asynccontextmanager
    async def started(hub: Hub, folder: Path, flags: Sequence[str]) -> AsyncGenerator[Running]:
        operator = TracedOperator(hub.lent.kubeconfig, releases, folder / "knfleet.log")
        environment = {"KNFLEET_TRACE": str(trace)}
        async with running_knfleet(operator, flags, environment) as running:
            yield running

    return Contestant("knfleet", started)


async def measure(pool: Pool, contestant: Contestant, folder: Path, spokes: int) -> float:
    """Install, and print who used how much CPU; when it began."""
    async with (
        field(pool, folder, spokes=spokes) as ground,
        contestant.started(ground.hub, folder, ground.flags) as operator,
    ):
        lent = ground.hub.lent
        before, began = usage(lent, operator.pid), time.time()
        seconds = (await install(ground.hub, ground.spokes)).ready
        after = usage(lent, operator.pid)
        print(f"Ready after {seconds:.2f} s; RSS {operator.memory_bytes / MIB:.0f} MiB")
        show_usage(before, after)
    return began


async def measure_floor(pool: Pool, releases: Path, folder: Path, spokes: int) -> None:
    """The same by a bare client."""
    _, *others = await lend_rested(pool, spokes + 1)
    async with Client(others[0].connection) as client:
        what = await floor.load(releases, folder, SPEC, client)
    before = usage(others[0])
    reached = await floor.install(others, what)
    print(
        f"floor: applied after {reached.applied:.2f} s, Deployments Available after"
        f" {reached.available:.2f} s, Jobs complete after {reached.complete:.2f} s"
    )
    show_usage(before, usage(others[0]))


def show_usage(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Print CPU seconds by who used them."""
    found = used(before, after)
    parts = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    print(f"CPU {sum(found.values()):.2f} s: {parts}")


def show_requests(trace: Path, began: float, *, every: bool) -> None:
    """Print requests by verb and kind, or each of them."""
    # Whoever is killed may leave half a line at the end.
    whole = trace.read_text().rpartition("\n")[0]
    lines = [json.loads(line) for line in whole.splitlines()]
    lines = sorted((each for each in lines if each["at"] >= began), key=lambda each: each["at"])
    counted: Counter[str] = Counter()
    for each in lines:
        watch = "watch=true" in each["path"]
        path = NAME.sub(r"\1/NAME", each["path"].partition("?")[0])
        counted[f"{each['port']} {'WATCH' if watch else each['method']} {path}"] += 1
        if every:
            at, took = each["at"] - began, each["seconds"]
            print(
                f"{at:7.3f} +{took:.3f} c{each['connect']:.3f} {each['port']} {each['code']}"
                f" {'WATCH' if watch else each['method']} {each['path'][:150]}"
            )
    connections = sum(1 for each in lines if each["connect"])
    print(f"{len(lines)} requests, {connections} connections")
    for name, count in sorted(counted.items()):
        print(f"{count:5} {name}")


async def run(arguments: argparse.Namespace, folder: Path) -> None:
    """Measure what was asked for."""
    project = await go_project(Printed())
    pool = Pool(folder / "ground")
    trace = folder / "trace"
    try:
        for number in range(arguments.rounds):
            if arguments.floor:
                await measure_floor(pool, project.kodata, folder / "parsed", arguments.spokes)
            trace.write_text("")
            where = folder / f"round-{number}"
            began = await measure(pool, traced(project.kodata, trace), where, arguments.spokes)
            if arguments.requests or number == arguments.rounds - 1:
                show_requests(trace, began, every=arguments.requests)
    finally:
        pool.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Show what an installation consists of.")
    parser.add_argument("--spokes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--floor", action="store_true", help="beside a bare client")
    parser.add_argument("--requests", action="store_true", help="show each request")
    arguments = parser.parse_args()
    measured(partial(run, arguments))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
