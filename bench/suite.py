"""knfleet, the Knative Operator and a bare client do the same on the same clusters, turn by turn.

    python -m bench.suite [--rounds 3] [--spokes 8] [--cold] [--only contest|hung] [--out FOLDER]

Every turn begins with empty clusters and a fresh process. The first round, with one spoke, is not
counted: it reads files from disk. The figures are written as a table for people, as JSON for the
next run to compare with, and as plots.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

from bench import floor
from bench.contestants import knative_operator, knfleet
from bench.machine import machine
from bench.report import FLOOR, OURS, THEIRS, Results, read_results, write_report
from bench.scenarios import Figures
from bench.turns import hung, turn
from tests.ground import Pool
from tests.peers.goproject import GoProject, go_project
from tests.peers.laboratory import Printed

Keep = Callable[[], None]
"""Called when there are new figures, so that a run that is stopped leaves what it found."""


async def contest(
    project: GoProject, found: Results, rounds: range, *, spokes: int, folder: Path, keep: Keep
) -> None:
    """The figures of all, by name, one after the other and in turns."""
    contestants = (knative_operator(project, name=THEIRS), knfleet(project.kodata))
    pool = Pool(folder / "ground")
    try:
        for number in rounds:
            for each in contestants:
                where = folder / f"{number}-{each.name.replace(' ', '-')}"
                figures = await turn(pool, each, where, spokes=spokes if number else 1)
                note(found, each.name, number, figures)
            where = folder / f"{number}-floor"
            figures = await floor.turn(pool, project.kodata, where, spokes=spokes if number else 1)
            note(found, FLOOR, number, figures)
            if number:
                keep()
    finally:
        pool.close()


def note(found: Results, name: str, number: int, figures: Figures) -> None:
    """Keep the figures of a turn, and show them to who waits."""
    shown = ", ".join(
        f"{what} {'-' if value is None else round(value, 2)}" for what, value in figures.items()
    )
    print(f"round {number}, {name}: {shown}", flush=True)
    if number:
        found[name].append(figures)


async def contest_hung(
    project: GoProject, held: list[Figures], rounds: range, *, folder: Path, keep: Keep
) -> None:
    """How much knfleet is held up by spokes that hang, round by round."""
    pool = Pool(folder / "ground")
    found: Results = {OURS: held}
    try:
        for number in rounds:
            where = folder / f"hung-{number}"
            figures = await hung(pool, knfleet(project.kodata), where, first=number % 2 == 1)
            note(found, OURS, number, figures)
            if number:
                keep()
    finally:
        pool.close()


class Findings:
    """Everything that was found, written down whenever there is more."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.where, self.before = machine(), read_results(out)
        self.found: Results = {THEIRS: [], OURS: [], FLOOR: []}
        self.held: list[Figures] = []
        self.page = ""

    def keep(self) -> None:
        """Write a report of what there is by now."""
        nothing: Figures = {}
        pairs = zip_longest(self.found[OURS], self.held, fillvalue=nothing)
        merged = {**self.found, OURS: [{**one, **other} for one, other in pairs]}
        self.page = write_report(self.out, merged, self.where, self.before)


async def run(arguments: argparse.Namespace, findings: Findings, folder: Path) -> None:
    """Everything that was asked for."""
    project = await go_project(Printed())
    rounds = range(1 if arguments.cold else 0, arguments.rounds + 1)
    keep = findings.keep
    if arguments.only != "contest":
        place = folder / "hung"
        place.mkdir()
        await contest_hung(project, findings.held, rounds, folder=place, keep=keep)
    if arguments.only != "hung":
        place = folder / "contest"
        place.mkdir()
        spokes = arguments.spokes
        await contest(project, findings.found, rounds, spokes=spokes, folder=place, keep=keep)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="Compare knfleet with the Knative Operator.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spokes", type=int, default=8)
    parser.add_argument("--cold", action="store_true", help="without the round before the first")
    parser.add_argument("--only", choices=("contest", "hung"), help="one part alone")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"))
    arguments = parser.parse_args()
    findings = Findings(arguments.out)
    with tempfile.TemporaryDirectory(prefix="knfleet-bench-") as folder:
        asyncio.run(run(arguments, findings, Path(folder)))
    print(findings.page)


if __name__ == "__main__":
    main()
