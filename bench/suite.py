"""knfleet, the Knative Operator and a bare client do the same on the same clusters, turn by turn.

    python -m bench.suite [--rounds 3] [--spokes 8] [--cold] [--only PART] [--out FOLDER]

Every turn begins with empty clusters and a fresh process. The first round, with one spoke, is not
counted: it reads files from disk. The figures are written as a table for people, as JSON for the
next run to compare with, and as plots.
"""

import argparse
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from bench.knative import floor
from bench.knative.contestants import knative_operator, knfleet
from bench.knative.scenarios import Figures
from bench.knative.turns import hung, new_spokes, paired_spokes, turn, turn_alone, turn_install
from bench.machine import machine
from bench.report import FLOOR, OURS, THEIRS, read_results, write_report
from bench.stopping import measured
from testbed.clusters import Pool
from testbed.peers.goproject import GoProject, go_project
from testbed.printed import Printed

HUNG_ROUNDS = 2
PAIR_ROUNDS = 3
"""What these two parts look for is small beside noise, and one of their rounds is short."""
PARTS = ("alone", "together", "pairs", "first", "hung")


class Turn(Protocol):
    """Measures somebody on clean clusters."""

    def __call__(self, pool: Pool, *, folder: Path) -> Awaitable[Figures]:
        """Its figures."""
        ...


class Contest:
    """Both operators and a bare client, one after the other and in turns."""

    def __init__(self, project: GoProject, findings: "Findings") -> None:
        self.releases = project.kodata
        self.contestants = (knative_operator(project, name=THEIRS), knfleet(project.kodata))
        self.findings = findings

    async def alone(self, rounds: range, folder: Path) -> None:
        """With one spoke: on a machine with nothing but that and its hub."""
        turns: dict[str, Turn] = {
            each.name: partial(turn_alone, contestant=each) for each in self.contestants
        }
        turns[FLOOR] = partial(floor.turn_alone, releases=self.releases)
        await self.take(turns, rounds, folder)

    async def together(self, rounds: range, spokes: int, folder: Path) -> None:
        """With many spokes."""
        turns: dict[str, Turn] = {
            each.name: partial(turn, contestant=each, spokes=spokes) for each in self.contestants
        }
        turns[FLOOR] = partial(floor.turn, releases=self.releases, spokes=spokes)
        await self.take(turns, rounds, folder)

    async def pairs(self, rounds: range, spokes: int, folder: Path) -> None:
        """knfleet and a bare client alone, many times, for the ratio of the two."""
        name, ours = paired_spokes(spokes), self.contestants[1]
        turns: dict[str, Turn] = {
            OURS: partial(turn_install, contestant=ours, spokes=spokes, name=name),
            FLOOR: partial(floor.turn, releases=self.releases, spokes=spokes, name=name),
        }
        await self.take(turns, rounds, folder)

    async def take(self, turns: dict[str, Turn], rounds: range, folder: Path) -> None:
        """Every one's turn in every round; who was first is last in the next.

        API servers answer faster the more they did before, so nobody may always be the last.
        """
        order = list(turns)
        with open_pool(folder) as pool:
            for number in rounds:
                for name in order:
                    figures = await turns[name](pool, folder=place(folder, number, name))
                    self.findings.note(name, number, figures)
                order = [*order[1:], order[0]]

    async def first(self, rounds: range, spokes: int, folder: Path) -> None:
        """The same with control planes that are new in each turn, one spoke and many."""
        for number in rounds:
            for count in (1, spokes):
                name = new_spokes(count)
                turns: dict[str, Turn] = {
                    each.name: partial(turn_install, contestant=each, spokes=count, name=name)
                    for each in self.contestants
                }
                turns[FLOOR] = partial(floor.turn, releases=self.releases, spokes=count, name=name)
                for who, measure in turns.items():
                    where = place(folder, number, f"{count}-{who}")
                    await self.take({who: measure}, range(number, number + 1), where)

    async def hung(self, rounds: range, folder: Path) -> None:
        """How much knfleet is held up by spokes that hang."""
        with open_pool(folder) as pool:
            for number in rounds:
                where, ours = place(folder, number, OURS), self.contestants[1]
                figures = await hung(pool, ours, where, first=number % 2 == 1)
                self.findings.note(OURS, number, figures)


@contextmanager
def open_pool(folder: Path) -> Generator[Pool]:
    """Clusters that are gone afterwards."""
    folder.mkdir()
    pool = Pool(folder / "ground")
    try:
        yield pool
    finally:
        pool.close()


def place(folder: Path, number: int, name: str) -> Path:
    """Where the files of a turn are."""
    return folder / f"{number}-{name.replace(' ', '-')}"


class Findings:
    """Everything that was found, written down whenever there is more."""

    def __init__(self, out: Path, *, is_part: bool = False) -> None:
        self.out = out
        self.where, self.before = machine(), read_results(out)
        self.found: dict[str, dict[int, Figures]] = {THEIRS: {}, OURS: {}, FLOOR: {}}
        if is_part and self.before is not None:
            # The rows of other parts stay as they were.
            for who, rounds in self.before.items():
                self.found[who] = {number: dict(each) for number, each in enumerate(rounds, 1)}
        self.measured: set[tuple[str, str]] = set()
        """Which figures of whom are of this run."""
        self.page = ""

    def note(self, name: str, number: int, figures: Figures) -> None:
        """Keep the figures of a turn, and show them to who waits."""
        shown = ", ".join(
            f"{what} {'-' if value is None else round(value, 2)}" for what, value in figures.items()
        )
        print(f"round {number}, {name}: {shown}", flush=True)
        if number:
            self.forget(name, figures)
            self.found[name].setdefault(number, {}).update(figures)
            results = {who: list(rounds.values()) for who, rounds in self.found.items()}
            self.page = write_report(self.out, results, self.where, self.before)

    def forget(self, name: str, figures: Figures) -> None:
        """Drop figures of an earlier run that are measured anew: no row is of two runs."""
        for what in figures:
            if (name, what) not in self.measured:
                self.measured.add((name, what))
                for each in self.found[name].values():
                    each.pop(what, None)


async def run(arguments: argparse.Namespace, findings: Findings, folder: Path) -> None:
    """Everything that was asked for."""
    project = await go_project(Printed())
    first, last = (1 if arguments.cold else 0), arguments.rounds + 1
    contest = Contest(project, findings)
    if arguments.only in (None, "alone"):
        await contest.alone(range(first, last), folder / "alone")
    if arguments.only in (None, "together"):
        await contest.together(range(1, last), arguments.spokes, folder / "together")
    if arguments.only in (None, "pairs"):
        rounds = range(first, PAIR_ROUNDS * arguments.rounds + 1)
        await contest.pairs(rounds, arguments.spokes, folder / "pairs")
    if arguments.only in (None, "first"):
        (folder / "first").mkdir()
        await contest.first(range(1, last), arguments.spokes, folder / "first")
    if arguments.only in (None, "hung"):
        await contest.hung(range(1, HUNG_ROUNDS * arguments.rounds + 1), folder / "hung")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="Compare knfleet with the Knative Operator.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spokes", type=int, default=8)
    parser.add_argument("--cold", action="store_true", help="without the round before the first")
    parser.add_argument("--only", choices=PARTS, help="one part alone")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"))
    arguments = parser.parse_args()
    findings = Findings(arguments.out, is_part=arguments.only is not None)
    measured(partial(run, arguments, findings))
    print(findings.page)


if __name__ == "__main__":
    main()
