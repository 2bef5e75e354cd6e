"""Whether a cluster is alive: Leases become conditions, conditions become taints.

The hub trusts its own clock: a cluster is alive for as long as its Lease *changes*, whatever time
the agent writes into it. How far the agent's clock is off is reported by a condition of its own.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    AVAILABLE,
    CLOCK_SYNCED,
    JOINED,
    SKIP_CLOCK_CHECK,
    UNAVAILABLE,
    UNREACHABLE,
    ManagedCluster,
    Taint,
)
from knfleet.api.conditions import StandardCondition, find, is_true
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Object
from knfleet.api.moments import as_moment

LEASE_STOPPED = "ManagedClusterLeaseUpdateStopped"
HUB_TAINTS = (UNREACHABLE, UNAVAILABLE)


class LeaseObservation(Struct, frozen=True):
    """When an agent last renewed its Lease, by the hub's clock."""

    renewed: str
    """What the Lease says."""
    seen: datetime
    skew: timedelta | None = None
    """How far the agent's clock is ahead; None when there was nothing to compare."""


class LeaseObservations:
    """Remembers when each cluster last renewed its Lease."""

    def __init__(self) -> None:
        self.beats: dict[str, LeaseObservation] = {}

    def observe(
        self, cluster: ManagedCluster, lease: Object | None, now: datetime
    ) -> LeaseObservation | None:
        """When a cluster last renewed its Lease, which is remembered; None when it never did."""
        beat = self.observation(cluster, lease, now)
        if beat is not None:
            self.beats[cluster.name] = beat
        return beat

    def observation(
        self, cluster: ManagedCluster, lease: Object | None, now: datetime
    ) -> LeaseObservation | None:
        """When a cluster last renewed its Lease, if this is its Lease; None when it never did.

        The first Lease that is seen may be as old as it says, unless the agent's clock is known to
        be off; a later one came just now. One that is gone says nothing: the hub makes it anew.
        """
        spec: Object = (lease or {}).get("spec") or {}
        renewed: str = spec.get("renewTime") or ""
        moment = as_moment(renewed)
        known = self.beats.get(cluster.name)
        if moment is None:
            return known
        if known is None:
            return LeaseObservation(
                renewed, now if is_clock_doubtful(cluster) else min(moment, now)
            )
        return known if known.renewed == renewed else LeaseObservation(renewed, now, moment - now)

    def forget(self, cluster: str) -> None:
        self.beats.pop(cluster, None)


def is_clock_doubtful(cluster: ManagedCluster) -> bool:
    """Whether the times that a cluster's agent writes say nothing to the hub."""
    condition = find(cluster.status.conditions, CLOCK_SYNCED)
    is_off = condition is not None and condition.status == "False"
    return is_off or cluster.metadata.annotations.get(SKIP_CLOCK_CHECK) == "true"


def seconds_until_expired(
    cluster: ManagedCluster, beat: LeaseObservation | None, now: datetime
) -> float:
    """Seconds until a cluster counts as lost; 0 or less when it does."""
    if beat is None:
        return 0.0
    return (beat.seen + timedelta(seconds=cluster.grace_seconds) - now).total_seconds()


def is_alive(cluster: ManagedCluster, beat: LeaseObservation | None, now: datetime) -> bool:
    """Whether the cluster is accepted, has joined, and renewed its Lease lately."""
    return (
        cluster.spec.hub_accepts_client
        and is_true(cluster.status.conditions, JOINED)
        and seconds_until_expired(cluster, beat, now) > 0
    )


def availability(
    cluster: ManagedCluster, beat: LeaseObservation | None, now: datetime
) -> StandardCondition | None:
    """What the hub says of a cluster's availability; None when that is for the agent to say."""
    was_accepted = find(cluster.status.conditions, ACCEPTED) is not None
    is_leaving = cluster.metadata.deleting
    if (
        not was_accepted
        or (beat is None and not is_leaving)
        or seconds_until_expired(cluster, beat, now) > 0
    ):
        return None
    since = "there is no Lease" if beat is None else f"the last sign was at {timestamp(beat.seen)}"
    return StandardCondition(
        type=AVAILABLE,
        status="Unknown",
        reason=LEASE_STOPPED,
        message=f"The agent has not renewed its Lease for {cluster.grace_seconds} s: {since}.",
    )


def clock(cluster: ManagedCluster, beat: LeaseObservation | None) -> StandardCondition | None:
    """What the hub says of an agent's clock; None when it has nothing new to say."""
    if beat is None or beat.skew is None or not cluster.spec.hub_accepts_client:
        return None
    off = abs(beat.skew.total_seconds())
    if off < cluster.grace_seconds or cluster.metadata.annotations.get(SKIP_CLOCK_CHECK) == "true":
        return StandardCondition(
            type=CLOCK_SYNCED,
            status="True",
            reason="ManagedClusterClockSynced",
            message="The clocks of hub and cluster agree.",
        )
    side = "ahead of" if beat.skew > timedelta(0) else "behind"
    return StandardCondition(
        type=CLOCK_SYNCED,
        status="False",
        reason="ManagedClusterClockOutOfSync",
        message=(
            f"The cluster's clock is about {round(off / 60)} min {side} the hub's;"
            " set it right, for instance with NTP."
        ),
    )


def taints(cluster: ManagedCluster, now: datetime) -> list[Taint]:
    """The taints that a cluster should have: its own, and the hub's; all with their time."""
    wanted = hub_taint(cluster, now)
    kept = [
        each if each.time_added else replace(each, time_added=timestamp(now))
        for each in cluster.spec.taints
        if each.key not in HUB_TAINTS
    ]
    return kept if wanted is None else [*kept, wanted]


def hub_taint(cluster: ManagedCluster, now: datetime) -> Taint | None:
    """The taint of a cluster that is not there; its time is that of the condition.

    So it is the same again when a client removed it, and no toleration begins anew.
    """
    condition = find(cluster.status.conditions, AVAILABLE)
    if condition is not None and condition.status == "True":
        return None
    key = UNAVAILABLE if condition is not None and condition.status == "False" else UNREACHABLE
    since = (
        cluster.metadata.creation_timestamp if condition is None else condition.last_transition_time
    )
    return Taint(key=key, effect="NoSelect", time_added=since or timestamp(now))


def same_taints(one: Sequence[Taint], other: Sequence[Taint]) -> bool:
    """Whether two lists have the same taints, in whatever order."""
    return sorted(map(taint_key, one)) == sorted(map(taint_key, other))


def taint_key(taint: Taint) -> tuple[str, ...]:
    return taint.key, taint.effect, taint.value, taint.time_added
