"""What can be wrong with a Placement that the API server stored."""

from knfleet.api import durations
from knfleet.api.cluster.placement import Placement
from knfleet.expressions.selectors import (
    LONGEST_VALUE,
    label_selector_problem,
    requirements_problem,
)
from knfleet.hub.placement.scheduler import groups, prioritizers, taints
from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates


def problem(placement: Placement, cel: CelPredicates) -> str:
    """Why a Placement cannot be followed; empty when it can."""
    spec = placement.spec
    if not can_be_labeled(placement):
        return (
            f"the name has more than {LONGEST_VALUE} characters, which is the most that the label"
            " of its decisions can have; create it with a shorter name"
        )
    if spec.number_of_clusters is not None and spec.number_of_clusters < 0:
        return f"numberOfClusters must not be negative, but is {spec.number_of_clusters}"
    if durations.seconds(spec.score_rate_limit or "0") is None:
        return f"scoreRateLimit: {spec.score_rate_limit!r} is not a duration such as 1m"
    return (
        predicates_problem(placement, cel)
        or taints.problem(spec.tolerations)
        or prioritizers.problem(spec.prioritizer_policy)
        or groups.problem(placement)
    )


def can_be_labeled(placement: Placement) -> bool:
    """Whether decisions can carry the name of a Placement as a label."""
    return len(placement.metadata.name) <= LONGEST_VALUE


def predicates_problem(placement: Placement, cel: CelPredicates) -> str:
    """What is wrong with the predicates; empty when nothing is."""
    for number, predicate in enumerate(placement.spec.predicates, start=1):
        selector = predicate.required_cluster_selector
        found = (
            label_selector_problem(selector.label_selector)
            or requirements_problem(selector.claim_selector.match_expressions)
            or cel.problem(selector.cel_selector.cel_expressions)
        )
        if found:
            return f"predicate {number}: {found}"
    return ""
