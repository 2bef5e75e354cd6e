"""Why a Placement selects a cluster or not: every filter and every score, cluster by cluster."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from knfleet.api.cluster.clusterset import LabelRequirement, LabelSelector
from knfleet.api.cluster.placement import ClusterSelector, Placement
from knfleet.hub.placement.scheduler import taints
from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates
from knfleet.hub.placement.scheduler.fleet_state import Fleet, PlacementView
from knfleet.hub.placement.scheduler.schedule import PREDICATES, SETS, TAINTS
from knfleet.hub.placement.scheduler.schedule_model import CandidateCluster, Schedule

SELECTED = "Selected"
RANK = "Rank"


class ClusterExplanation(Struct, frozen=True, kw_only=True):
    """What became of one cluster."""

    cluster: str
    step: str
    """The filter that left it out; else `Rank` or `Selected`."""
    reason: str
    scores: Mapping[str, int] = {}
    """By prioritizer, before they are weighed."""
    total: int = 0
    group: str = ""

    @property
    def selected(self) -> bool:
        """Whether the Placement selects the cluster."""
        return self.step == SELECTED


def explain(
    placement: Placement, schedule: Schedule, fleet: Fleet, cel: CelPredicates, now: datetime
) -> list[ClusterExplanation]:
    """All clusters of the fleet: selected ones first, then by how far they came."""
    left = {step.name: {each.name for each in step.left} for step in schedule.steps}
    chosen = {each.cluster: each for each in schedule.decisions}
    group_of = {
        each.cluster: group.name or f"number {group.index}"
        for group in schedule.groups
        for each in group.decisions
    }
    view = fleet.view(placement)
    found: list[ClusterExplanation] = []
    for cluster in fleet.clusters.values():
        name = cluster.name
        scores = {ranking.name: ranking.scores.get(name, 0) for ranking in schedule.rankings}
        total = sum(each.weight * each.scores.get(name, 0) for each in schedule.rankings)
        if name in chosen:
            step, reason = SELECTED, chosen[name].reason
        elif name not in left.get(SETS, ()):
            step, reason = SETS, outside(placement, schedule)
        elif name not in left[PREDICATES]:
            step, reason = PREDICATES, unmatched(placement, cluster, view, cel)
        elif name not in left[TAINTS]:
            step, reason = TAINTS, untolerated(placement, cluster, now)
        else:
            step, reason = RANK, "others rank higher, or spreadPolicy leaves it out"
        ranked = step in (SELECTED, RANK)
        found.append(
            ClusterExplanation(
                cluster=name,
                step=step,
                reason=reason,
                scores=scores if ranked else {},
                total=total if ranked else 0,
                group=group_of.get(name, ""),
            )
        )
    order = (SELECTED, RANK, TAINTS, PREDICATES, SETS)
    return sorted(found, key=lambda each: (order.index(each.step), -each.total, each.cluster))


def outside(placement: Placement, schedule: Schedule) -> str:
    """Why a cluster is not among those to select from."""
    if not schedule.sets:
        return f"no wanted cluster set is bound to namespace {placement.key.namespace}"
    return f"not in {', '.join(schedule.sets)}"


def untolerated(placement: Placement, cluster: CandidateCluster, now: datetime) -> str:
    """Which taint keeps a cluster from being selected."""
    verdict = taints.judge(cluster, placement.spec.tolerations, now, selected=False)
    taint = verdict.excluded_by
    return "" if taint is None else f"taint {taints.describe(taint)} is not tolerated"


def unmatched(
    placement: Placement, cluster: CandidateCluster, view: PlacementView, cel: CelPredicates
) -> str:
    """Why no predicate selects a cluster."""
    reasons: list[str] = []
    for number, predicate in enumerate(placement.spec.predicates, start=1):
        mismatch = first_mismatch(predicate.required_cluster_selector, cluster, view, cel)
        reasons.append(f"predicate {number}: {mismatch}")
    return "; ".join(reasons)


def first_mismatch(
    selector: ClusterSelector, cluster: CandidateCluster, view: PlacementView, cel: CelPredicates
) -> str:
    """The first part of a selector that does not select a cluster."""
    for requirement in requirements(selector.label_selector):
        if not requirement.matches(cluster.labels):
            return difference("label", requirement, cluster.labels)
    for requirement in selector.claim_selector.match_expressions:
        if not requirement.matches(cluster.claims):
            return difference("claim", requirement, cluster.claims)
    for expression in selector.cel_selector.cel_expressions:
        result = cel.result(expression, cluster, view)
        if isinstance(result, str):
            return f"CEL {expression} has no value: {result}"
        if not result:
            return f"CEL {expression} is false"
    return "selects it"


def requirements(selector: LabelSelector) -> Sequence[LabelRequirement]:
    """A selector as a list of requirements."""
    by_labels = [
        LabelRequirement(key=key, operator="In", values=[value])
        for key, value in selector.match_labels.items()
    ]
    return [*by_labels, *selector.match_expressions]


def difference(kind: str, requirement: LabelRequirement, given: Mapping[str, str]) -> str:
    """What a cluster has, and what is required."""
    found = given.get(requirement.key)
    has = "is absent" if found is None else f"is {found!r}"
    values = f" {', '.join(requirement.values)}" if requirement.values else ""
    return f"{kind} {requirement.key} {has}, must be {requirement.operator}{values}"
