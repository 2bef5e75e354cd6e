"""Figures of several sides as a table for people."""

import statistics
from collections.abc import Mapping, Sequence

from bench.knative.scenarios import Figures


def median(values: Sequence[float | None]) -> float | None:
    """The middle of some values; None when that is one that never came."""
    found = statistics.median(float("inf") if each is None else each for each in values)
    return None if found == float("inf") else found


def shown(value: float | None) -> str:
    """A figure for people."""
    if value is None:
        return "never"
    return f"{value:.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"


def table(
    rounds: Mapping[str, Sequence[Figures]], ours: str, theirs: str, goals: Mapping[str, str]
) -> str:
    """The medians of all sides, and the ratio of ours to theirs round by round."""
    names = dict.fromkeys(name for each in rounds[ours] for name in each)
    heads = ("", *rounds, "ratio (median of pairs)", "goal")
    lines = [row(heads), row(["---"] * len(heads))]
    for name in names:
        cells = [shown(median([each.get(name) for each in found])) for found in rounds.values()]
        pairs = ratios(
            [each.get(name) for each in rounds[ours]], [each.get(name) for each in rounds[theirs]]
        )
        ratio = f"{statistics.median(pairs):.2f}" if pairs else ""
        lines.append(row((name, *cells, ratio, goals.get(name, ""))))
    return "\n".join(lines)


def ratios(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[float]:
    """How much of theirs ours is, in each round in which both have a figure."""
    return [
        mine / other
        for mine, other in zip(ours, theirs, strict=False)
        if mine is not None and other
    ]


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"
