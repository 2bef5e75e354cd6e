"""What happened to an installation, from its Events: newest first, drift and repairs apart."""

from collections.abc import Iterable

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import part

REPAIRS = frozenset(
    {"Adopted", "DriftConflict", "FieldsTakenOver", "Pruned", "RepairFailed", "Repaired"}
)
"""Reasons of what was changed on the target because others had changed it, or left it there."""
MOST = 100


class HistoryEntry(Struct, frozen=True):
    """One Event."""

    when: str
    type: str
    reason: str
    message: str
    count: int = 1
    source: str = ""

    @property
    def is_repair(self) -> bool:
        """Whether it belongs to the history of drift and repairs."""
        return self.reason in REPAIRS


def happenings(events: Iterable[Object]) -> list[HistoryEntry]:
    """Events as values, newest first."""
    found = [happened(each) for each in events]
    return sorted(found, key=lambda each: each.when, reverse=True)[:MOST]


def happened(event: Object) -> HistoryEntry:
    """One Event as a value; those of the older and the newer kind look alike then."""
    series, source = part(event, "series"), part(event, "source")
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    when = next((str(time) for time in times if time), "")
    count = series.get("count") or event.get("count") or 1
    return HistoryEntry(
        f"{when[:19]}Z" if when else "",
        str(event.get("type") or "Normal"),
        str(event.get("reason") or ""),
        str(event.get("message") or ""),
        count if isinstance(count, int) else 1,
        str(source.get("component") or event.get("reportingComponent") or ""),
    )
