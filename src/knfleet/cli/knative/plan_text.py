"""A plan as text: deletions first, then what is created, then what changes. Pure.

Changes that are the same in many objects are folded into one line; `-o wide` and `-o json` list
each of them.
"""

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from knfleet.cli.output import painted, table
from knfleet.view.differences import FieldChange
from knfleet.view.plan.common_changes import CommonChange, fold
from knfleet.view.plan.model import FleetPlan, ObjectChange, PlannedAction, ResourcePlan

LONGEST_VALUE = 60
MOST_LINES = 8
"""So many lines of a text are shown."""
WORDS = {
    PlannedAction.DELETE: "DELETE",
    PlannedAction.RECREATE: "DELETE AND RECREATE",
    PlannedAction.RELEASE: "release",
    PlannedAction.CREATE: "create",
    PlannedAction.CHANGE: "change",
}
STANDS = {
    PlannedAction.DELETE: "bad",
    PlannedAction.RECREATE: "bad",
    PlannedAction.CREATE: "ok",
    PlannedAction.CHANGE: "busy",
}
COUNTED = {
    PlannedAction.DELETE: "to delete",
    PlannedAction.RECREATE: "to recreate",
    PlannedAction.RELEASE: "to release",
    PlannedAction.CREATE: "to create",
    PlannedAction.CHANGE: "to change",
}
NOUNS = {"metadata.labels": "label", "metadata.annotations": "annotation"}
HEADINGS = ("TARGET", "CUSTOM RESOURCE", "ACTION", "OBJECT", "FIELD", "BEFORE", "AFTER")


def plans_text(plans: FleetPlan) -> str:
    """All plans, each a block; at the end, of several, how many there are of each sort."""
    blocks = ["\n".join(block(plan)) for plan in plans.plans]
    if len(plans.plans) > 1:
        blocks.append(totals(plans))
    return "\n\n".join(blocks) if blocks else "There are no custom resources."


def totals(plans: FleetPlan) -> str:
    """One line about many plans."""
    bad = sum(bool(plan.problems) for plan in plans.plans)
    idle = sum(plan.is_empty and not plan.problems for plan in plans.plans)
    changing = len(plans.plans) - bad - idle
    parts = [
        f"{changing} would change" if changing else "",
        f"{idle} would not" if idle else "",
        f"{bad} cannot be planned or carried out" if bad else "",
    ]
    return f"{len(plans.plans)} custom resources: {', '.join(part for part in parts if part)}."


def block(plan: ResourcePlan) -> Iterator[str]:
    yield heading(plan)
    for problem in plan.problems:
        yield painted(f"  ERROR  {problem}", "bad")
    for warning in plan.warnings:
        yield painted(f"  warning: {warning}", "busy")
    for field in plan.custom_resource:
        yield from indented(field, "  ")
    common, rest = fold(plan.changes)
    for change in rest:
        yield from change_lines(change)
    for each in common:
        yield painted(f"  {common_text(each)}", STANDS[PlannedAction.CHANGE])
    if plan.images:
        yield "  images to pull:"
        yield from (f"    {image}" for image in plan.images)
    yield f"  {summary(plan)}"


def heading(plan: ResourcePlan) -> str:
    """Which custom resource, where, from which version to which."""
    version = plan.wanted or "?"
    if plan.installed and plan.installed != plan.wanted:
        version = f"{plan.installed} → {version}"
    made = ", to be created" if plan.is_new else ""
    return f"{plan.title} on {plan.target} ({version}{made})"


def change_lines(change: ObjectChange) -> Iterator[str]:
    """One object, and its fields below it."""
    note = f" ({change.note})" if change.note else ""
    line = f"  {WORDS[change.act]}  {change.ref}{note}"
    yield painted(line, STANDS.get(change.act, ""))
    for field in change.fields:
        yield from indented(field, "      ")


