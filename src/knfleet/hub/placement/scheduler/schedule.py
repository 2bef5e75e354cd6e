"""The scheduler: which clusters a Placement selects, as a function of what is known.

Sets, predicates and taints leave clusters over; prioritizers rank them; as many as are wanted are
taken in this order, and divided into groups. What cannot be followed because it makes no sense
changes nothing: a misconfigured Placement keeps the clusters that it has, as long as it may have
them at all.
"""

from collections.abc import Sequence
from datetime import datetime

from knfleet.api.cluster.placement import MISCONFIGURED, SATISFIED, Placement
from knfleet.api.conditions import StandardCondition
from knfleet.api.knative.conditions import Status
from knfleet.hub.placement.scheduler import checks, groups, prioritizers, spread, taints
from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates
from knfleet.hub.placement.scheduler.fleet_state import PlacementView
from knfleet.hub.placement.scheduler.prioritizers import SPREAD, STEADY, few, weights
from knfleet.hub.placement.scheduler.schedule_model import (
    CandidateCluster,
    Decision,
    FilterStep,
    Ranking,
    Schedule,
)

SETS = "ClusterSets"
PREDICATES = "Predicate"
TAINTS = "TaintToleration"


def schedule(
    placement: Placement, view: PlacementView, cel: CelPredicates, now: datetime
) -> Schedule:
    """What a Placement selects; raises `Unfinished` when expressions need another pass."""
    problem = checks.problem(placement, cel)
    if problem:
        return kept(placement, view, problem)
    return Scheduler(placement, view, cel, now).schedule()


def kept(placement: Placement, view: PlacementView, problem: str) -> Schedule:
    """The decisions that a misconfigured Placement has, as far as its sets still allow them."""
    members = {each.name for each in view.members}
    message = f"{problem}. Decisions stay as they are until this is corrected."
    return Schedule(
        kept=view.earlier & members,
        satisfied=None,
        misconfigured=condition(placement, MISCONFIGURED, "True", "Misconfigured", message),
    )


def condition(
    placement: Placement, type_: str, status: Status, reason: str, message: str
) -> StandardCondition:
    """A condition of a Placement."""
    return StandardCondition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        observed_generation=placement.metadata.generation,
    )


