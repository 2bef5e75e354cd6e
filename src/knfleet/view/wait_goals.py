"""Whether the goal of a wait is reached, and what is still missing. Pure."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import Condition, find
from knfleet.view.fleet_model import ClusterRow, FleetView, InstallRow
from knfleet.view.fleet_reader import HubObjects, conditions_of, fleet_of
from knfleet.view.name_lookup import Row, full_name

READY, REMOVED = "ready", "removed"
CONDITION = "condition"
MOST_NAMED = 5
"""So many names are listed; of more, the number."""


class WaitGoal(Struct, frozen=True):
    """What is waited for."""

    kind: str
    """`ready`, `removed` or `condition`."""
    type: str = ""
    status: str = "True"

    @classmethod
    def parse(cls, text: str) -> "WaitGoal":
        """Read `ready`, `removed`, `condition=TYPE` or `condition=TYPE=STATUS`."""
        if text in (READY, REMOVED):
            return cls(text)
        word, _, rest = text.partition("=")
        type_, _, status = rest.partition("=")
        known = {each.lower(): each for each in ("True", "False", "Unknown")}
        if word != CONDITION or not type_ or (status or "True").lower() not in known:
            raise ValueError(
                f"--for={text}: write ready, removed, condition=TYPE or condition=TYPE=STATUS,"
                " where STATUS is True, False or Unknown"
            )
        return cls(CONDITION, type_, known[(status or "True").lower()])

    def __str__(self) -> str:
        return f"{self.type}={self.status}" if self.kind == CONDITION else self.kind


class WaitRemainder(Struct, frozen=True):
    """Something that is not there yet, and how it stands."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} ({self.why})" if self.why else self.name


class WaitProgress(Struct, frozen=True):
    """How far the waiting is."""

    goal: WaitGoal
    done: tuple[str, ...]
    left: tuple[WaitRemainder, ...]

    @property
    def is_over(self) -> bool:
        """Whether everything has happened."""
        return not self.left

    def __str__(self) -> str:
        total = len(self.done) + len(self.left)
        text = f"{len(self.done)} of {total} {self.goal}"
        names = [str(each) for each in self.left[:MOST_NAMED]]
        more = len(self.left) - MOST_NAMED
        names += [f"and {more} more"] if more > 0 else []
        return f"{text}; waiting for {', '.join(names)}" if names else text


def waiting(
    objects: HubObjects, names: Iterable[str], goal: WaitGoal, now: datetime
) -> WaitProgress:
    """How far some rows are, by their full names; what is gone is not ready."""
    fleet = fleet_of(objects, now)
    rows: dict[str, Row] = {full_name(row): row for row in rows_in(fleet)}
    conditions = conditions_by_name(objects) if goal.kind == CONDITION else {}
    done: list[str] = []
    left: list[WaitRemainder] = []
    for name in names:
        why = missing(rows.get(name), goal, conditions.get(name, ()))
        if why is None:
            done.append(name)
        else:
            left.append(WaitRemainder(name, why))
    return WaitProgress(goal, tuple(done), tuple(left))


def rows_in(fleet: FleetView) -> Iterable[Row]:
    yield from fleet.installs
    yield from fleet.clusters


def missing(row: Row | None, goal: WaitGoal, conditions: Iterable[Condition]) -> str | None:
    """What a row lacks; None when it has what is waited for."""
    if goal.kind == REMOVED:
        return None if row is None else state_text(row)
    if row is None:
        return "it is gone"
    if goal.kind == READY:
        return None if row.stand == "ok" and not row.deleting else state_text(row)
    found = find(conditions, goal.type)
    if found is None:
        return f"it has no condition {goal.type}"
    if found.status == goal.status:
        return None
    return f"{goal.type} is {found.status}" + (f": {found.reason}" if found.reason else "")


def state_text(row: Row) -> str:
    """A few words on a row that is not done."""
    if isinstance(row, InstallRow) and row.progress is not None:
        return ": ".join(filter(None, [row.reason, str(row.progress)]))
    if isinstance(row, ClusterRow) and not row.reason:
        return row.message
    return row.reason or row.message


def conditions_by_name(objects: HubObjects) -> dict[str, tuple[Condition, ...]]:
    """The conditions of all objects, by the full names of their rows."""
    found: dict[str, tuple[Condition, ...]] = {}
    for kind, manifests in (
        (CLUSTERS.kind, objects.clusters),
        (PROFILES.kind, objects.profiles),
        ("KnativeServing", objects.servings),
        ("KnativeEventing", objects.eventings),
    ):
        for manifest in manifests:
            meta = manifest["metadata"]
            place = "/".join(filter(None, [kind, meta.get("namespace", ""), meta["name"]]))
            found[place] = conditions_of(manifest)
    return found
