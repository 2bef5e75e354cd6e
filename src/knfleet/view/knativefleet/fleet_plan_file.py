"""Plans of fleets in files: written only if the hub is still the one that they were made for."""

from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.meta import Object
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Conflict, NotFound
from knfleet.view.knativefleet.fleet_preview import preview

FORMAT = "knfleet.dev/fleet-plan/v1"
AGAIN = "make the plan again"


class FleetPlanFileError(Exception):
    """A file that holds no plan that could be applied; says what to do."""


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
    content = msgspec.json.format(msgspec.json.encode(plan), indent=2)
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_bytes(content + b"\n")
    except OSError as error:
        raise FleetPlanFileError(f"{path} cannot be written: {error.strerror}") from error


def load(path: Path) -> SavedFleetPlan:
    """The plan in a file; raises FleetPlanFileError."""
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=SavedFleetPlan)
    except OSError as error:
        raise FleetPlanFileError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FleetPlanFileError(
            f"{path} is not a plan of a fleet: {error}; make one with knfleet fleet plan --save"
        ) from None
    if saved.format != FORMAT:
        raise FleetPlanFileError(f"{path} is a plan of another version of knfleet; {AGAIN}")
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
    """Write the fleet of a plan, if everything is as it was; raises FleetPlanFileError."""
    name = saved.manifest["metadata"]["name"]
    live = await live_fleet(client, name)
    meta: Object = {} if live is None else live["metadata"]
    if (meta.get("uid", ""), meta.get("generation", 0)) != (saved.uid, saved.generation):
        raise FleetPlanFileError(
            f"KnativeFleet {name} was changed since the plan was made; {AGAIN}"
        )
    now = await preview(client, saved.manifest, live)
    if now.digest() != saved.digest:
        raise FleetPlanFileError(
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
        raise FleetPlanFileError(f"KnativeFleet {name} was changed just now; {AGAIN}") from error
