"""Taints of clusters, and tolerations of Placements."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from knfleet.api.cluster.placement import ClusterToleration
from knfleet.hub.placement.scheduler.schedule_model import CandidateCluster, ClusterTaint

ALWAYS = datetime.max.replace(tzinfo=UTC)
EXISTS = "Exists"
EQUAL = "Equal"


class Verdict(Struct, frozen=True):
    """What the taints of a cluster mean for a Placement."""

    excluded_by: ClusterTaint | None = None
    avoided_by: ClusterTaint | None = None
    """A taint that has the cluster come after all others."""
    until: datetime | None = None
    """When a toleration ends that matters now."""


FREE = Verdict()


def problem(tolerations: Sequence[ClusterToleration]) -> str:
    """What is wrong with tolerations; empty when nothing is."""
    for each in tolerations:
        if each.operator not in (EXISTS, EQUAL, ""):
            return f"toleration of {each.key or 'all taints'}: operator must be Exists or Equal"
        if not each.key and each.operator != EXISTS:
            return "a toleration without a key must have the operator Exists"
        if each.operator == EXISTS and each.value:
            return f"toleration of {each.key or 'all taints'}: operator Exists takes no value"
    return ""


def judge(
    cluster: CandidateCluster,
    tolerations: Sequence[ClusterToleration],
    now: datetime,
    *,
    selected: bool,
) -> Verdict:
    """What the taints of a cluster mean; `selected` says whether it is among the decisions."""
    if not cluster.taints:
        return FREE
    ends: list[datetime] = []
    avoided: ClusterTaint | None = None
    for taint in cluster.taints:
        end = tolerated_until(taint, tolerations, now)
        if end is not None:
            if end is not ALWAYS:
                ends.append(end)
        elif taint.effect == "PreferNoSelect":
            avoided = avoided or taint
        elif taint.effect == "NoSelect" or not selected:
            return Verdict(excluded_by=taint)
    return Verdict(avoided_by=avoided, until=min(ends, default=None))


def tolerated_until(
    taint: ClusterTaint, tolerations: Sequence[ClusterToleration], now: datetime
) -> datetime | None:
    """Until when a taint is tolerated; None when it is not."""
    latest: datetime | None = None
    for each in tolerations:
        if not matches(each, taint):
            continue
        if each.toleration_seconds is None or taint.effect == "NoSelectIfNew":
            return ALWAYS
        seconds = min(max(each.toleration_seconds, 0), 10**9)
        end = (taint.added or now) + timedelta(seconds=seconds)
        if end > now and (latest is None or end > latest):
            latest = end
    return latest


def matches(toleration: ClusterToleration, taint: ClusterTaint) -> bool:
    """Whether a toleration is for a taint."""
    if toleration.effect not in (None, taint.effect):
        return False
    if toleration.operator == EXISTS:
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def describe(taint: ClusterTaint) -> str:
    """A taint as kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
