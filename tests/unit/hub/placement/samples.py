"""Fleets and Placements for tests of the scheduler."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from knfleet.api.cluster.clusterset import ManagedClusterSet
from knfleet.api.cluster.managedcluster import SET_LABEL
from knfleet.api.cluster.placement import Placement
from knfleet.api.meta import Key, Object
from knfleet.api.schema import decode
from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates
from knfleet.hub.placement.scheduler.fleet_state import Fleet
from knfleet.hub.placement.scheduler.schedule import schedule
from knfleet.hub.placement.scheduler.schedule_model import Schedule, cluster_of, scores_of

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
NAMESPACE = "apps"


def manifest(
    name: str,
    labels: dict[str, str] | None = None,
    *,
    claims: dict[str, str] | None = None,
    taints: Iterable[Object] = (),
    allocatable: dict[str, str] | None = None,
    set_: str = "default",
) -> Object:
    """A ManagedCluster."""
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            "labels": {SET_LABEL: set_, **(labels or {})},
        },
        "spec": {"taints": list(taints)},
        "status": {
            "allocatable": allocatable or {},
            "clusterClaims": [{"name": key, "value": each} for key, each in (claims or {}).items()],
        },
    }


def taint(key: str, effect: str = "NoSelect", value: str = "", added: str = "") -> Object:
    """A taint of a cluster."""
    return {"key": key, "effect": effect, "value": value, "timeAdded": added or None}


def fleet(*clusters: Object, bound: Iterable[str] = ("default",)) -> Fleet:
    """A fleet with the given clusters, and sets of which some are bound to the namespace."""
    made = Fleet()
    for each in clusters:
        made.put_cluster(each["metadata"]["name"], cluster_of(each))
    for name in ("default", "prod", "empty"):
        made.put_set(name, decode({"metadata": {"name": name}}, ManagedClusterSet))
    for name in bound:
        made.put_binding(Key(NAMESPACE, name), name)
    return made


def plain(*names: str) -> Fleet:
    """A fleet of clusters that differ by name alone."""
    return fleet(*(manifest(name) for name in names))


def placement(name: str = "web", **spec: Any) -> Placement:
    """A Placement with a spec as the API has it."""
    meta = {"name": name, "namespace": NAMESPACE, "generation": 3, "uid": "u"}
    return decode({"metadata": meta, "spec": spec}, Placement)


def decide(chosen: Placement, known: Fleet, now: datetime = NOW) -> Schedule:
    """What a Placement selects."""
    return schedule(chosen, known.view(chosen), CelPredicates(60), now)


def names(decided: Schedule) -> list[str]:
    """The selected clusters in the order of the decisions."""
    return [each.cluster for each in decided.decisions]


def selected(known: Fleet, now: datetime = NOW, **spec: Any) -> list[str]:
    """The clusters that a spec selects."""
    return names(decide(placement(**spec), known, now))


def published(known: Fleet, cluster: str, values: dict[str, int], until: str = "") -> None:
    """An AddOnPlacementScore named `usage` of a cluster."""
    scores = [{"name": name, "value": value} for name, value in values.items()]
    status = {"scores": scores, "validUntil": until or None}
    known.put_scores(Key(cluster, "usage"), scores_of({"status": status}))


def by_labels(**labels: str) -> list[Object]:
    """A predicate that selects by labels."""
    return [{"requiredClusterSelector": {"labelSelector": {"matchLabels": labels}}}]


def by_cel(*expressions: str) -> list[Object]:
    """A predicate that selects by CEL expressions."""
    return [{"requiredClusterSelector": {"celSelector": {"celExpressions": list(expressions)}}}]


def prioritizers(mode: str = "Exact", **weights: int) -> Object:
    """A policy with built-in prioritizers."""
    return {
        "mode": mode,
        "configurations": [
            {"scoreCoordinate": {"type": "BuiltIn", "builtIn": name}, "weight": weight}
            for name, weight in weights.items()
        ],
    }
