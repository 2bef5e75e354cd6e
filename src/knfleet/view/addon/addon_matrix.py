"""Add-ons by clusters, and their rollouts: pure, from what the hub has.

Objects are read leniently: the status may have been written by a manager of another release.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from knfleet.api.addon.names import AVAILABLE, CONFIGURED, DEGRADED, PROGRESSING
from knfleet.api.knative.conditions import Condition, find
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items
from knfleet.view.fleet_model import STANDS, Stand
from knfleet.view.fleet_reader import condition, conditions_of, name_of

FAILED = "Failed"
COMPLETED = "Completed"


class AddOnCell(Struct, frozen=True):
    """An add-on on one cluster."""

    addon: str
    stand: Stand
    reason: str = ""
    message: str = ""


class AddOnLine(Struct, frozen=True):
    """A cluster with the state of each add-on; None where one is not installed."""

    cluster: str
    cells: tuple[AddOnCell | None, ...]

    @property
    def stand(self) -> Stand:
        """The worst of them."""
        found = {each.stand for each in self.cells if each is not None}
        worst: list[Stand] = [each for each in STANDS if each in found]
        return worst[0] if worst else "ok"


class RolloutRow(Struct, frozen=True):
    """How far an add-on is on the clusters of a placement, and what it waits for."""

    addon: str
    placement: str
    stand: Stand
    message: str


class AddOnMatrix(Struct, frozen=True):
    """All add-ons of the fleet."""

    addons: tuple[str, ...]
    lines: tuple[AddOnLine, ...]
    rollouts: tuple[RolloutRow, ...]


def addon_matrix(addons: Iterable[Object], cluster_addons: Iterable[Object]) -> AddOnMatrix:
    """Clusters by add-ons, broken ones first."""
    by_cluster: dict[str, dict[str, AddOnCell]] = {}
    for each in addons:
        cell = addon_cell(each)
        by_cluster.setdefault(str(each["metadata"].get("namespace", "")), {})[cell.addon] = cell
    fleet = list(cluster_addons)
    installed = {name for cells in by_cluster.values() for name in cells}
    names = tuple(sorted({*installed, *map(name_of, fleet)}))
    lines = [
        AddOnLine(cluster, tuple(cells.get(name) for name in names))
        for cluster, cells in by_cluster.items()
    ]
    lines.sort(key=lambda each: (STANDS.index(each.stand), each.cluster))
    rollouts = [row for each in fleet for row in rollout_rows(each)]
    rollouts.sort(key=lambda each: (STANDS.index(each.stand), each.addon, each.placement))
    return AddOnMatrix(names, tuple(lines), tuple(rollouts))


def addon_cell(addon: Object) -> AddOnCell:
    """How an add-on is on its cluster, and the condition that decides on it."""
    if "deletionTimestamp" in addon["metadata"]:
        return AddOnCell(name_of(addon), "busy", "Deleting")
    conditions = conditions_of(addon)
    for stand, type_, decides in DECISIVE:
        said = find(conditions, type_)
        if said is not None and decides(said):
            return AddOnCell(name_of(addon), stand, said.reason, said.message)
    return AddOnCell(name_of(addon), "busy", message="Nothing is reported yet.")


DECISIVE: tuple[tuple[Stand, str, Callable[[Condition], bool]], ...] = (
    ("bad", AVAILABLE, lambda said: said.status == "False"),
    ("bad", DEGRADED, lambda said: said.status == "True"),
    ("bad", PROGRESSING, lambda said: said.reason == FAILED),
    ("busy", PROGRESSING, lambda said: said.status == "True"),
    ("busy", CONFIGURED, lambda said: said.status == "False"),
    ("ok", AVAILABLE, lambda said: said.status == "True"),
    ("unknown", AVAILABLE, lambda _said: True),
)
"""States with the conditions that they follow from; the first that holds counts."""


def rollout_rows(cluster_addon: Object) -> Iterable[RolloutRow]:
    """The rollouts of an add-on, one for each placement."""
    for each in items(cluster_addon, "status", "installProgressions"):
        found = [made for one in items(each, "conditions") if (made := condition(one)) is not None]
        said = find(found, PROGRESSING)
        placement = f"{each.get('namespace', '')}/{each.get('name', '')}"
        yield RolloutRow(
            name_of(cluster_addon),
            placement,
            rollout_stand(said),
            "" if said is None else said.message,
        )


def rollout_stand(said: Condition | None) -> Stand:
    """How a rollout stands, in one word."""
    if said is None:
        return "busy"
    if said.status == "True":
        return "busy"
    return "ok" if said.reason == COMPLETED else "bad"
