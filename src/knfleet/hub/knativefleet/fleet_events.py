"""What of a change of status is worth an Event. Pure."""

from collections.abc import Iterator

from msgspec import Struct

from knfleet.api.conditions import find
from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS, ROLLED_OUT
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.fleet.knativefleet_status import KnativeFleetStatus
from knfleet.api.meta import Object
from knfleet.hub.knativefleet.plan.fleet_rollout import FleetRolloutPlan

NAMES_SHOWN = 5


class FleetEvent(Struct, frozen=True):
    """Something that happened to a fleet."""

    reason: str
    message: str
    is_warning: bool = False


WARNINGS = ("RolloutHalted", "RollbackProgressing")
"""Reasons of the condition RolledOut that call for attention."""


def events_of(
    before: KnativeFleetStatus, after: KnativeFleetStatus, plan: FleetRolloutPlan
) -> Iterator[FleetEvent]:
    """The Events that a pass calls for."""
    known = {each.name for each in before.rollout.completed_waves}
    for each in after.rollout.completed_waves:
        if each.name not in known and each.changed:
            yield FleetEvent("WaveComplete", f"wave {each.name} is complete")
    old, new = (find(each.conditions, ROLLED_OUT) for each in (before, after))
    if new is not None and (old is None or old.reason != new.reason):
        if new.reason in WARNINGS:
            yield FleetEvent(new.reason, new.message, is_warning=True)
        elif new.reason in ("RolloutComplete", "RolledBack"):
            yield FleetEvent(new.reason, new.message)
    adopted = [
        str(each.child.key)
        for each in plan.writes
        if each.child is not None and not each.child.fleet
    ]
    if adopted:
        yield FleetEvent("ChildAdopted", f"taken over: {few(adopted)}")
    edited = [
        str(each.child.key) for each in plan.writes if each.reverts and each.child is not None
    ]
    if edited:
        text = f"edited by another client, and reverted by driftPolicy Enforce: {few(edited)}"
        yield FleetEvent("DriftReverted", text, is_warning=True)


def few(names: list[str]) -> str:
    """A few names."""
    more = len(names) - NAMES_SHOWN
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def regarding(fleet: KnativeFleet) -> Object:
    """A fleet as Events name it."""
    return {
        "apiVersion": KNATIVE_FLEETS.api_version,
        "kind": KNATIVE_FLEETS.kind,
        "metadata": {"name": fleet.metadata.name, "uid": fleet.metadata.uid},
    }
