"""What users do with rollouts of KnativeFleets: pause, promote, retry, roll back.

Each is a change of the fleet itself; the hub does the rest.
"""

from datetime import datetime

from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS, PROMOTE, RETRY
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.meta import Object
from knfleet.hub.knativefleet.template.fleet_template import (
    CONTENT_FIELDS,
    content_hash,
    content_of,
)
from knfleet.hub.knativefleet.template.revisions import Revision
from knfleet.kube.client.verbs import Client


class FleetActionError(Exception):
    """An action that makes no sense now; the message says what does."""


async def set_paused(client: Client, fleet: KnativeFleet, *, paused: bool) -> bool:
    """Pause a fleet or let it go on; whether that changed anything."""
    if fleet.spec.paused == paused:
        return False
    await client.patch(KNATIVE_FLEETS, fleet.key, guarded(fleet, {"spec": {"paused": paused}}))
    return True


async def promote(client: Client, fleet: KnativeFleet) -> str:
    """Have the current wave wait for nothing but its clusters; its name."""
    name = fleet.metadata.name
    rollout = fleet.status.rollout
    if rollout.completed or not fleet.is_observed:
        raise FleetActionError(f"KnativeFleet {name} has no wave that could be promoted")
    if rollout.rollback is not None:
        raise FleetActionError(
            f"revision {rollout.number} of KnativeFleet {name} was rolled back; try it again with"
            f" knfleet fleet retry {name}"
        )
    done = {each.name for each in rollout.completed_waves}
    current = next((each.name for each in fleet.status.waves if each.name not in done), "")
    if not current:
        raise FleetActionError(f"KnativeFleet {name} has no wave that could be promoted")
    annotations = {PROMOTE: f"{rollout.started}/{current}"}
    patch: Object = {"metadata": {"annotations": annotations}}
    await client.patch(KNATIVE_FLEETS, fleet.key, guarded(fleet, patch))
    return current


async def retry(client: Client, fleet: KnativeFleet, now: datetime) -> None:
    """Try again what failed, or the revision that was rolled back."""
    if fleet.status.rollout.completed and not fleet.status.clusters.failed:
        raise FleetActionError(
            f"nothing of KnativeFleet {fleet.metadata.name} failed that could be tried again"
        )
    patch: Object = {"metadata": {"annotations": {RETRY: now.isoformat()}}}
    await client.patch(KNATIVE_FLEETS, fleet.key, guarded(fleet, patch))


async def roll_back(client: Client, manifest: Object, revision: Revision) -> None:
    """Give a fleet the templates of an earlier revision; it is rolled out in waves."""
    if content_hash(content_of(manifest["spec"])) == revision.hash:
        raise FleetActionError(
            f"KnativeFleet {manifest['metadata']['name']} has the templates of revision"
            f" {revision.number} already"
        )
    spec = {**manifest["spec"]}
    for name in CONTENT_FIELDS:
        spec.pop(name, None)
    # As a whole, since a merge patch would drop nulls, which mean something in overrides.
    written: Object = {**manifest, "spec": {**spec, **revision.content}}
    written["metadata"] = {**manifest["metadata"], "managedFields": None}
    await client.replace(KNATIVE_FLEETS, written)


def previous(revisions: list[Revision], fleet: KnativeFleet) -> Revision:
    """The revision that a fleet had before the current one; raises FleetActionError."""
    current = fleet.status.rollout.number
    older = [each for each in revisions if each.number < current]
    if not older:
        raise FleetActionError(
            f"KnativeFleet {fleet.metadata.name} has no earlier revision: see knfleet fleet history"
            f" {fleet.metadata.name}"
        )
    return max(older, key=lambda each: each.number)


def guarded(fleet: KnativeFleet, patch: Object) -> Object:
    """A patch that only this very fleet accepts."""
    return {**patch, "metadata": {**patch.get("metadata", {}), "uid": fleet.metadata.uid}}
