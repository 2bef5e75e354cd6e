"""What `knfleet move` does: an installation is made on another cluster before the old one goes.

The custom resource for the new cluster names the old one in an annotation, so a move that was
interrupted goes on where it was, and can be taken back until the old one is deleted.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from msgspec import Struct

from knfleet.api.fleet.fleet_names import FLEET_LABEL
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import READY, find
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.knative.verification import VERIFIED, VERIFY
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import part
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, NotFound
from knfleet.operator.kinds import PAUSED, annotations_of, is_paused
from knfleet.operator.status.status_builder import status_of
from knfleet.view.fleet_reader import HubObjects, fleet_of
from knfleet.view.fleet_watch import LiveObjects, following
from knfleet.view.name_lookup import NotNamed, find_install
from knfleet.view.suggestions import meant

MOVED_FROM = "knfleet.dev/moved-from"
"""Annotation of a custom resource: `NAME/UID` of the one that it replaces."""
NOT_COPIED = frozenset(
    {MOVED_FROM, VERIFY, VERIFIED, PAUSED, "kubectl.kubernetes.io/last-applied-configuration"}
)
NAME_LENGTH = 63

Report = Callable[[str], None]


class MoveRefused(Exception):
    """An installation cannot be moved so; the message says why, and what to do."""


class MoveIncomplete(Exception):
    """A move has not ended in its time; the message says what it waits for."""


class Move(Struct, frozen=True):
    """A move of one installation."""

    resource: Resource
    key: Key
    """Of the custom resource that is there now, or was."""
    source: Object | None
    copy: Object | None
    """The custom resource for the new cluster, once there is one."""
    target: Key
    """The ClusterProfile of the new cluster."""
    name: str
    """Of the custom resource for the new cluster."""

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.key}"

    @property
    def new_key(self) -> Key:
        """Of the custom resource for the new cluster."""
        return Key(self.key.namespace, self.name)

    def steps(self) -> list[str]:
        """What is still to be done, for people."""
        new = f"{self.resource.kind} {self.new_key}"
        made = [] if self.copy else [f"create {new} on ClusterProfile {self.target}"]
        removed = [f"delete {self}, and wait until its cluster is clean"] if self.source else []
        return [*made, f"wait until {new} is Ready", *removed]


def profile_of(manifest: Object) -> Key | None:
    """The ClusterProfile that a custom resource names; none for the hub's own cluster."""
    reference = part(manifest, "spec", "clusterProfileRef")
    return Key(reference["namespace"], reference["name"]) if reference.get("name") else None


def origin_of(manifest: Object) -> str:
    """`NAME/UID` of the custom resource that this one replaces; empty when there is none."""
    return annotations_of(manifest).get(MOVED_FROM, "")


def resources_of(objects: HubObjects) -> list[tuple[Resource, Object]]:
    """All custom resources."""
    return [
        *((SERVINGS, each) for each in objects.servings),
        *((EVENTINGS, each) for each in objects.eventings),
    ]


def chosen_name(source: Object, target: Key, wanted: str) -> str:
    """The name of the custom resource for the new cluster."""
    if wanted:
        return wanted
    name: str = source["metadata"]["name"]
    before = profile_of(source)
    if before is not None and name == before.name:
        return target.name
    base = name.removesuffix(f"-{before.name}") if before is not None else name
    return f"{base[: NAME_LENGTH - 1 - len(target.name)].rstrip('-.')}-{target.name}"


