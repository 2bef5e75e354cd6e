"""One look at a fleet and everything that it is made from."""

import asyncio
from collections.abc import Iterable

from knfleet.api.cluster.placement import DECISIONS, PLACEMENT_LABEL, PLACEMENTS
from knfleet.api.fleet.fleet_names import FLEET_LABEL, KNATIVE_FLEETS
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import Component
from knfleet.api.meta import Key, Object
from knfleet.api.schema import decode
from knfleet.hub.knativefleet.plan.child_state import Child, read_child
from knfleet.hub.knativefleet.plan.fleet_clusters import FleetSelection, selection
from knfleet.hub.knativefleet.template.fleet_template import (
    COMPONENTS,
    KINDS,
    DesiredChildren,
    desired,
)
from knfleet.hub.knativefleet.template.revisions import (
    CONTROLLER_REVISIONS,
    Revision,
    fleet_of,
    read_revision,
)
from knfleet.hub.knativefleet.template.variables import ProfileFacts
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.operator.kinds import place_of
from knfleet.view.suggestions import meant


class FleetLookupError(Exception):
    """A fleet, revision or wave that there is not; the message says what to do."""


class FleetSnapshot:
    """The objects of the hub that concern fleets, as they were read."""

    def __init__(self, children: dict[Component, list[Object]], fleets: Iterable[str]) -> None:
        self.children = children
        self.fleets = frozenset(fleets)
        self.places: dict[tuple[Component, str], list[Object]] = {}
        for component, found in children.items():
            for each in found:
                self.places.setdefault((component, place_of(each)), []).append(each)

    def fleet_names(self) -> frozenset[str]:
        """The names of all fleets."""
        return self.fleets

    def of_place(self, component: Component, place: str) -> list[Object]:
        """The custom resources of a component for a profile."""
        return self.places.get((component, place), [])

    def of_fleet(self, component: Component, fleet: str) -> list[Object]:
        """The children of a fleet."""
        return [each for each in self.children[component] if fleet_of(each) == [fleet]]

    def child(self, manifest: Object, component: Component) -> Child:
        """What a child says."""
        return read_child(manifest, component)

    def meaning(
        self, fleet: str, revision: Revision, facts: ProfileFacts, profile: Key
    ) -> DesiredChildren:
        """What a revision means for a cluster."""
        del fleet
        return desired(revision.content, facts, profile)


async def read_snapshot(client: Client) -> FleetSnapshot:
    """Read everything that concerns fleets."""
    fleets, *found = await asyncio.gather(
        client.list(KNATIVE_FLEETS, metadata_only=True),
        *(client.list(KINDS[component].resource) for component in COMPONENTS),
    )
    children: dict[Component, list[Object]] = {
        component: [{**each, "kind": KINDS[component].resource.kind} for each in listing.items]
        for component, listing in zip(COMPONENTS, found, strict=True)
    }
    return FleetSnapshot(children, [each["metadata"]["name"] for each in fleets.items])


async def read_fleet(client: Client, name: str) -> Object:
    """A fleet by name; raises FleetLookupError."""
    try:
        return await client.get(KNATIVE_FLEETS, name)
    except NotFound as error:
        if "not found" not in error.message:
            raise
        listed = (await client.list(KNATIVE_FLEETS, metadata_only=True)).items
        there = [each["metadata"]["name"] for each in listed]
        raise FleetLookupError(
            f"KnativeFleet {name} does not exist; {meant(name, there)}"
        ) from error


async def read_revisions(client: Client, fleet: str) -> list[Revision]:
    """The revisions of a fleet, the newest last."""
    found = await client.list(CONTROLLER_REVISIONS, labels=f"{FLEET_LABEL}={fleet}")
    return sorted(map(read_revision, found.items), key=lambda each: each.number)


def revision_numbered(revisions: Iterable[Revision], number: int, fleet: str) -> Revision:
    """A revision by number; raises FleetLookupError."""
    known = list(revisions)
    for each in known:
        if each.number == number:
            return each
    there = ", ".join(str(each.number) for each in known) or "none"
    raise FleetLookupError(
        f"KnativeFleet {fleet} has no revision {number}; there are {there}:"
        f" see knfleet fleet history {fleet}"
    )


async def read_selection(client: Client, fleet: KnativeFleet) -> FleetSelection:
    """The clusters that a fleet has now."""
    wanted = fleet.spec.clusters
    profiles = (await client.list(PROFILES, wanted.namespace)).items
    placement: Object | None = None
    decisions: list[Object] = []
    if wanted.placement_ref is not None:
        name = wanted.placement_ref.name
        try:
            placement = await client.get(PLACEMENTS, name, wanted.namespace)
        except NotFound:
            placement = None
        else:
            labels = f"{PLACEMENT_LABEL}={name}"
            decisions = (await client.list(DECISIONS, wanted.namespace, labels=labels)).items
    by_name = {each["metadata"]["name"]: each for each in profiles}
    return selection(wanted, by_name, placement, decisions)


def typed_fleet(manifest: Object) -> KnativeFleet:
    """A fleet as a value; raises DecodeError."""
    return decode(manifest, KnativeFleet)
