"""A fleet and a chain as text: what `knfleet status` prints. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from knfleet.cli.fleet.get import age
from knfleet.cli.output import Table
from knfleet.view.chain import Chain
from knfleet.view.fleet_model import ClusterRow, FleetView, InstallRow, Stand
from knfleet.view.progress import shortened
from knfleet.view.workload_findings import WorkloadFinding

Row = TypeVar("Row", ClusterRow, InstallRow)

CLUSTER_HEADINGS = ("CLUSTER", "HEALTH", "SINCE", "KUBERNETES", "SERVING", "EVENTING", "REASON")
CLUSTER_WIDE = ("SETS", "PROFILES", "REACHED", "MESSAGE")
INSTALL_HEADINGS = ("KIND", "NAME", "TARGET", "VERSION", "READY", "SINCE", "REASON", "PROGRESS")
INSTALL_WIDE = ("MESSAGE",)
CLUSTER_WORDS: dict[Stand, str] = {
    "ok": "healthy",
    "busy": "joining",
    "unknown": "not known",
    "bad": "in trouble",
}
INSTALL_WORDS: dict[Stand, str] = {
    "ok": "ready",
    "busy": "in progress",
    "unknown": "not checked",
    "bad": "in trouble",
}


def fleet_text(fleet: FleetView, now: datetime, *, wide: bool = False, lines: int = 0) -> str:
    """The fleet on one screen: of rows that are fine, only as many as fit into some lines."""
    parts = list(blocks(fleet, now, wide=wide, lines=lines))
    return "\n\n".join(parts) if parts else "No clusters and no installations yet."


def blocks(fleet: FleetView, now: datetime, *, wide: bool, lines: int) -> Iterator[str]:
    """The two tables, each under a line that counts."""
    room = max(0, lines - 8)
    shown = fit(fleet.clusters, room // 2)
    if fleet.clusters:
        counts = counted(fleet.clusters, "cluster", CLUSTER_WORDS)
        rows = [cluster_cells(row, now, wide=wide) for row in shown]
        headings = (*CLUSTER_HEADINGS, *(CLUSTER_WIDE if wide else ()))
        table = Table(headings, rows, [row.stand for row in shown])
        yield "\n".join([counts, table.text(), *more(fleet.clusters, shown)])
    shown_installs = fit(fleet.installs, max(room - len(shown), room // 2))
    if fleet.installs:
        counts = counted(fleet.installs, "installation", INSTALL_WORDS)
        rows = [install_cells(row, now, wide=wide) for row in shown_installs]
        headings = (*INSTALL_HEADINGS, *(INSTALL_WIDE if wide else ()))
        table = Table(headings, rows, [row.stand for row in shown_installs])
        yield "\n".join([counts, table.text(), *more(fleet.installs, shown_installs)])


def fit(rows: Sequence[Row], room: int) -> Sequence[Row]:
    """All rows that are not fine, and of the others as many as fit."""
    if not room:
        return rows
    sick = sum(1 for row in rows if row.stand != "ok")
    return rows[: max(room, sick)]


def more(rows: Sequence[object], shown: Sequence[object]) -> list[str]:
    """What is left out, and how to see it."""
    left = len(rows) - len(shown)
    return [f"and {left} more that are ready; all are in: knfleet status -o wide"] if left else []


def counted(rows: Iterable[ClusterRow | InstallRow], noun: str, words: dict[Stand, str]) -> str:
    """As `3 clusters: 1 in trouble, 2 healthy`."""
    counts = Counter(row.stand for row in rows)
    total = counts.total()
    parts = [f"{counts[stand]} {word}" for stand, word in reversed(words.items()) if counts[stand]]
    return f"{total} {noun}{'' if total == 1 else 's'}: {', '.join(parts)}"


def cluster_cells(row: ClusterRow, now: datetime, *, wide: bool) -> list[str]:
    """The line of a cluster."""
    cells = [
        row.name,
        health_word(row),
        age(row.since, now),
        row.kubernetes,
        row.serving,
        row.eventing,
        "" if row.health == "True" else row.reason,
    ]
    if not wide:
        return cells
    return [*cells, ",".join(row.sets), ",".join(row.profiles), row.reached_by, row.message]


def health_word(row: ClusterRow) -> str:
    """How a cluster is, in one word."""
    if row.deleting:
        return "Leaving"
    if not row.accepted:
        return "NotAccepted"
    return row.health or ("Joining" if not row.joined else "Unknown")


def install_cells(row: InstallRow, now: datetime, *, wide: bool) -> list[str]:
    """The line of an installation."""
    cells = [
        row.kind,
        f"{row.namespace}/{row.name}",
        row.target,
        versions(row),
        row.ready,
        age(row.since, now),
        row.reason,
        under_way(row),
    ]
    return [*cells, " ".join(row.message.split())] if wide else cells


def versions(row: InstallRow) -> str:
    """What is installed, and where it goes when that is something else."""
    if not row.installed:
        return f"→ {row.wanted or 'newest'}"
    same = not row.wanted or f"{row.installed}.".startswith(f"{row.wanted.lstrip('v')}.")
    return row.installed if same or row.wanted == "latest" else f"{row.installed} → {row.wanted}"


def under_way(row: InstallRow) -> str:
    """What happens there at the moment."""
    parts = [
        "paused" if row.paused else "",
        "removal" if row.deleting else "",
        str(row.progress) if row.progress is not None and row.stand != "ok" else "",
    ]
    return ", ".join(filter(None, parts))


def cluster_text(row: ClusterRow, fleet: FleetView, now: datetime) -> str:
    """One cluster, and what is installed there."""
    since = f" for {age(row.since, now)}" if row.since else ""
    facts = {
        "health": f"{health_word(row)}{since}",
        "reason": row.reason,
        "message": row.message,
        "Kubernetes": row.kubernetes,
        "sets": ", ".join(row.sets),
        "profiles": ", ".join(row.profiles),
        "reached": reach_text(row, now),
        "joined": "yes" if row.joined else "no",
    }
    lines = [f"Cluster {row.name}"]
    lines += [f"  {name + ':':<12} {value}" for name, value in facts.items() if value]
    here = [each for each in fleet.installs if each.cluster == row.name]
    if here:
        rows = [install_cells(each, now, wide=False) for each in here]
        lines += ["", Table(INSTALL_HEADINGS, rows, [each.stand for each in here]).text()]
    if row.stand == "bad":
        lines += ["", f"Find the cause: knfleet doctor {row.name}"]
    return "\n".join(lines)


def reach_text(row: ClusterRow, now: datetime) -> str:
    """How the hub reaches a cluster, and since when."""
    is_open = row.reached_by == "tunnel" and row.tunnel_since
    return f"{row.reach}, open for {age(row.tunnel_since, now)}" if is_open else row.reach


def chain_text(chain: Chain, now: datetime) -> str:
    """One installation: its four links, and what was found at the one that fails."""
    row = chain.install
    since = f" for {age(row.since, now)}" if row.since else ""
    ready = {"True": "ready", "False": "not ready"}.get(row.ready, "not known to be ready")
    why = f": {row.reason}" if row.reason else ""
    lines = [f"{row.kind} {row.namespace}/{row.name} on {row.target} is {ready}{since}{why}", ""]
    for link in chain.links:
        lines.append(f"  {link.state:<8} {link.name:<10} {' '.join(link.summary.split())}".rstrip())
        lines += [line for each in link.details for line in finding_lines(each, depth=1)]
    failing = chain.failing
    reason = (failing.reason if failing is not None else "") or row.reason
    if reason:
        lines += ["", f"What {reason} means, and what to do: knfleet explain {reason}"]
    return "\n".join(lines)


def finding_lines(finding: WorkloadFinding, depth: int) -> Iterator[str]:
    """Something that was found, and what is below it."""
    indent = " " * (11 + 2 * depth)
    yield f"{indent}{finding.what}: {finding.message}".rstrip(": ")
    for each in finding.below:
        yield from finding_lines(each, depth + 1)


def news(before: FleetView | None, after: FleetView) -> list[str]:
    """A line for each row that says something new, for those who read without a screen."""
    old: list[ClusterRow | InstallRow] = []
    if before is not None:
        old = [*before.clusters, *before.installs]
    new: list[ClusterRow | InstallRow] = [*after.clusters, *after.installs]
    known, names = set(old), {name_of(row) for row in new}
    lines = [f"{after.when} {line_of(row)}" for row in new if row not in known]
    lines += [f"{after.when} {name_of(row)} is gone" for row in old if name_of(row) not in names]
    return lines


def name_of(row: ClusterRow | InstallRow) -> str:
    return row.ref if isinstance(row, InstallRow) else f"ManagedCluster/{row.name}"


def line_of(row: ClusterRow | InstallRow) -> str:
    """A row in one sentence."""
    if isinstance(row, ClusterRow):
        parts = [f"{name_of(row)} {health_word(row)}", row.reason, row.message]
    else:
        going = under_way(row)
        parts = [f"{row.ref} {versions(row)} Ready={row.ready}", row.reason]
        parts.append(going or shortened(row.message))
    return ": ".join(filter(None, parts))