def common_text(common: CommonChange) -> str:
    """A change of many objects on one line: `38 objects: label tier a → b`."""
    change = common.change
    for start, noun in NOUNS.items():
        if change.field.startswith(start):
            name = change.field.removeprefix(start).strip(".[]")
            change = replace(change, field=f"{noun} {name}")
    return f"{len(common.refs)} objects: {field_text(change).replace(':', '', 1)}"


def indented(change: FieldChange, space: str) -> Iterator[str]:
    """A field below something; of a text with many lines, those that are different."""
    lines = lines_of(change)
    if not lines:
        yield f"{space}{field_text(change)}"
        return
    yield f"{space}{change.field}:"
    yield from (f"{space}  {line}" for line in lines[:MOST_LINES])
    if len(lines) > MOST_LINES:
        yield f"{space}  … and {len(lines) - MOST_LINES} more lines; -o json shows all"


def lines_of(change: FieldChange) -> list[str]:
    """The lines that are different in two texts of many lines; none when they are no such texts."""
    before, after = change.before, change.after
    if not isinstance(before, str) or not isinstance(after, str) or "\n" not in before + after:
        return []
    found = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))
    # The first two lines name files.
    return [f"{line[0]} {line[1:]}".rstrip() for line in found[2:] if line[0] != "@"]


def field_text(change: FieldChange) -> str:
    """A field, before and after."""
    if change.is_secret:
        return f"{change.field}: (changed)"
    before, after = shown(change.before), shown(change.after)
    if change.before is UNSET:
        return f"{change.field}: + {after}"
    if change.after is UNSET:
        return f"{change.field}: - {before}"
    return f"{change.field}: {before} → {after}"


def shown(value: Any, longest: int = LONGEST_VALUE) -> str:
    """A value on one line, and not all of it when it is long; all of it where `longest` is 0."""
    if value is UNSET:
        return ""
    text = value if isinstance(value, str) and is_plain(value) else json.dumps(value)
    if longest and len(text) > longest:
        return f"{text[: longest - 20]} … {text[-17:]}"
    return text


def is_plain(text: str) -> bool:
    """Whether a text can stand without quotes."""
    return bool(text) and text.isprintable() and text == text.strip()


def summary(plan: ResourcePlan) -> str:
    """How much would happen."""
    if plan.problems and not plan.changes:
        return "Nothing can be planned."
    counts = [(act, len(plan.by(act))) for act in PlannedAction]
    counted = ", ".join(f"{count} {COUNTED[act]}" for act, count in counts if count)
    if counted:
        return f"{counted}."
    return "Nothing would change on the target." if not plan.is_empty else "Nothing to do."


def wide(plans: FleetPlan) -> str:
    """One row for each field, with the whole values."""
    rows = [row for plan in plans.plans for row in rows_of(plan)]
    return table(HEADINGS, rows) if rows else "Nothing to do."


def rows_of(plan: ResourcePlan) -> Iterator[Sequence[str]]:
    start = (plan.target, plan.title)
    for problem in plan.problems:
        yield (*start, "ERROR", str(problem.ref or ""), "", "", problem.message)
    for field in plan.custom_resource:
        yield (*start, "write", plan.title, *cells(field))
    for change in plan.changes:
        action = WORDS[change.act]
        if not change.fields:
            yield (*start, action, str(change.ref), "", "", change.note)
        for field in change.fields:
            yield (*start, action, str(change.ref), *cells(field))


def cells(change: FieldChange) -> tuple[str, str, str]:
    """A field in columns."""
    if change.is_secret:
        return change.field, "(changed)", "(changed)"
    return change.field, shown(change.before, 0), shown(change.after, 0)


def names(plans: FleetPlan) -> list[str]:
    """The objects that would change, as kubectl names them, deletions first."""
    return [
        f"{str(change.ref.group_kind).lower()}/{change.ref.name}"
        for plan in plans.plans
        for change in plan.changes
    ]
