"""Times in objects, which may be anything that a cluster, an agent or a user wrote."""

from datetime import UTC, datetime

YEARS = range(1970, 2400)
"""Of others nothing can be computed: a sum may be no time any more."""


def as_moment(text: str) -> datetime | None:
    """A time of Kubernetes; None when it is none, or of another age."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.year in YEARS else None
    except (ValueError, OverflowError):
        return None