class Scheduler:
    """One pass for one Placement."""

    def __init__(
        self, placement: Placement, view: PlacementView, cel: CelPredicates, now: datetime
    ) -> None:
        self.placement = placement
        self.spec = placement.spec
        self.view = view
        self.cel = cel
        self.now = now
        self.moments: list[datetime] = []
        self.failures: dict[str, str] = {}
        self.avoided: set[str] = set()
        self.matched: dict[str, int] = {}
        """The first predicate that selects each cluster, from 1."""

    def schedule(self) -> Schedule:
        """What the Placement selects."""
        members = self.view.members
        matching = self.matching(members)
        tolerable = self.tolerable(matching)
        rankings, totals = self.rank(tolerable)
        ordered = sorted(
            tolerable, key=lambda each: (each.name in self.avoided, -totals[each.name], each.name)
        )
        wanted = self.spec.number_of_clusters
        selected = spread.select(
            ordered,
            self.spec.spread_policy.spread_constraints,
            len(ordered) if wanted is None else wanted,
        )
        decisions = {each.name: self.decision(each, totals[each.name]) for each in selected}
        return Schedule(
            groups=groups.divide(self.placement, selected, decisions),
            satisfied=self.satisfied(members, matching, tolerable, len(selected)),
            misconfigured=self.configured(),
            next_moment=min(self.moments, default=None),
            sets=self.view.sets,
            steps=(
                FilterStep(SETS, members),
                FilterStep(PREDICATES, matching),
                FilterStep(TAINTS, tolerable),
            ),
            rankings=rankings,
            failures=self.failures,
        )

    def matching(self, clusters: Sequence[CandidateCluster]) -> Sequence[CandidateCluster]:
        """The clusters that a predicate selects."""
        predicates = [each.required_cluster_selector for each in self.spec.predicates]
        if not predicates:
            return clusters
        found: list[CandidateCluster] = []
        for cluster in clusters:
            for number, selector in enumerate(predicates, start=1):
                if (
                    selector.label_selector.matches(cluster.labels)
                    and selector.claim_selector.matches(cluster.claims)
                    and self.is_true(selector.cel_selector.cel_expressions, cluster)
                ):
                    found.append(cluster)
                    self.matched[cluster.name] = number
                    break
        return found

    def is_true(self, expressions: Sequence[str], cluster: CandidateCluster) -> bool:
        """Whether expressions select a cluster; one without a value does not."""
        if not expressions:
            return True
        result = self.cel.select(expressions, cluster, self.view)
        if isinstance(result, str):
            self.failures[cluster.name] = result
            return False
        return result

    def tolerable(self, clusters: Sequence[CandidateCluster]) -> Sequence[CandidateCluster]:
        """The clusters without taints that forbid to select them."""
        found: list[CandidateCluster] = []
        tolerations = self.spec.tolerations
        for cluster in clusters:
            if not cluster.taints:
                found.append(cluster)
                continue
            verdict = taints.judge(
                cluster, tolerations, self.now, selected=cluster.name in self.view.earlier
            )
            if verdict.excluded_by is not None:
                continue
            if verdict.until is not None:
                self.moments.append(verdict.until)
            if verdict.avoided_by is not None:
                self.avoided.add(cluster.name)
            found.append(cluster)
        return found

    def rank(
        self, clusters: Sequence[CandidateCluster]
    ) -> tuple[tuple[Ranking, ...], dict[str, int]]:
        """The scores of clusters."""
        found = prioritizers.rank(self.spec.prioritizer_policy, self.view, clusters, self.now)
        if found.until is not None:
            self.moments.append(found.until)
        weight = weights(self.spec.prioritizer_policy).get(SPREAD)
        if not weight:
            return found.each, dict(found.totals)
        ordered = sorted(clusters, key=lambda each: (-found.totals[each.name], each.name))
        constraints = self.spec.spread_policy.spread_constraints
        every = (*found.each, Ranking(SPREAD, weight, spread.scores(ordered, constraints)))
        return every, prioritizers.total(clusters, every)

    def decision(self, cluster: CandidateCluster, total: int) -> Decision:
        """The decision for a cluster, with the score that it has once it is selected."""
        if cluster.name not in self.view.earlier:
            total += prioritizers.MOST * weights(self.spec.prioritizer_policy).get(STEADY, 0)
        return Decision(cluster.name, self.reason(cluster), total)

    def reason(self, cluster: CandidateCluster) -> str:
        """Why a cluster is selected."""
        number = self.matched.get(cluster.name)
        matches = "in a bound cluster set" if number is None else f"matches predicate {number}"
        if self.spec.number_of_clusters is None:
            return matches
        return f"{matches}, and ranks among the first {self.spec.number_of_clusters}"

    def satisfied(
        self,
        members: Sequence[CandidateCluster],
        matching: Sequence[CandidateCluster],
        tolerable: Sequence[CandidateCluster],
        selected: int,
    ) -> StandardCondition:
        """Whether there are as many clusters as wanted, and if not, why."""
        wanted = self.spec.number_of_clusters
        namespace = self.placement.key.namespace
        status: Status = "False"
        if not self.view.bound:
            reason = "NoManagedClusterSetBindings"
            message = f"No cluster set is bound to namespace {namespace}; bind one."
        elif not self.view.sets:
            reason = "NoIntersection"
            message = (
                f"None of the cluster sets {', '.join(self.spec.cluster_sets)} is bound to"
                f" namespace {namespace}."
            )
        elif not members:
            reason = "AllManagedClusterSetsEmpty"
            message = f"The cluster sets {', '.join(self.view.sets)} have no clusters."
        elif not tolerable:
            reason = "NoManagedClusterMatched"
            message = f"No cluster of {len(members)} can be selected: "
            message += self.losses(members, matching, tolerable)
        elif wanted is not None and selected < wanted:
            reason = "NotAllDecisionsScheduled"
            message = f"{selected} of {wanted} clusters selected; {len(members)} are in the sets, "
            message += self.losses(members, matching, tolerable)
            if selected < len(tolerable):
                message += f", {len(tolerable) - selected} left out by spreadPolicy"
        else:
            status, reason = "True", "AllDecisionsScheduled"
            message = f"{selected} clusters selected."
        return condition(self.placement, SATISFIED, status, reason, message)

    def losses(
        self,
        members: Sequence[CandidateCluster],
        matching: Sequence[CandidateCluster],
        tolerable: Sequence[CandidateCluster],
    ) -> str:
        """How many clusters each filter left out."""
        return (
            f"{len(members) - len(matching)} left out by predicates,"
            f" {len(matching) - len(tolerable)} by taints"
        )

    def configured(self) -> StandardCondition:
        """That the Placement makes sense, with what is worth knowing besides."""
        message = ""
        if self.failures:
            name, failure = next(iter(self.failures.items()))
            message = (
                f"A CEL expression has no value for {few(list(self.failures))}, which are not"
                f" selected; for {name}: {failure}"
            )
        return condition(self.placement, MISCONFIGURED, "False", "Succeedconfigured", message)
