"""What the scheduler knows of the fleet: clusters, sets, bindings, scores and decisions.

Each object is read once, when it changes. What follows from many of them, such as the members of a
set, is computed when it is first needed and kept until something changes; all Placements share it.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from knfleet.api.cluster.clusterset import ManagedClusterSet
from knfleet.api.cluster.placement import Placement
from knfleet.api.meta import Key
from knfleet.hub.placement.scheduler.schedule_model import CandidateCluster, Scores


class PlacementView(Struct, frozen=True):
    """What one pass for one Placement sees; it stays as it is while the fleet changes."""

    bound: tuple[str, ...]
    """Sets that are bound to the namespace of the Placement."""
    sets: tuple[str, ...]
    """Those of them that the Placement selects from."""
    members: tuple[CandidateCluster, ...]
    earlier: frozenset[str]
    """Clusters that the Placement has decisions for."""
    counts: Mapping[str, int]
    """How many Placements have a decision for each cluster."""
    scores: Mapping[str, Mapping[str, Scores]]
    score_versions: Mapping[str, int]

    def others(self, clusters: Sequence[CandidateCluster]) -> dict[str, int]:
        """How many other Placements have a decision for each of some clusters."""
        own, counts = self.earlier, self.counts
        return {
            each.name: counts.get(each.name, 0) - (1 if each.name in own else 0)
            for each in clusters
        }


class Fleet:
    """Clusters and what they are grouped, ranked and selected by."""

    def __init__(self) -> None:
        self.clusters: dict[str, CandidateCluster] = {}
        self.sets: dict[str, ManagedClusterSet] = {}
        self.bindings: dict[str, dict[str, str]] = {}
        """By namespace, then by name of the binding: the name of the set."""
        self.scores: dict[str, dict[str, Scores]] = {}
        """By cluster, then by name of the AddOnPlacementScore."""
        self.score_versions: dict[str, int] = {}
        self.decided: dict[Key, frozenset[str]] = {}
        """The clusters that Placements have decisions for."""
        self.counts: dict[str, int] = {}
        """How many Placements have a decision for each cluster."""
        self.memberships: dict[str, tuple[str, ...]] = {}
        self.candidates: dict[tuple[str, ...], tuple[CandidateCluster, ...]] = {}

    def put_cluster(self, name: str, cluster: CandidateCluster | None) -> None:
        """A cluster is as given, or gone."""
        if cluster is None:
            self.clusters.pop(name, None)
        else:
            self.clusters[name] = cluster
        self.memberships.clear()
        self.candidates.clear()

    def put_set(self, name: str, cluster_set: ManagedClusterSet | None) -> None:
        """A set is as given, or gone."""
        if cluster_set is None:
            self.sets.pop(name, None)
        else:
            self.sets[name] = cluster_set
        self.memberships.clear()
        self.candidates.clear()

    def put_binding(self, key: Key, cluster_set: str | None) -> None:
        """A binding is for a set, or gone."""
        own = self.bindings.setdefault(key.namespace, {})
        if cluster_set is None:
            own.pop(key.name, None)
        else:
            own[key.name] = cluster_set

    def put_scores(self, key: Key, scores: Scores | None) -> None:
        """An AddOnPlacementScore in a cluster's namespace is as given, or gone."""
        own = dict(self.scores.get(key.namespace, {}))
        if scores is None:
            own.pop(key.name, None)
        else:
            own[key.name] = scores
        # A new value, since a pass may be reading the old one.
        self.scores[key.namespace] = own
        self.score_versions[key.namespace] = self.score_versions.get(key.namespace, 0) + 1

    def put_decided(self, placement: Key, clusters: frozenset[str]) -> None:
        """A Placement has decisions for these clusters."""
        for name in self.decided.pop(placement, frozenset()):
            self.counts[name] -= 1
            if not self.counts[name]:
                del self.counts[name]
        if clusters:
            self.decided[placement] = clusters
        for name in clusters:
            self.counts[name] = self.counts.get(name, 0) + 1

    def view(self, placement: Placement) -> PlacementView:
        """What a pass for a Placement sees."""
        bound = tuple(self.bound_sets(placement.key.namespace))
        wanted = placement.spec.cluster_sets
        sets = tuple(name for name in bound if not wanted or name in wanted)
        return PlacementView(
            bound=bound,
            sets=sets,
            members=self.members(sets),
            earlier=self.decided.get(placement.key, frozenset[str]()),
            counts=dict(self.counts),
            scores=dict(self.scores),
            score_versions=dict(self.score_versions),
        )

    def bound_sets(self, namespace: str) -> list[str]:
        """The sets that are bound to a namespace and exist."""
        return sorted(set(self.bindings.get(namespace, {}).values()).intersection(self.sets))

    def members(self, names: Iterable[str]) -> tuple[CandidateCluster, ...]:
        """The clusters of some sets, by name."""
        chosen = tuple(names)
        known = self.candidates.get(chosen)
        if known is None:
            found = {each for name in chosen for each in self.membership(name)}
            known = tuple(self.clusters[name] for name in sorted(found))
            self.candidates[chosen] = known
        return known

    def membership(self, name: str) -> tuple[str, ...]:
        """The names of a set's clusters."""
        known = self.memberships.get(name)
        if known is None:
            cluster_set = self.sets[name]
            known = tuple(
                each.name for each in self.clusters.values() if cluster_set.has(each.labels)
            )
            self.memberships[name] = known
        return known
