"""knfleet, the Knative Operator and a bare client do the same on the same clusters, turn by turn.

    python -m bench.suite [--rounds 3] [--spokes 8] [--cold] [--only contest|hung] [--out FOLDER]

Every turn begins with empty clusters and a fresh process. The first round, with one spoke, is not
counted: it reads files from disk. The figures are written as a table for people, as JSON for the
next run to compare with, and as plots.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import floor
from bench.contestants import knative_operator, knfleet
from bench.machine import Machine, machine
from bench.report import FLOOR, OURS, THEIRS, Results, read_results, write_report
from bench.scenarios import Figures
from bench.turns import hung, turn
from tests.ground import Pool
from tests.peers.goproject import GoProject, go_project
from tests.peers.laboratory import Printed


async def contest(project: GoProject, rounds: range, spokes: int, folder: Path) -> Results:
    """The figures of all, by name, one after the other and in turns."""
    contestants = (knative_operator(project, name=THEIRS), knfleet(project.kodata))
    found: Results = {THEIRS: [], OURS: [], FLOOR: []}
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
    finally:
        pool.close()
    return found


def note(found: Results, name: str, number: int, figures: Figures) -> None:
    """Keep the figures of a turn, and show them to who waits."""
    shown = ", ".join(
        f"{what} {'-' if value is None else round(value, 2)}" for what, value in figures.items()
    )
    print(f"round {number}, {name}: {shown}", flush=True)
    if number:
        found[name].append(figures)


async def contest_hung(project: GoProject, rounds: range, folder: Path) -> list[Figures]:
    """How much knfleet is held up by spokes that hang, round by round."""
    pool = Pool(folder / "ground")
    found: Results = {OURS: []}
    try:
        for number in rounds:
            where = folder / f"hung-{number}"
            figures = await hung(pool, knfleet(project.kodata), where, first=number % 2 == 1)
            note(found, OURS, number, figures)
    finally:
        pool.close()
    return found[OURS]


async def run(arguments: argparse.Namespace, folders: Sequence[Path]) -> Results:
    """Everything that was asked for."""
    project = await go_project(Printed())
    found: Results = {THEIRS: [], OURS: [], FLOOR: []}
    rounds = range(1 if arguments.cold else 0, arguments.rounds + 1)
    if arguments.only != "hung":
        found = await contest(project, rounds, arguments.spokes, folders[0])
    if arguments.only != "contest":
        held = await contest_hung(project, rounds, folders[1])
        merged = found[OURS] or [{} for _ in held]
        found[OURS] = [one | other for one, other in zip(merged, held, strict=True)]
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="Compare knfleet with the Knative Operator.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spokes", type=int, default=8)
    parser.add_argument("--cold", action="store_true", help="without the round before the first")
    parser.add_argument("--only", choices=("contest", "hung"), help="one part alone")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"))
    arguments = parser.parse_args()
    before: Machine = machine()
    with tempfile.TemporaryDirectory(prefix="knfleet-bench-") as folder:
        places = [Path(folder) / name for name in ("contest", "hung")]
        for each in places:
            each.mkdir()
        found = asyncio.run(run(arguments, places))
    print(write_report(arguments.out, found, before, read_results(arguments.out)))


if __name__ == "__main__":
    main()
