"""When a completed ManifestWork is to be deleted. Pure."""

from datetime import datetime, timedelta

from msgspec import Struct

from knfleet.api.conditions import StandardCondition, find
from knfleet.api.meta import Object
from knfleet.api.moments import as_moment
from knfleet.api.schema import ObjectMeta, decode
from knfleet.api.work.manifestwork import COMPLETE
from knfleet.api.work.replicaset import REPLICA_SET_LABEL
from knfleet.apply.manifest_fields import part


class ReportedStatus(Struct, frozen=True):
    """What the agent reported."""

    conditions: list[StandardCondition] = []


class ReportedWork(Struct, frozen=True):
    """The part of a work that decides; the rest may be of another release."""

    metadata: ObjectMeta
    status: ReportedStatus = ReportedStatus()


def ttl_seconds(work: Object) -> int | None:
    """For how long a completed work is kept; None when it is kept for ever."""
    found = part(work, "spec", "deleteOption").get("ttlSecondsAfterFinished")
    return found if isinstance(found, int) and found >= 0 else None


def expiry(work: Object) -> datetime | None:
    """When a work is to be deleted; None while that is not known, or never.

    What was reported about an older spec does not count.
    """
    seconds = ttl_seconds(work)
    if seconds is None:
        return None
    found = decode(work, ReportedWork)
    meta = found.metadata
    if meta.deleting or REPLICA_SET_LABEL in meta.labels:
        return None
    complete = find(found.status.conditions, COMPLETE)
    if complete is None or complete.status != "True":
        return None
    if complete.observed_generation not in (0, meta.generation):
        return None
    since = as_moment(complete.last_transition_time)
    return None if since is None else since + timedelta(seconds=seconds)
