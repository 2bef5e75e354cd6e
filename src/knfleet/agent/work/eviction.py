"""When an AppliedManifestWork goes whose work the hub does not have any more. Pure."""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from knfleet.api.knative.conditions import timestamp
from knfleet.api.moments import as_moment

NEVER = timedelta(days=100 * 365)
"""From this grace period on nothing is evicted."""

Action = Literal["keep", "mark", "unmark", "wait", "evict"]


class Eviction(Struct, frozen=True):
    """What to do now, and when to look again."""

    action: Action
    after_seconds: float | None = None
    moment: str = ""


def eviction(*, wanted: bool, started: str, grace: timedelta, now: datetime) -> Eviction:
    """What becomes of an AppliedManifestWork, by whether a work wants it."""
    if wanted or grace >= NEVER:
        return Eviction("unmark" if started else "keep")
    since = moment_of(started)
    if since is None:
        return Eviction("mark", grace.total_seconds(), timestamp(now))
    left = (since + grace - now).total_seconds()
    return Eviction("wait", left) if left > 0 else Eviction("evict")


def moment_of(text: str) -> datetime | None:
    """The moment of a time stamp; none when there is none."""
    return as_moment(text)
