"""knfleet and the Knative Operator do the same on the same API server, turn by turn.

    python -m bench.knative [--rounds 3] [--json FILE]

Every round begins with an empty cluster and a fresh process for each. The Knative Operator is there
twice: as it is shipped, with 10 requests a second, and with 1000, which is as good as no limit.
What is shown is the median of the rounds; the first round is not counted, as files are read from
disk. The ratios are ours to theirs. Reads of a forced pass may hold one or two of the cluster's own
controllers, which the server does not tell apart.
"""

import argparse
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.knative.contestants import AS_SHIPPED, Contestant, knative_operator, knfleet
from bench.knative.scenarios import SCENARIOS, Figures, Stage
from bench.resting import lend_rested
from bench.stopping import measured
from knfleet.kube.client.verbs import Client
from testbed.clusters import Pool
from testbed.operators import Hub
from testbed.peers.goproject import go_project
from testbed.peers.surroundings import ensure_namespace
from testbed.printed import Printed

GOALS = {
    "Serving + Kourier to Ready, s": "≤ 1/3 of theirs",
    "RSS with one installation, MiB": "≤ 90",
    "forced pass: reads": "0",
    "forced pass: writes": "0",
    "edited ConfigMap repaired, s": "≤ 2",
    "edited Service repaired, s": "≤ 2",
    "deleted Deployment made anew, s": "≤ 2",
}


async def measure(pool: Pool, contestant: Contestant, folder: Path) -> Figures:
    """All figures of one operator, on a clean cluster."""
    (lent,) = await lend_rested(pool, 1)
    folder.mkdir()
    figures: Figures = {}
    async with Client(lent.connection) as client:
        hub = Hub(lent, client)
        await hub.prepare()
        await ensure_namespace(client, "knative-operator")
        async with contestant.started(hub, folder, ()) as operator:
            for scenario in SCENARIOS:
                figures |= await scenario(Stage(hub, operator))
    return figures


async def contest(rounds: int, folder: Path) -> dict[str, list[Figures]]:
    """The figures of both, by name, one after the other and in turns."""
    project = await go_project(Printed())
    contestants = (
        knative_operator(project, *AS_SHIPPED, name="Knative Operator"),
        knative_operator(project, name="Knative Operator, unlimited"),
        knfleet(project.kodata),
    )
    found: dict[str, list[Figures]] = {each.name: [] for each in contestants}
    pool = Pool(folder / "ground")
    try:
        for number in range(rounds + 1):
            for each in contestants:
                figures = await measure(pool, each, folder / f"{number}-{each.name}")
                if number:
                    found[each.name].append(figures)
    finally:
        pool.close()
    return found


def median(values: Sequence[float | None]) -> float | None:
    """The middle of some values; None when that is one that never came."""
    found = statistics.median(float("inf") if each is None else each for each in values)
    return None if found == float("inf") else found


def shown(value: float | None) -> str:
    """A figure for people."""
    if value is None:
        return "not within 15 s"
    return f"{value:.0f}" if value == int(value) or value >= 20 else f"{value:.2f}"


def table(found: dict[str, list[Figures]], goals: Mapping[str, str]) -> str:
    """The figures side by side, ours last, as Markdown."""
    *others, ours = found
    heads = ("", *others, ours, *(f"ratio to {each}" for each in others), "goal")
    lines = [row(heads), row(["---"] * len(heads))]
    for name in found[ours][0]:
        figures = {who: median([each[name] for each in found[who]]) for who in found}
        ratios = [ratio(figures[ours], figures[each]) for each in others]
        lines.append(row((name, *map(shown, figures.values()), *ratios, goals.get(name, ""))))
    return "\n".join(lines)


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def ratio(ours: float | None, theirs: float | None) -> str:
    """How much of their figure ours is."""
    return f"{ours / theirs:.2f}" if theirs and ours is not None else ""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Compare knfleet with the Knative Operator.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to keep all figures")
    arguments = parser.parse_args()
    before = os.getloadavg()
    found = measured(partial(contest, arguments.rounds))
    after = os.getloadavg()
    loads = f"load {before[0]:.1f} before, {after[0]:.1f} after; {os.cpu_count()} cores"
    print(f"{table(found, GOALS)}\n\n{arguments.rounds} rounds; {loads}")
    if arguments.json is not None:
        result = {"rounds": found, "load": {"before": before, "after": after}}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
