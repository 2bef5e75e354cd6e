"""Scores of clusters: each prioritizer gives -100 to 100, and a Placement weighs them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from knfleet.api.cluster.placement import PrioritizerConfig, PrioritizerPolicy
from knfleet.hub.placement.scheduler.fleet_state import PlacementView
from knfleet.hub.placement.scheduler.schedule_model import CandidateCluster, Ranking

BALANCE = "Balance"
STEADY = "Steady"
SPREAD = "Spread"
RESOURCES = {"ResourceAllocatableCPU": "cpu", "ResourceAllocatableMemory": "memory"}
BUILT_IN = (BALANCE, STEADY, *RESOURCES, SPREAD)
DEFAULTS = {BALANCE: 1, STEADY: 1}
MOST, LEAST = 100, -100
MOST_WEIGHT = 10
ADDITIVE, EXACT = "Additive", "Exact"


class AddOnSource(Struct, frozen=True):
    """A score that an add-on publishes."""

    resource: str
    score: str

    def __str__(self) -> str:
        return f"AddOn {self.resource}/{self.score}"


Source = str | AddOnSource


def problem(policy: PrioritizerPolicy) -> str:
    """What is wrong with a policy; empty when nothing is."""
    if policy.mode not in ("", ADDITIVE, EXACT):
        return f"prioritizerPolicy.mode must be {ADDITIVE} or {EXACT}, not {policy.mode!r}"
    for config in policy.configurations:
        coordinate = config.score_coordinate
        if coordinate.type == "AddOn":
            if coordinate.add_on is None:
                return "a scoreCoordinate of type AddOn needs addOn"
        elif coordinate.built_in not in BUILT_IN:
            return f"{coordinate.built_in!r} is not a prioritizer: one of {', '.join(BUILT_IN)}"
        if abs(config.weight) > MOST_WEIGHT:
            return f"weight {config.weight} is not between -{MOST_WEIGHT} and {MOST_WEIGHT}"
        if source_of(config) == STEADY and config.weight < 0:
            return f"the weight of {STEADY} is negative: clusters would change without end"
    return ""


def weights(policy: PrioritizerPolicy) -> dict[Source, int]:
    """The prioritizers of a policy and their weights, without those that have none."""
    found: dict[Source, int] = {} if policy.mode == EXACT else {**DEFAULTS}
    for config in policy.configurations:
        found[source_of(config)] = config.weight
    return {source: weight for source, weight in found.items() if weight}


def source_of(config: PrioritizerConfig) -> Source:
    """Where a configured score comes from."""
    coordinate = config.score_coordinate
    if coordinate.type == "AddOn" and coordinate.add_on is not None:
        return AddOnSource(coordinate.add_on.resource_name, coordinate.add_on.score_name)
    return coordinate.built_in


class Rankings(Struct, frozen=True):
    """Scores by all prioritizers, and when one of them expires."""

    each: tuple[Ranking, ...]
    totals: Mapping[str, int]
    until: datetime | None = None


def rank(
    policy: PrioritizerPolicy,
    view: PlacementView,
    clusters: Sequence[CandidateCluster],
    now: datetime,
) -> Rankings:
    """The scores of clusters by the prioritizers of a policy, but for Spread."""
    rankings: list[Ranking] = []
    until: datetime | None = None
    for source, weight in weights(policy).items():
        if isinstance(source, AddOnSource):
            ranking, ends = published(source, weight, view, clusters, now)
            rankings.append(ranking)
            if ends is not None:
                until = ends if until is None else min(until, ends)
        elif source in SCORERS:
            scores = SCORERS[source](view, clusters)
            rankings.append(Ranking(source, weight, scores))
    return Rankings(tuple(rankings), total(clusters, rankings), until)


def total(clusters: Sequence[CandidateCluster], rankings: Sequence[Ranking]) -> dict[str, int]:
    """The sum of weighted scores by cluster."""
    totals = dict.fromkeys((each.name for each in clusters), 0)
    for ranking in rankings:
        weight = ranking.weight
        for name, score in ranking.scores.items():
            totals[name] += weight * score
    return totals


def balance(view: PlacementView, clusters: Sequence[CandidateCluster]) -> dict[str, int]:
    """Prefers clusters that few other Placements selected."""
    counts = view.others(clusters)
    most = max(counts.values(), default=0)
    if not most:
        return dict.fromkeys(counts, MOST)
    return {name: 2 * int(100 * (0.5 - count / most)) for name, count in counts.items()}


def steady(view: PlacementView, clusters: Sequence[CandidateCluster]) -> dict[str, int]:
    """Prefers clusters that are selected already."""
    return {each.name: MOST if each.name in view.earlier else 0 for each in clusters}


def by_resource(resource: str) -> "Scorer":
    """A scorer that prefers clusters with much of a resource."""

    def scores(_view: PlacementView, clusters: Sequence[CandidateCluster]) -> dict[str, int]:
        known = [each.allocatable[resource] for each in clusters if resource in each.allocatable]
        least, most = min(known, default=0.0), max(known, default=0.0)
        return {
            each.name: between(each.allocatable.get(resource), least, most) for each in clusters
        }

    return scores


def between(amount: float | None, least: float, most: float) -> int:
    """The score of an amount between the least and the most; one that is unknown is the least."""
    if amount is None:
        return LEAST
    if most == least:
        return MOST
    return int(((amount - least) / (most - least) - 0.5) * 2 * 100)


Scorer = Callable[[PlacementView, Sequence[CandidateCluster]], dict[str, int]]
SCORERS: dict[str, Scorer] = {
    BALANCE: balance,
    STEADY: steady,
    **{name: by_resource(resource) for name, resource in RESOURCES.items()},
}


def published(
    source: AddOnSource,
    weight: int,
    view: PlacementView,
    clusters: Sequence[CandidateCluster],
    now: datetime,
) -> tuple[Ranking, datetime | None]:
    """Scores of an add-on, and when the first of them expires; without one, a cluster has zero."""
    scores: dict[str, int] = {}
    until: datetime | None = None
    missing: list[str] = []
    for cluster in clusters:
        found = view.scores.get(cluster.name, {}).get(source.resource)
        score = None if found is None else found.values.get(source.score)
        ends = None if found is None else found.valid_until
        if score is None or (ends is not None and ends <= now):
            scores[cluster.name] = 0
            missing.append(cluster.name)
            continue
        scores[cluster.name] = min(max(score, LEAST), MOST)
        if ends is not None:
            until = ends if until is None else min(until, ends)
    note = f"no valid score for {few(missing)}" if missing else ""
    return Ranking(str(source), weight, scores, note), until


def few(names: Sequence[str]) -> str:
    """Some of the names."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
