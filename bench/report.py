"""What became of a run: a table for people, JSON for the next run, plots; all from values.

A row has a goal, by which it is judged, and a ratio of ours to theirs. A ratio that is more than 15
percent worse than in the results that were kept before is marked.
"""

import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.machine import Machine
from bench.plots import Bar, chart

THEIRS, OURS, FLOOR = "Knative Operator", "knfleet", "floor"
WORSE = 1.15
Round = Mapping[str, float | None]
Results = dict[str, list[dict[str, float | None]]]
"""The rounds of each, by name; a round has its figures by name, None where one never came."""


class Goal(Struct, frozen=True):
    """What a figure of ours should be; nothing of it may be missed."""

    ratio: float | None = None
    """At most so much of theirs."""
    floor: float | None = None
    """At most so much of the floor."""
    most: float | None = None

    def __str__(self) -> str:
        parts = [
            f"≤ {self.ratio:g} of theirs" if self.ratio is not None else "",
            f"≤ {self.floor:g} times the floor" if self.floor is not None else "",
            f"≤ {self.most:g}" if self.most is not None else "",
        ]
        return ", ".join(filter(None, parts))

    def is_met(self, ours: float, theirs: float | None, floor: float | None) -> bool:
        """Whether a figure is as good as that; what there is nothing to compare with counts."""
        return (
            (self.ratio is None or theirs is None or ours <= self.ratio * theirs)
            and (self.floor is None or floor is None or ours <= self.floor * floor)
            and (self.most is None or ours <= self.most)
        )


GOALS = {
    "1 spoke until Deployments are Available, s": Goal(floor=1.3),
    "1 spoke to Ready, s": Goal(ratio=0.25, floor=1.3),
    "8 spokes until Deployments are Available, s": Goal(floor=1.3),
    "8 spokes to Ready, s": Goal(ratio=0.34, floor=1.3),
    "1 new spoke to Ready, s": Goal(ratio=0.25, floor=1.3),
    "8 new spokes to Ready, s": Goal(ratio=0.34, floor=1.3),
    "forced pass: reads": Goal(most=0),
    "forced pass: writes": Goal(most=0),
    "edited ConfigMap repaired, s": Goal(most=2),
    "edited Service repaired, s": Goal(most=2),
    "deleted Deployment made anew, s": Goal(most=2),
    "RSS with 8 spokes, MB": Goal(most=120),
    "idle minute: reads": Goal(most=48),
    "idle minute: writes": Goal(most=0),
}
ALONE, BESIDE = "6 spokes to Ready, s", "6 spokes beside 2 that hang to Ready, s"
HUNG = Goal(most=1.05)
PAIRED = "8 spokes in pairs to Ready, s"
PAIRS = Goal(most=1.3)


class Kept(Struct, frozen=True):
    """What is kept of a run."""

    when: str
    machine: Machine
    rounds: Results


class Line(Struct, frozen=True):
    """One row of the table."""

    name: str
    theirs: float | None
    ours: float | None
    floor: float | None
    their_spread: str
    our_spread: str
    goal: str
    verdict: str


def median(rounds: Sequence[Round], name: str) -> float | None:
    """The middle of a figure; None when it is not there, or is one that never came."""
    values = [each[name] for each in rounds if name in each]
    if not values:
        return None
    found = statistics.median(float("inf") if each is None else each for each in values)
    return None if found == float("inf") else found


def spread(rounds: Sequence[Round], name: str) -> str:
    """The least and the most of a figure."""
    values = [value for each in rounds if (value := each.get(name)) is not None]
    return f"{shown(min(values))} to {shown(max(values))}" if len(values) > 1 else ""


def ratio(one: float | None, other: float | None) -> float | None:
    """How much of another figure one is."""
    return one / other if one is not None and other else None


