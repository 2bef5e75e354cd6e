"""What a Placement selects and why, computed from what the hub has now. Nothing is written.

The Placement may be one of the hub, or one from a file that the hub does not have yet.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from knfleet.api.cluster.clusterset import BINDINGS, CLUSTER_SETS, ManagedClusterSet
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.cluster.placement import DECISIONS, SCORES, Placement
from knfleet.api.meta import Key, Object
from knfleet.api.schema import decode
from knfleet.hub.placement.decisions.decision_objects import placements_of, read
from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates
from knfleet.hub.placement.scheduler.fleet_state import Fleet
from knfleet.hub.placement.scheduler.placement_explanation import ClusterExplanation, explain
from knfleet.hub.placement.scheduler.schedule import schedule
from knfleet.hub.placement.scheduler.schedule_model import cluster_of, scores_of
from knfleet.kube.client.verbs import Client

PATIENCE_SECONDS = 60.0
"""How long expressions are evaluated, at most."""


class FilterCount(Struct, frozen=True, rename="camel"):
    """A filter, and how many clusters are left after it."""

    name: str
    left: int


class PrioritizerWeight(Struct, frozen=True, rename="camel"):
    """A prioritizer, its weight, and what was missing for it."""

    name: str
    weight: int
    note: str = ""


class PlacementTrial(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a Placement selects, and what became of every cluster."""

    namespace: str
    name: str
    problem: str = ""
    """Why it cannot be followed, if that is so."""
    message: str = ""
    sets: tuple[str, ...] = ()
    filters: tuple[FilterCount, ...] = ()
    prioritizers: tuple[PrioritizerWeight, ...] = ()
    clusters: tuple[ClusterExplanation, ...] = ()

    @property
    def selected(self) -> int:
        """How many clusters are selected."""
        return sum(each.selected for each in self.clusters)


async def read_fleet(client: Client) -> Fleet:
    """Everything that scheduling reads, from the hub."""
    listings = await asyncio.gather(
        *(client.list(each) for each in (CLUSTERS, CLUSTER_SETS, BINDINGS, SCORES, DECISIONS))
    )
    clusters, sets, bindings, scores, decisions = (each.items for each in listings)
    return fleet_of(clusters, sets, bindings, scores, decisions)


def fleet_of(
    clusters: Sequence[Object],
    sets: Sequence[Object],
    bindings: Sequence[Object],
    scores: Sequence[Object],
    decisions: Sequence[Object],
) -> Fleet:
    """The fleet that objects describe; what is being deleted does not count."""
    fleet = Fleet()
    for each in present(clusters):
        fleet.put_cluster(each["metadata"]["name"], cluster_of(each))
    for each in present(sets):
        fleet.put_set(each["metadata"]["name"], decode(each, ManagedClusterSet))
    for each in present(bindings):
        fleet.put_binding(Key.of(each), each["spec"]["clusterSet"])
    for each in scores:
        fleet.put_scores(Key.of(each), scores_of(each))
    decided: dict[str, set[str]] = {}
    for each in decisions:
        for name in placements_of(each):
            decided.setdefault(name, set()).update(read(each).clusters)
    for name, found in decided.items():
        namespace, _, placement = name.partition("/")
        fleet.put_decided(Key(namespace, placement), frozenset(found))
    return fleet


def present(objects: Sequence[Object]) -> list[Object]:
    """Those objects that are not being deleted."""
    return [each for each in objects if not each["metadata"].get("deletionTimestamp")]


def try_placement(placement: Placement, fleet: Fleet, now: datetime) -> PlacementTrial:
    """What a Placement selects in a fleet, and what becomes of every cluster."""
    cel = CelPredicates(PATIENCE_SECONDS)
    cel.begin()
    decided = schedule(placement, fleet.view(placement), cel, now)
    key = placement.key
    if decided.kept is not None:
        return PlacementTrial(
            namespace=key.namespace, name=key.name, problem=decided.misconfigured.message
        )
    return PlacementTrial(
        namespace=key.namespace,
        name=key.name,
        message="" if decided.satisfied is None else decided.satisfied.message,
        sets=decided.sets,
        filters=tuple(FilterCount(each.name, len(each.left)) for each in decided.steps),
        prioritizers=tuple(
            PrioritizerWeight(each.name, each.weight, each.note) for each in decided.rankings
        ),
        clusters=tuple(explain(placement, decided, fleet, cel, now)),
    )
