"""Decision groups: the selected clusters, divided as a Placement says."""

from collections.abc import Mapping, Sequence

from knfleet.api.cluster.placement import DecisionGroup, Placement
from knfleet.expressions.selectors import label_selector_problem, requirements_problem
from knfleet.hub.placement.scheduler.schedule_model import (
    CandidateCluster,
    Decision,
    ScheduledGroup,
)
from knfleet.hub.rollout.shares import is_share, share


def problem(placement: Placement) -> str:
    """What is wrong with the groups of a Placement; empty when nothing is."""
    strategy = placement.spec.decision_strategy.group_strategy
    size = strategy.clusters_per_decision_group
    if not is_share(size) or share(size, 100) <= 0:
        return f"clustersPerDecisionGroup: {size!r} is neither a number nor a percentage above 0"
    for group in strategy.decision_groups:
        selector = group.group_cluster_selector
        wrong = label_selector_problem(selector.label_selector) or requirements_problem(
            selector.claim_selector.match_expressions
        )
        if wrong:
            return f"decision group {group.group_name}: {wrong}"
    return ""


def divide(
    placement: Placement, selected: Sequence[CandidateCluster], decisions: Mapping[str, Decision]
) -> tuple[ScheduledGroup, ...]:
    """The groups of the selected clusters; one empty group when nothing is selected."""
    strategy = placement.spec.decision_strategy.group_strategy
    most = max(share(strategy.clusters_per_decision_group, len(selected)), 1)
    left = list(selected)
    parts: list[tuple[str, list[CandidateCluster]]] = []
    for group in strategy.decision_groups:
        own = [each for each in left if belongs(each, group)]
        taken = {each.name for each in own}
        left = [each for each in left if each.name not in taken]
        parts.extend(cut(group.group_name, own, most, placement, decisions))
    parts.extend(cut("", left, most, placement, decisions))
    return tuple(
        ScheduledGroup(index, name, tuple(decisions[each.name] for each in clusters))
        for index, (name, clusters) in enumerate(parts or [("", [])])
    )


def belongs(cluster: CandidateCluster, group: DecisionGroup) -> bool:
    """Whether a cluster is selected by a group."""
    selector = group.group_cluster_selector
    return selector.label_selector.matches(cluster.labels) and selector.claim_selector.matches(
        cluster.claims
    )


def cut(
    name: str,
    clusters: Sequence[CandidateCluster],
    most: int,
    placement: Placement,
    decisions: Mapping[str, Decision],
) -> list[tuple[str, list[CandidateCluster]]]:
    """A group divided into parts of at most so many clusters."""
    if placement.spec.sort_by == "Score":
        ordered = sorted(clusters, key=lambda each: (-decisions[each.name].score, each.name))
    else:
        ordered = sorted(clusters, key=lambda each: each.name)
    return [(name, ordered[start : start + most]) for start in range(0, len(ordered), most)]
