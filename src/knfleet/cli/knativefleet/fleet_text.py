"""Fleets, rollouts and plans as text."""

import difflib
from collections.abc import Sequence
from datetime import UTC, datetime

from knfleet.cli.output import Table, painted, table
from knfleet.hub.knativefleet.template.revisions import Revision
from knfleet.kube.yaml import dump_all
from knfleet.view.knativefleet.fleet_images import FleetImage
from knfleet.view.knativefleet.fleet_overview import FleetOverview, HistoryRow
from knfleet.view.knativefleet.fleet_preview import FleetPreview, PreviewCluster, PreviewWave

CLUSTERS_SHOWN = 30


def list_text(fleets: Sequence[FleetOverview]) -> str:
    """A line for each fleet."""
    if not fleets:
        return "no fleets; see docs/fleets.md for how to create one"
    rows = [
        (
            each.name,
            str(each.revision),
            f"{each.done}/{each.total}",
            str(each.failed),
            each.phase,
            each.current,
        )
        for each in fleets
    ]
    headings = ("NAME", "REVISION", "DONE", "FAILED", "ROLLOUT", "WAVE")
    return Table(headings, rows, [each.stand for each in fleets]).text()


def fleet_text(fleet: FleetOverview) -> str:
    """A fleet with its waves, and the clusters that are not done."""
    lines = [
        f"KnativeFleet {fleet.name}: {painted(fleet.phase, fleet.stand)}",
        f"  {fleet.message}",
    ]
    if fleet.last_good and fleet.last_good != fleet.revision:
        lines.append(f"  last good revision: {fleet.last_good}")
    if fleet.waves:
        headings = ("WAVE", "STATE", "DONE", "PROGRESS", "WAITING", "FAILED", "UNREACHABLE", "")
        rows = [
            (
                each.name,
                each.state,
                f"{each.done}/{each.total}",
                str(each.progressing),
                str(each.waiting),
                str(each.failed),
                str(each.unreachable),
                each.message,
            )
            for each in fleet.waves
        ]
        lines += ["", Table(headings, rows).text()]
    shown = sorted(fleet.clusters, key=lambda each: (each.stand == "ok", each.cluster))
    if shown:
        rows = [
            (each.cluster, str(each.revision or "-"), each.version or "-", each.state, each.message)
            for each in shown[:CLUSTERS_SHOWN]
        ]
        stands = [each.stand for each in shown[:CLUSTERS_SHOWN]]
        headings = ("CLUSTER", "REVISION", "VERSION", "STATE", "MESSAGE")
        lines += ["", Table(headings, rows, stands).text()]
        if len(shown) > CLUSTERS_SHOWN:
            lines.append(f"and {len(shown) - CLUSTERS_SHOWN} more; -o json prints all")
    return "\n".join(lines)


def history_text(rows: Sequence[HistoryRow], now: datetime) -> str:
    """A line for each revision."""
    if not rows:
        return "no revisions yet; the hub makes one when it first sees the fleet"
    return table(
        ("REVISION", "HASH", "SERVING", "EVENTING", "OVERRIDES", "AGE", "STATE"),
        [
            (
                str(each.number),
                each.revision,
                each.serving or "-",
                each.eventing or "-",
                str(each.overrides),
                age(each.created, now),
                each.state,
            )
            for each in rows
        ],
    )


def age(created: str, now: datetime) -> str:
    """How long ago something was made, in one unit."""
    try:
        seconds = int((now - datetime.fromisoformat(created).astimezone(UTC)).total_seconds())
    except ValueError:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


def difference_text(before: Revision, after: Revision) -> str:
    """Two revisions as a unified diff; empty when they are the same."""
    old, new = (dump_all([each.content]).splitlines(keepends=True) for each in (before, after))
    names = (f"revision {before.number}\n", f"revision {after.number}\n")
    lines = difflib.unified_diff(old, new, names[0].strip(), names[1].strip())
    return "".join(lines)


def preview_text(preview: FleetPreview) -> str:
    """What a change would do."""
    what = "is created" if preview.is_new else "is changed"
    lines = [f"KnativeFleet {preview.name} {what}; revision {preview.number}"]
    lines += [f"problem: {each}" for each in preview.problems]
    lines += [f"would be refused: {each}" for each in preview.refused[:CLUSTERS_SHOWN]]
    if len(preview.refused) > CLUSTERS_SHOWN:
        lines.append(f"would be refused: {len(preview.refused) - CLUSTERS_SHOWN} more clusters")
    lines += [f"not checked: {each}" for each in preview.unchecked[:CLUSTERS_SHOWN]]
    if len(preview.unchecked) > CLUSTERS_SHOWN:
        lines.append(f"not checked: {len(preview.unchecked) - CLUSTERS_SHOWN} more")
    for wave in preview.waves:
        lines += ["", wave_title(wave)]
        if wave.clusters:
            lines.append(table(("CLUSTER", "ACTION", "VERSIONS", "FIELDS"), rows_of(wave)))
    if preview.images:
        lines += ["", *image_lines(preview.images)]
    if preview.leaving:
        word = "removed" if preview.deletion_policy == "Delete" else "kept without the fleet"
        lines += ["", f"leave the fleet, and are {word}: {', '.join(preview.leaving)}"]
    if not preview.has_changes and not preview.problems:
        lines += ["", "nothing would change"]
    return "\n".join(lines)


def image_lines(images: Sequence[FleetImage]) -> list[str]:
    """The images that clusters would pull: how many by registry, and the new ones."""
    new = [each for each in images if each.is_new]
    lines = [f"images: {len(new)} new of {len(images)}"]
    for registry in sorted({each.registry for each in images}):
        count = sum(each.registry == registry for each in images)
        lines.append(f"  {registry}: {sum(each.registry == registry for each in new)} of {count}")
    lines += [f"  + {each.image} ({', '.join(each.needed_by)})" for each in new[:CLUSTERS_SHOWN]]
    if len(new) > CLUSTERS_SHOWN:
        lines.append(f"  and {len(new) - CLUSTERS_SHOWN} more; -o json prints all")
    return lines


def wave_title(wave: PreviewWave) -> str:
    """A wave in a line."""
    text = f"wave {wave.name}: {len(wave.changed)} of {len(wave.clusters)} clusters change"
    if wave.changed:
        text += f", {wave.concurrency} at a time"
    if wave.expected_seconds is not None:
        text += f", about {duration(wave.expected_seconds)}"
    return text


def duration(seconds: float) -> str:
    """A duration in words."""
    if seconds >= 7200:
        return f"{seconds / 3600:.0f} hours"
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def rows_of(wave: PreviewWave) -> list[tuple[str, str, str, str]]:
    """A row for each cluster of a wave."""
    shown = wave.clusters[:CLUSTERS_SHOWN]
    rows = [(each.cluster, each.action, versions(each), detail(each)) for each in shown]
    if len(wave.clusters) > CLUSTERS_SHOWN:
        rows.append((f"and {len(wave.clusters) - CLUSTERS_SHOWN} more", "", "", ""))
    return rows


def versions(cluster: PreviewCluster) -> str:
    """The versions on the way."""
    if cluster.action == "none":
        return ""
    return "; ".join(f"{name} {' → '.join(path)}" for name, path in cluster.versions.items())


def detail(cluster: PreviewCluster) -> str:
    """What changes, or why it cannot."""
    return cluster.message or ", ".join(cluster.fields)