def planned(objects: HubObjects, name: str, to: str, new_name: str = "") -> Move:
    """The move that is asked for; raises `MoveRefused` or `NotNamed`."""
    try:
        row = find_install(fleet_of(objects, datetime.now(UTC)), name)
    except NotNamed:
        return finished(objects, name, to)
    key = Key(row.namespace, row.name)
    resource, source = next(
        (resource, each)
        for resource, each in resources_of(objects)
        if (resource.kind, Key.of(each)) == (row.kind, key)
    )
    what, before = f"{resource.kind} {key}", profile_of(source)
    if fleet := part(source, "metadata", "labels").get(FLEET_LABEL):
        raise MoveRefused(
            f"{what} belongs to KnativeFleet {fleet}; change spec.clusters of the fleet instead"
        )
    target = target_of(objects, to, before)
    if target == before:
        raise MoveRefused(f"{what} is on ClusterProfile {target} already")
    copy = copy_of(objects, resource, source)
    if copy is None:
        if "deletionTimestamp" in source["metadata"]:
            raise MoveRefused(f"{what} is being deleted, so there is nothing left to move")
        refuse_second(objects, resource, source, target)
    elif profile_of(copy) != target:
        raise MoveRefused(
            f"{what} is being moved to ClusterProfile {profile_of(copy)}; go on with `knfleet move"
            f" {name} --to {profile_of(copy)}`, or take it back with `knfleet move {name} --abort`"
        )
    chosen = copy["metadata"]["name"] if copy else chosen_name(source, target, new_name)
    if copy is None and chosen == key.name:
        raise MoveRefused(f"the new custom resource needs another name than {what}: use --name")
    return Move(resource, key, source, copy, target, chosen)


def finished(objects: HubObjects, name: str, to: str) -> Move:
    """A move whose old custom resource is gone already; raises `NotNamed` when there is none."""
    wanted = name.rpartition("/")[2]
    for resource, each in resources_of(objects):
        target = profile_of(each)
        if (
            origin_of(each).partition("/")[0] == wanted
            and target is not None
            and to in (target.name, str(target))
        ):
            key = Key.of(each)
            old = Key(key.namespace, wanted)
            return Move(resource, old, None, each, target, key.name)
    find_install(fleet_of(objects, datetime.now(UTC)), name)  # it raises the message for people
    raise AssertionError("unreachable")


def target_of(objects: HubObjects, to: str, before: Key | None) -> Key:
    """The ClusterProfile that a name means; raises `MoveRefused`."""
    profiles = [Key.of(each) for each in objects.profiles]
    namespace, _, name = to.rpartition("/")
    found = [key for key in profiles if key.name == name and namespace in ("", key.namespace)]
    if len(found) > 1 and before is not None:
        found = [key for key in found if key.namespace == before.namespace] or found
    if not found:
        hint = meant(name, [key.name for key in profiles])
        raise MoveRefused(f"{PROFILES.kind} {to} does not exist; {hint}")
    if len(found) > 1:
        raise MoveRefused(
            f"{to} means several ClusterProfiles: {', '.join(map(str, sorted(found)))}; write the"
            " namespace, too"
        )
    return found[0]


def copy_of(objects: HubObjects, resource: Resource, source: Object) -> Object | None:
    """The custom resource that replaces another one, if there is one."""
    wanted = origin_text(source)
    return next(
        (
            each
            for kind, each in resources_of(objects)
            if kind == resource and origin_of(each) == wanted
        ),
        None,
    )


def origin_text(source: Object) -> str:
    """How the custom resource for a new cluster names the old one."""
    return f"{source['metadata']['name']}/{source['metadata']['uid']}"


def refuse_second(objects: HubObjects, resource: Resource, source: Object, target: Key) -> None:
    """A cluster has one installation of a kind; raises `MoveRefused` when there is another."""
    for kind, each in resources_of(objects):
        if kind == resource and each is not source and profile_of(each) == target:
            raise MoveRefused(
                f"ClusterProfile {target} has {resource.kind} {Key.of(each)} already; delete that"
                " first, or choose another cluster"
            )


def new_resource(move: Move) -> Object:
    """The custom resource for the new cluster."""
    source = move.source
    assert source is not None
    meta = source["metadata"]
    annotations = {
        name: value for name, value in annotations_of(source).items() if name not in NOT_COPIED
    }
    reference = {"name": move.target.name, "namespace": move.target.namespace}
    return {
        "apiVersion": source["apiVersion"],
        "kind": source["kind"],
        "metadata": {
            "name": move.name,
            "namespace": meta["namespace"],
            "labels": meta.get("labels") or {},
            "annotations": {**annotations, MOVED_FROM: origin_text(source)},
        },
        "spec": {**part(source, "spec"), "clusterProfileRef": reference},
    }