def shown(value: float | None) -> str:
    """A figure for people."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value == int(value) or value >= 50 else f"{value:.2f}"


def line(results: Results, name: str, before: Results | None) -> Line:
    """A row, judged."""
    theirs, ours, floor = (median(results.get(who, []), name) for who in (THEIRS, OURS, FLOOR))
    goal = GOALS.get(name, Goal())
    verdict = ""
    if ours is not None and str(goal):
        verdict = "met" if goal.is_met(ours, theirs, floor) else "**missed**"
    if before is not None and is_worse(results, before, name):
        verdict = f"{verdict}, **worse than before**".removeprefix(", ")
    their_spread, our_spread = (spread(results.get(who, []), name) for who in (THEIRS, OURS))
    return Line(name, theirs, ours, floor, their_spread, our_spread, str(goal), verdict)


def is_worse(results: Results, before: Results, name: str) -> bool:
    """Whether the ratio to theirs is clearly worse than it was."""
    now, then = (
        ratio(median(each.get(OURS, []), name), median(each.get(THEIRS, []), name))
        for each in (results, before)
    )
    return now is not None and then is not None and now > WORSE * then


def lines(results: Results, before: Results | None) -> list[Line]:
    """All rows, in the order in which they were measured."""
    every = dict.fromkeys(
        name for who in (OURS, FLOOR) for each in results.get(who, []) for name in each
    )
    return [line(results, name, before) for name in every]


def table(found: Sequence[Line]) -> str:
    """The rows as Markdown."""
    spreads = ("spread of theirs", "spread of ours")
    heads = ("", THEIRS, OURS, "ratio", FLOOR, "to floor", *spreads, "goal", "")
    rows = [heads, ("---", *["---:"] * 5, *["---"] * 4)]
    rows += [
        (
            each.name,
            shown(each.theirs),
            shown(each.ours),
            shown(ratio(each.ours, each.theirs)),
            shown(each.floor),
            shown(ratio(each.ours, each.floor)),
            each.their_spread,
            each.our_spread,
            each.goal,
            each.verdict,
        )
        for each in found
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def judged(ratios: Sequence[float], goal: Goal) -> tuple[float, str]:
    """The middle of some ratios, and whether it is as good as it should be."""
    middle = statistics.median(ratios)
    return middle, "met" if goal.is_met(middle, None, None) else "**missed**"


def hung_text(results: Results) -> str:
    """What two spokes that hang cost six others, if that was measured.

    Rounds differ by more than what is looked for, but each of them has both, one after the other,
    so that the middle of their ratios says more than the ratio of the middles.
    """
    rounds = [
        found
        for each in results[OURS]
        if (found := ratio(each.get(BESIDE), each.get(ALONE))) is not None
    ]
    if not rounds:
        return ""
    held, verdict = judged(rounds, HUNG)
    every = ", ".join(f"{100 * (each - 1):+.1f}" for each in sorted(rounds))
    return (
        f"The time that six spokes take changes by {100 * (held - 1):+.1f} % when two more hang"
        f" beside them (goal: at most 5 % more, {verdict}); the rounds: {every} %.\n"
    )


def pairs_text(results: Results) -> str:
    """How much of the floor's time eight spokes take, if that was measured in pairs.

    The machine's speed changes from minute to minute, but the two of a pair follow each other.
    """
    both = zip(results[OURS], results[FLOOR], strict=False)
    rounds = [
        found
        for ours, floor in both
        if (found := ratio(ours.get(PAIRED), floor.get(PAIRED))) is not None
    ]
    if not rounds:
        return ""
    middle, verdict = judged(rounds, PAIRS)
    every = ", ".join(f"{each:.2f}" for each in sorted(rounds))
    return (
        f"Pair by pair, eight spokes take {middle:.2f} times as long as the bare client takes right"
        f" before or after (goal: at most 1.3 times, {verdict}); the pairs: {every}.\n"
    )


def bars(results: Results, names: Sequence[str]) -> list[Bar]:
    """Some rows for a plot, each with all rounds."""
    return [
        Bar(name, who, found, tuple(filter(None, (each.get(name) for each in results[who]))))
        for name in names
        for who in (THEIRS, OURS, FLOOR)
        if (found := median(results.get(who, []), name)) is not None
    ]


PLOTS = {
    "time": ("Seconds; shorter is better", (" s",)),
    "memory": ("Megabytes held by the operator", ("MB",)),
    "requests": ("Requests", ("reads", "writes")),
}
"""By the name of the file: a title, and how the names of its rows end."""


def text(kept: Kept, before: Results | None) -> str:
    """The whole page."""
    found, where = lines(kept.rounds, before), kept.machine
    count = max(len(kept.rounds[THEIRS]), 1)
    pictures = "\n".join(f"![{title}]({name}.svg)\n" for name, (title, _) in PLOTS.items())
    return f"""# Benchmarks

Written by `make bench` on {kept.when[:10]}; {count} rounds, of which the medians are shown.
Parts can be measured one by one (`--only`), so rows may be of different days and commits.
[What was found](../decisions/0008-speed.md) tells of slower days, and of rounds that are not here.

Both operators install Serving 1.23 with Kourier on real control planes, from one hub, turn by turn.
Each turn begins with empty clusters and a fresh process; who was first in a round is last in the
next. Clusters that are used again rest for half a minute, until their API servers have forgotten
what was deleted. API servers that have served installations before are faster than new ones: in the
rows about new spokes, every turn has control planes of its own. In the rows about pairs, knfleet
and the bare client take turns without the Knative Operator, and more of them, since the speed of
the machine changes from minute to minute.
The floor is what a bare client needs that sends the same objects at once and waits until the
Deployments are Available.
The Knative Operator sends at most 20 requests a second to a spoke, and installs on two at a time.
Some of its rounds take half as long again, or more: a pass that comes to objects which its webhook
must admit before the webhook is up fails, and is made again after those of all others.
Before the upgrade, ClusterRoles that the cluster brought back without rules are deleted in
everybody's turn: the Knative Operator leaves them behind, and cannot install over them.
All processes, control planes too, share the machine: {where.processor}, {where.cores} cores,
{where.memory_mb / 1000:.0f} GB, {where.system}, Python {where.python}.
The load was {where.load_before} before it began.

{table(found)}

{pairs_text(kept.rounds)}
{hung_text(kept.rounds)}
{pictures}
All rounds are in [results.json](results.json).
A ratio to theirs that became more than 15 % worse since the run before is marked.
"""


def read_results(folder: Path) -> Results | None:
    """The results that were kept before, if they can be read."""
    try:
        return msgspec.json.decode((folder / "results.json").read_bytes(), type=Kept).rounds
    except (OSError, msgspec.MsgspecError):
        return None


def write_report(folder: Path, results: Results, where: Machine, before: Results | None) -> str:
    """Write everything into a folder; the page."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = Kept(datetime.now(UTC).isoformat(timespec="seconds"), where, results)
    page = text(kept, before)
    (folder / "index.md").write_text(page)
    content = msgspec.json.format(msgspec.json.encode(kept), indent=1)
    (folder / "results.json").write_bytes(content + b"\n")
    names = [each.name for each in lines(results, None)]
    for name, (title, ends) in PLOTS.items():
        drawn = bars(results, [each for each in names if each.endswith(ends)])
        (folder / f"{name}.svg").write_text(chart(title, drawn))
    return page
