"""What the scheduler is given and what it answers."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from knfleet.api.cluster.managedcluster import Effect
from knfleet.api.conditions import StandardCondition
from knfleet.api.meta import Object
from knfleet.api.moments import as_moment
from knfleet.api.quantity import quantity
from knfleet.apply.manifest_fields import items, part


class ClusterTaint(Struct, frozen=True):
    """A taint of a cluster."""

    key: str
    value: str
    effect: Effect
    added: datetime | None
    """None: the hub has not recorded it yet."""


class CandidateCluster(Struct, frozen=True):
    """What scheduling reads of a ManagedCluster."""

    name: str
    version: str
    """Changes with anything about the cluster."""
    labels: dict[str, str]
    claims: dict[str, str]
    taints: tuple[ClusterTaint, ...]
    allocatable: Mapping[str, float]
    """Processors and bytes of memory, as far as they are known."""
    manifest: Object

    def same(self, other: "CandidateCluster") -> bool:
        """Whether both lead to the same decisions, expressions on the whole object aside."""
        return (
            self.labels == other.labels
            and self.claims == other.claims
            and self.taints == other.taints
            and self.allocatable == other.allocatable
        )


class Scores(Struct, frozen=True):
    """What scheduling reads of an AddOnPlacementScore."""

    values: Mapping[str, int]
    valid_until: datetime | None = None


class FilterStep(Struct, frozen=True):
    """A filter, and the clusters that are left after it."""

    name: str
    left: Sequence[CandidateCluster]


class Ranking(Struct, frozen=True):
    """The scores that a prioritizer gives."""

    name: str
    weight: int
    scores: Mapping[str, int]
    note: str = ""
    """What was missing."""


class Decision(Struct, frozen=True):
    """A selected cluster."""

    cluster: str
    reason: str
    score: int


class ScheduledGroup(Struct, frozen=True):
    """Selected clusters that belong together."""

    index: int
    name: str
    decisions: tuple[Decision, ...]


class Schedule(Struct, frozen=True, kw_only=True):
    """What a Placement selects, and how that came about."""

    groups: tuple[ScheduledGroup, ...] = ()
    """At least one, which may be empty; none of a misconfigured Placement."""
    kept: frozenset[str] | None = None
    """Of a misconfigured Placement: those clusters of its decisions that it may keep."""
    satisfied: StandardCondition | None
    """None: nothing new is known, because the Placement is misconfigured."""
    misconfigured: StandardCondition
    next_moment: datetime | None = None
    """When time alone may change the answer."""
    sets: tuple[str, ...] = ()
    steps: tuple[FilterStep, ...] = ()
    rankings: tuple[Ranking, ...] = ()
    failures: Mapping[str, str] = {}
    """Clusters for which an expression has no value, and why."""

    @property
    def decisions(self) -> list[Decision]:
        """All selected clusters, group after group."""
        return [decision for group in self.groups for decision in group.decisions]


def cluster_of(manifest: Object) -> CandidateCluster:
    """What scheduling reads of a ManagedCluster."""
    meta = manifest["metadata"]
    status = part(manifest, "status")
    amounts = part(status, "allocatable")
    parsed = {name: quantity(str(amounts.get(name, ""))) for name in ("cpu", "memory")}
    return CandidateCluster(
        name=meta["name"],
        version=f"{meta.get('uid', '')}/{meta.get('resourceVersion', '')}",
        labels=meta.get("labels") or {},
        claims={each["name"]: each["value"] for each in items(status, "clusterClaims")},
        taints=tuple(
            ClusterTaint(
                each["key"], each.get("value") or "", each["effect"], moment(each.get("timeAdded"))
            )
            for each in items(manifest, "spec", "taints")
        ),
        allocatable={name: float(each) for name, each in parsed.items() if each is not None},
        manifest=manifest,
    )


def scores_of(manifest: Object) -> Scores:
    """What scheduling reads of an AddOnPlacementScore."""
    status = part(manifest, "status")
    values = {each["name"]: int(each["value"]) for each in items(status, "scores")}
    return Scores(values, moment(status.get("validUntil")))


def moment(text: str | None) -> datetime | None:
    """A time of the API; None when there is none."""
    return as_moment(text or "")
