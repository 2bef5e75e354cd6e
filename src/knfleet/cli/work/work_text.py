"""Works as text: a table, a tree, one work with its failing manifests opened. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from knfleet.api.knative.conditions import Condition
from knfleet.cli.knative.plan_text import COUNTED, change_lines
from knfleet.cli.output import Table, painted
from knfleet.view.plan.model import PlannedAction
from knfleet.view.work.work_plan import WorkPlan, WorkPlans
from knfleet.view.work.work_rows import ManifestRow, WorkRow

HEADINGS = ("NAME", "CLUSTER", "NUMBER OF MANIFESTS", "APPLIED", "AVAILABLE", "AGE")
MARKS = {"ok": "✓", "busy": "…", "unknown": "?", "bad": "✕"}
WORDS = {"ok": "ready", "busy": "in progress", "unknown": "unknown", "bad": "failing"}


def works_table(rows: Sequence[WorkRow], now: datetime) -> str:
    """A line for each work."""
    from knfleet.cli.fleet.get import age

    lines = [
        (
            row.name,
            row.cluster,
            str(len(row.manifests)),
            row.applied,
            row.available,
            age(row.created, now),
        )
        for row in rows
    ]
    return Table(HEADINGS, lines, [row.stand for row in rows]).text()


def works_tree(rows: Sequence[WorkRow]) -> str:
    """Clusters, their works, and the objects of each."""
    lines: list[str] = []
    for cluster in dict.fromkeys(row.cluster for row in rows):
        lines.append(cluster)
        for row in rows:
            if row.cluster == cluster:
                lines += [f"  {row.name}", *(f"    {line}" for line in branch(row))]
    return "\n".join(lines)


def branch(row: WorkRow) -> Iterator[str]:
    """The lines below a work in a tree."""
    yield f"Number of Manifests: {len(row.manifests)}"
    yield f"Applied: {row.applied}"
    yield f"Available: {row.available}"
    yield "Resources:"
    for each in row.manifests:
        yield f"  {MARKS[each.stand]} {each.title}"


def work_text(row: WorkRow) -> str:
    """One work: its conditions, and every manifest, those opened that something is wrong with."""
    return "\n".join(work_lines(row))


def work_lines(row: WorkRow) -> Iterator[str]:
    """The lines about one work."""
    state = "being deleted" if row.deleting else WORDS[row.stand]
    yield painted(f"{row.name} on {row.cluster}: {state}", row.stand)
    if not row.conditions:
        yield f"  {row.message}"
    for each in row.conditions:
        yield f"  {condition_text(each)}"
    yield f"  {len(row.manifests)} manifests:"
    for each in row.manifests:
        yield from manifest_lines(each)
    if reasons := sorted({each.reason for each in row.failing if each.reason}):
        yield f"  What a reason means: knfleet explain {','.join(reasons)}"


def manifest_lines(row: ManifestRow) -> Iterator[str]:
    """The lines about one manifest; all conditions of one that something is wrong with."""
    values = ", ".join(f"{each.name}={each.value}" for each in row.feedback)
    line = f"  {MARKS[row.stand]} {row.title}" + (f"  ({values})" if values else "")
    yield painted(line, row.stand)
    if row.stand == "ok":
        return
    if not row.conditions:
        yield f"      {row.message}"
    for each in row.conditions:
        yield f"      {condition_text(each)}"


def condition_text(condition: Condition) -> str:
    """A condition on one line."""
    message = f": {' '.join(condition.message.split())}" if condition.message else ""
    return f"{condition.type} {condition.status} {condition.reason}{message}".rstrip()


def plans_text(plans: WorkPlans) -> str:
    """What would change, a block for each cluster."""
    return "\n\n".join("\n".join(plan_lines(plan)) for plan in plans.plans)


def plan_lines(plan: WorkPlan) -> Iterator[str]:
    """The lines about one cluster; deletions come first."""
    made = " (to be created)" if plan.is_new else ""
    parts = f" as {', '.join(plan.works)}" if len(plan.works) > 1 else ""
    yield f"{plan.name} on {plan.cluster}{made}{parts}"
    for problem in plan.problems:
        yield painted(f"  ERROR  {problem}", "bad")
    for warning in plan.warnings:
        yield painted(f"  note: {warning}", "busy")
    for change in plan.changes:
        yield from change_lines(change)
    yield f"  {summary(plan)}"


def summary(plan: WorkPlan) -> str:
    """How much would happen."""
    if plan.problems and not plan.changes:
        return "It cannot be carried out."
    counts = {act: sum(each.act == act for each in plan.changes) for act in PlannedAction}
    said = ", ".join(f"{count} {COUNTED[act]}" for act, count in counts.items() if count)
    return f"{said}." if said else "Nothing to do."
