"""Placements as text: a table, a tree, an explanation. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from knfleet.cli.output import Table
from knfleet.view.placement.placement_rows import PlacementRow
from knfleet.view.placement.placement_trial import PlacementTrial

HEADINGS = ("NAMESPACE", "NAME", "SUCCEEDED", "REASON", "SELECTEDCLUSTERS", "AGE")
FUNNEL = {
    "ClusterSets": "in bound sets",
    "Predicate": "match the predicates",
    "TaintToleration": "have no taint that is not tolerated",
}


def placements_table(rows: Sequence[PlacementRow], now: datetime) -> str:
    """A line for each Placement."""
    from knfleet.cli.fleet.get import age

    lines = [
        (
            row.namespace,
            row.name,
            row.succeeded,
            row.reason,
            str(row.selected),
            age(row.created, now),
        )
        for row in rows
    ]
    return Table(HEADINGS, lines, [row.stand for row in rows]).text()


def placements_tree(rows: Sequence[PlacementRow]) -> str:
    """Placements, their groups and clusters."""
    return "\n".join(line for row in rows for line in tree_lines(row))


def tree_lines(row: PlacementRow) -> Iterator[str]:
    """The lines of a Placement in a tree."""
    yield f"{row.namespace}/{row.name}"
    yield f"  Succeeded: {row.succeeded} {row.reason}".rstrip()
    if row.message:
        yield f"  Message: {row.message}"
    for group in row.groups:
        title = group.name or f"number {group.index}"
        yield f"  Group {title} ({len(group.clusters)} clusters)"
        yield from (f"    {cluster}" for cluster in group.clusters)


def trial_text(trial: PlacementTrial, clusters: Sequence[str] = ()) -> str:
    """An explanation: the filters one after another, then every cluster."""
    return "\n".join(trial_lines(trial, clusters))


def trial_lines(trial: PlacementTrial, clusters: Sequence[str]) -> Iterator[str]:
    """The lines of an explanation."""
    yield f"Placement {trial.namespace}/{trial.name}"
    if trial.problem:
        yield f"  Misconfigured: {trial.problem}"
        return
    yield f"  {trial.message}"
    for each in trial.filters:
        sets = f" ({', '.join(trial.sets)})" if each.name == "ClusterSets" and trial.sets else ""
        yield f"  {each.left:>5} {FUNNEL.get(each.name, each.name)}{sets}"
    yield f"  {trial.selected:>5} selected"
    for each in trial.prioritizers:
        note = f"; {each.note}" if each.note else ""
        yield f"  prioritizer {each.name}, weight {each.weight}{note}"
    yield ""
    names = [each.name for each in trial.prioritizers]
    headings = ["CLUSTER", "RESULT", "GROUP", *(name.upper() for name in names), "SCORE", "REASON"]
    chosen = [each for each in trial.clusters if not clusters or each.cluster in clusters]
    rows = [
        [
            each.cluster,
            each.step,
            each.group,
            *(str(each.scores[name]) if name in each.scores else "" for name in names),
            str(each.total) if each.scores or each.selected else "",
            each.reason,
        ]
        for each in chosen
    ]
    yield Table(headings, rows, ["ok" if each.selected else "" for each in chosen]).text()
