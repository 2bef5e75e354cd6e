"""Plans of fleets in files: written only if the hub is still the one that they were made for."""

from pathlib import Path

from msgspec import Struct

from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.meta import Object
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Conflict, NotFound
from knfleet.view.knativefleet.fleet_preview import preview
from knfleet.view.plan.saved_file import PlanFileError, read_plan, write_plan

FORMAT = "knfleet.dev/fleet-plan/v1"
AGAIN = "make the plan again"


class SavedFleetPlan(Struct, frozen=True, kw_only=True, rename="camel"):
    """A plan in a file."""

    manifest: Object
    digest: str
    uid: str = ""
    """Of the fleet; empty: it is created."""
    generation: int = 0
    format: str = FORMAT


def save(path: Path, plan: SavedFleetPlan) -> None:
    """Write a plan into a file that only its owner can read."""
    write_plan(path, plan)


def load(path: Path) -> SavedFleetPlan:
    """The plan in a file; raises PlanFileError."""
    saved = read_plan(path, SavedFleetPlan, "a plan of a fleet", "knfleet fleet plan --save")
    if saved.format != FORMAT:
        raise PlanFileError(f"{path} is a plan of another version of knfleet; {AGAIN}")
    return saved


async def live_fleet(client: Client, name: str) -> Object | None:
    """A fleet of the hub; None when there is none."""
    try:
        return await client.get(KNATIVE_FLEETS, name)
    except NotFound as error:
        if "not found" not in error.message:
            raise
        return None


async def apply(client: Client, saved: SavedFleetPlan) -> Object:
    """Write the fleet of a plan, if everything is as it was; raises PlanFileError."""
    name = saved.manifest["metadata"]["name"]
    live = await live_fleet(client, name)
    meta: Object = {} if live is None else live["metadata"]
    if (meta.get("uid", ""), meta.get("generation", 0)) != (saved.uid, saved.generation):
        raise PlanFileError(f"KnativeFleet {name} was changed since the plan was made; {AGAIN}")
    now = await preview(client, saved.manifest, live)
    if now.digest() != saved.digest:
        raise PlanFileError(
            f"clusters of KnativeFleet {name} changed since the plan was made; {AGAIN}"
        )
    try:
        if live is None:
            return await client.create(KNATIVE_FLEETS, saved.manifest)
        given = saved.manifest["metadata"]
        merged: Object = {
            **live,
            "spec": saved.manifest["spec"],
            "metadata": {
                **{name: value for name, value in meta.items() if name != "managedFields"},
                "labels": {**(meta.get("labels") or {}), **(given.get("labels") or {})},
                "annotations": {
                    **(meta.get("annotations") or {}),
                    **(given.get("annotations") or {}),
                },
            },
        }
        return await client.replace(KNATIVE_FLEETS, merged)
    except (AlreadyExists, Conflict) as error:
        raise PlanFileError(f"KnativeFleet {name} was changed just now; {AGAIN}") from error
