"""Keeps what the scheduler knows up to date, and says which Placements a change concerns."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from msgspec import Struct

from knfleet.api.cluster.clusterset import ManagedClusterSet
from knfleet.api.cluster.placement import Placement
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.schema import decode
from knfleet.hub.placement.decisions.decision_objects import DecisionObject, placements_of, read
from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates
from knfleet.hub.placement.scheduler.fleet_state import Fleet
from knfleet.hub.placement.scheduler.prioritizers import AddOnSource, weights
from knfleet.hub.placement.scheduler.schedule_model import CandidateCluster, cluster_of, scores_of
from knfleet.kube.cache.informer import StoreChange


class IndexedObjects(Protocol):
    """Objects that can be found by what an index finds in them."""

    def by_index(self, index: str, value: str) -> list[Object]:
        """The objects in which an index finds a value."""
        ...


class Expected(Struct):
    """What this process wrote last, so that it need not look at its own writes again."""

    decisions: dict[str, DecisionObject]
    status: Object


class PlacementWatch:
    """The fleet as Placements see it."""

    def __init__(self, decisions: IndexedObjects, cel: CelPredicates) -> None:
        self.decisions = decisions
        self.cel = cel
        self.fleet = Fleet()
        self.placements: dict[Key, Placement] = {}
        self.by_namespace: dict[str, set[Key]] = {}
        self.expected: dict[Key, Expected] = {}

    def expect(self, key: Key) -> Expected:
        """What this process wrote last for a Placement."""
        return self.expected.setdefault(key, Expected({}, {}))

    def by_placement(self, change: StoreChange) -> Iterable[Request]:
        """A Placement changed; its own status, written here, is ignored."""
        old = self.placements.pop(change.key, None)
        own = self.by_namespace.setdefault(change.key.namespace, set())
        if change.new is None:
            own.discard(change.key)
            self.expected.pop(change.key, None)
            yield Request(HUB, change.key)
            return
        own.add(change.key)
        new = self.placements[change.key] = decode(change.new, Placement)
        written = change.new.get("status") == self.expect(change.key).status
        if old is None or not written or not is_same_request(old, new):
            yield Request(HUB, change.key)

    def by_decision(self, change: StoreChange) -> Iterable[Request]:
        """A decision object changed; those that were written here are ignored."""
        names = {
            name
            for each in (change.old, change.new)
            if each is not None
            for name in placements_of(each)
        }
        for name in names:
            namespace, _, placement = name.partition("/")
            key = Key(namespace, placement)
            objects = self.objects(key)
            self.fleet.put_decided(
                key, frozenset(cluster for each in objects for cluster in each.clusters)
            )
            wanted = self.expect(key).decisions.get(change.key.name)
            found = None if change.new is None else read(change.new)
            if not is_expected(found, wanted):
                yield Request(HUB, key)

    def objects(self, placement: Key) -> list[DecisionObject]:
        """The decision objects of a Placement."""
        return [read(each) for each in self.decisions.by_index("placement", str(placement))]

    def by_cluster(self, change: StoreChange) -> Iterable[Request]:
        """A cluster changed; what scheduling does not read of it concerns only expressions."""
        old = self.fleet.clusters.get(change.key.name)
        gone = change.new is None or change.new["metadata"].get("deletionTimestamp")
        new = None if gone or change.new is None else cluster_of(change.new)
        self.fleet.put_cluster(change.key.name, new)
        if new is None:
            self.cel.remove(change.key.name)
        unchanged = old is not None and new is not None and old.same(new)
        for key in self.concerned(old, new):
            if not unchanged or uses_cel(self.placements[key]):
                yield Request(HUB, key)

    def by_set(self, change: StoreChange) -> Iterable[Request]:
        """A cluster set changed: all namespaces that it is bound to are concerned."""
        name = change.key.name
        gone = change.new is None or change.new["metadata"].get("deletionTimestamp")
        wanted = None if gone or change.new is None else decode(change.new, ManagedClusterSet)
        old = self.fleet.sets.get(name)
        if old is not None and wanted is not None and old.spec == wanted.spec:
            return
        self.fleet.put_set(name, wanted)
        for namespace, bindings in self.fleet.bindings.items():
            if name in bindings.values():
                yield from self.requests(namespace)

    def by_binding(self, change: StoreChange) -> Iterable[Request]:
        """A binding changed: its namespace is concerned."""
        gone = change.new is None or change.new["metadata"].get("deletionTimestamp")
        wanted = None if gone or change.new is None else change.new["spec"]["clusterSet"]
        if self.fleet.bindings.get(change.key.namespace, {}).get(change.key.name) == wanted:
            return
        self.fleet.put_binding(change.key, wanted)
        yield from self.requests(change.key.namespace)

    def by_score(self, change: StoreChange) -> Iterable[Request]:
        """Scores of a cluster changed: Placements that read them are concerned."""
        self.fleet.put_scores(change.key, None if change.new is None else scores_of(change.new))
        cluster = self.fleet.clusters.get(change.key.namespace)
        for key in self.concerned(cluster, cluster):
            placement = self.placements[key]
            sources = weights(placement.spec.prioritizer_policy)
            ranked = any(
                isinstance(each, AddOnSource) and each.resource == change.key.name
                for each in sources
            )
            if ranked or uses_cel(placement):
                yield Request(HUB, key)

    def concerned(
        self, old: CandidateCluster | None, new: CandidateCluster | None
    ) -> Iterator[Key]:
        """The Placements that can select a cluster, as it was or as it is."""
        labels = [each.labels for each in (old, new) if each is not None]
        sets = {
            name for name, each in self.fleet.sets.items() if any(each.has(own) for own in labels)
        }
        for namespace, bindings in self.fleet.bindings.items():
            if not sets.isdisjoint(bindings.values()):
                yield from list(self.by_namespace.get(namespace, ()))

    def requests(self, namespace: str) -> Iterator[Request]:
        """All Placements of a namespace."""
        for key in list(self.by_namespace.get(namespace, ())):
            yield Request(HUB, key)


def uses_cel(placement: Placement) -> bool:
    """Whether a Placement selects by expressions, which may read anything of a cluster."""
    return any(
        each.required_cluster_selector.cel_selector.cel_expressions
        for each in placement.spec.predicates
    )


def is_same_request(old: Placement, new: Placement) -> bool:
    """Whether two versions of a Placement ask for the same."""
    return (
        old.spec == new.spec
        and old.metadata.uid == new.metadata.uid
        and old.metadata.generation == new.metadata.generation
        and old.metadata.deleting == new.metadata.deleting
        and old.scheduling_disabled == new.scheduling_disabled
    )


def is_expected(found: DecisionObject | None, wanted: DecisionObject | None) -> bool:
    """Whether an object is as it was written."""
    if found is None or wanted is None:
        return found is None and wanted is None
    return (
        found.decisions == wanted.decisions
        and found.owner == wanted.owner
        and wanted.labels.items() <= found.labels.items()
    )
