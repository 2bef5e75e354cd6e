"""A row for each Placement: pure, from what the hub has."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from knfleet.api.cluster.placement import MISCONFIGURED, PLACEMENT_LABEL, SATISFIED
from knfleet.api.knative.conditions import find
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part
from knfleet.view.fleet_model import Health, Stand
from knfleet.view.fleet_reader import conditions_of, created, name_of


class GroupRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision group, and its clusters."""

    index: int
    name: str
    clusters: tuple[str, ...]


class PlacementRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Placement."""

    namespace: str
    name: str
    stand: Stand
    succeeded: Health = ""
    reason: str = ""
    message: str = ""
    selected: int = 0
    groups: tuple[GroupRow, ...] = ()
    created: str = ""


def placement_row(placement: Object, decisions: Iterable[Object]) -> PlacementRow:
    """The row of a Placement; `decisions` are the decision objects of its namespace."""
    meta = placement["metadata"]
    conditions = conditions_of(placement)
    satisfied, wrong = find(conditions, SATISFIED), find(conditions, MISCONFIGURED)
    misconfigured = wrong is not None and wrong.status == "True"
    succeeded: Health = "" if satisfied is None else satisfied.status
    shown = wrong if misconfigured else satisfied
    own = [
        each
        for each in decisions
        if each["metadata"].get("namespace") == meta["namespace"]
        and part(each["metadata"], "labels").get(PLACEMENT_LABEL) == meta["name"]
    ]
    stand: Stand = "unknown"
    if misconfigured or succeeded == "False":
        stand = "bad"
    elif succeeded == "True":
        stand = "ok"
    return PlacementRow(
        namespace=meta["namespace"],
        name=name_of(placement),
        stand=stand,
        succeeded=succeeded,
        reason="" if shown is None else shown.reason,
        message="" if shown is None else shown.message,
        selected=part(placement, "status").get("numberOfSelectedClusters") or 0,
        groups=tuple(group_rows(placement, own)),
        created=created(placement),
    )


def group_rows(placement: Object, decisions: Sequence[Object]) -> Iterable[GroupRow]:
    """The decision groups of a Placement."""
    held = {
        name_of(each): [one["clusterName"] for one in items(each, "status", "decisions")]
        for each in decisions
    }
    for group in items(placement, "status", "decisionGroups"):
        names: list[str] = group.get("decisions") or []
        yield GroupRow(
            index=group.get("decisionGroupIndex") or 0,
            name=group.get("decisionGroupName") or "",
            clusters=tuple(cluster for name in names for cluster in held.get(name, [])),
        )