async def move_installation(
    client: Client, name: str, to: str, *, new_name: str = "", seconds: float, report: Report
) -> Move:
    """Move an installation; each step is reported.

    A move that was interrupted goes on where it was. Raises what `planned` does, and
    `MoveIncomplete`.
    """
    async with following(client) as live:
        move = planned(live.objects(), name, to, new_name)
        if move.copy is None:
            try:
                await client.create(move.resource, new_resource(move))
            except AlreadyExists as error:
                raise MoveRefused(
                    f"{move.resource.kind} {move.new_key} exists already, for something else; name"
                    " another with --name"
                ) from error
            report(f"{move.resource.kind} {move.new_key} is created on {move.target}")
        again = f"; run the same command to go on, or `knfleet move {name} --abort`"
        async with limited(seconds, lambda: f"{problem_of(live, move)}{again}"):
            await reached(live, lambda: ready(live, move))
        report(f"{move.resource.kind} {move.new_key} is Ready")
        if move.source is not None:
            await removed(client, live, move.resource, move.source, seconds=seconds)
            report(f"{move} is deleted")
    return move


async def abort_move(client: Client, name: str, *, seconds: float, report: Report) -> None:
    """Remove the installation on the new cluster; the old one stays. Raises `MoveRefused`."""
    async with following(client) as live:
        objects = live.objects()
        row = find_install(fleet_of(objects, datetime.now(UTC)), name)
        for resource, source in resources_of(objects):
            if (resource.kind, Key.of(source)) != (row.kind, Key(row.namespace, row.name)):
                continue
            copy = copy_of(objects, resource, source)
            if copy is None:
                raise MoveRefused(f"{resource.kind} {Key.of(source)} is not being moved")
            if "deletionTimestamp" in source["metadata"]:
                raise MoveRefused(
                    f"{resource.kind} {Key.of(source)} is being deleted already, and"
                    f" {Key.of(copy)} replaces it; when it is gone, move that one back"
                )
            await removed(client, live, resource, copy, seconds=seconds)
            report(f"{resource.kind} {Key.of(copy)} is deleted; {Key.of(source)} stays as it was")


def current(live: LiveObjects, resource: Resource, key: Key) -> Object | None:
    """A custom resource as it is now."""
    return next(
        (
            each
            for kind, each in resources_of(live.objects())
            if (kind, Key.of(each)) == (resource, key)
        ),
        None,
    )


def ready(live: LiveObjects, move: Move) -> bool:
    """Whether the installation on the new cluster is Ready as it is specified now."""
    found = current(live, move.resource, move.new_key)
    if found is None:
        return False
    status = status_of(found)
    condition = find(status.conditions, READY)
    return (
        condition is not None
        and condition.status == "True"
        and status.observed_generation == found["metadata"].get("generation")
    )


def problem_of(live: LiveObjects, move: Move) -> str:
    """Why the installation on the new cluster is not Ready."""
    what = f"{move.resource.kind} {move.new_key}"
    found = current(live, move.resource, move.new_key)
    if found is None:
        return f"{what} was deleted meanwhile"
    if is_paused(found):
        return f"{what} is paused by the annotation {PAUSED}"
    condition = find(status_of(found).conditions, READY)
    said = "no operator has looked at it" if condition is None else condition.message
    return f"{what} is not Ready: {said or 'no reason is given'}; {move} is as it was"


async def removed(
    client: Client, live: LiveObjects, resource: Resource, manifest: Object, *, seconds: float
) -> None:
    """Delete a custom resource, and wait until the operator has cleaned its cluster."""
    key, uid = Key.of(manifest), manifest["metadata"]["uid"]
    try:
        await client.delete(resource, key, uid=uid)
    except NotFound:
        return

    def is_gone() -> bool:
        found = current(live, resource, key)
        return found is None or found["metadata"]["uid"] != uid

    def why() -> str:
        found = current(live, resource, key)
        condition = None if found is None else find(status_of(found).conditions, READY)
        said = condition.message if condition is not None else ""
        return f"{resource.kind} {key} is being deleted: {said or 'its operator is at work'}"

    async with limited(seconds, lambda: f"{why()}; it goes on by itself"):
        await reached(live, is_gone)


async def reached(live: LiveObjects, condition: Callable[[], bool]) -> None:
    """Return when something holds."""
    while not condition():
        await live.changed()


@asynccontextmanager
async def limited(seconds: float, why: Callable[[], str]) -> AsyncGenerator[None]:
    """Limits a block in time; raises `MoveIncomplete` with what is waited for."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise MoveIncomplete(f"not within {seconds:g} s: {why()}") from None
