"""What `create work` and `delete work` do on the hub, cluster by cluster."""

import asyncio
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import OPERATOR_NAMESPACE
from knfleet.api.work.manifestwork import DELETING, WORKS
from knfleet.api.work.replicaset import REPLICA_SET_LABEL
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.observe.collection import Collection, follow
from knfleet.apply.refs import Ref
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import ApiError, Conflict, NotFound
from knfleet.workflows.object_lists import WaitTimeout
from knfleet.workflows.work.work_split import WORK_SET, WorkPart, part_number, split

Outcome = Literal["create", "update", "exists", "delete"]


class WorkError(Exception):
    """A work cannot be written or deleted; the message says why, and what to do."""


class Delivered(Struct, frozen=True):
    """What happened to one work."""

    outcome: Outcome
    name: str
    cluster: str

    def __str__(self) -> str:
        if self.outcome == "exists":
            return f"work {self.name} in cluster {self.cluster} already exists"
        return f"{self.outcome} work {self.name} in cluster {self.cluster}"


class DeliveryWish(Struct, frozen=True):
    """What is to be delivered, and how."""

    name: str
    manifests: list[Object]
    overwrite: bool = False
    dry_run: bool = False


class FoundSet(Struct, frozen=True):
    """A set of objects as it is on the hub."""

    works: dict[int, Object]
    taken: frozenset[int]
    """Numbers that works have which do not belong to it."""


async def check_cluster(client: Client, cluster: str) -> None:
    """Raise `WorkError` when a cluster cannot have works yet."""
    try:
        found = await client.get(CLUSTERS, cluster)
    except NotFound as error:
        if "not found" not in error.message:
            raise
        raise WorkError(
            f"ManagedCluster {cluster} does not exist; `knfleet get clusters` lists those that do"
        ) from error
    if found["metadata"].get("deletionTimestamp"):
        raise WorkError(f"cluster {cluster} is being detached, and takes no new works")
    if not part(found, "spec").get("hubAcceptsClient"):
        raise WorkError(
            f"cluster {cluster} is not accepted, and has no namespace for works; accept it with:"
            f" knfleet accept --clusters {cluster}"
        )


async def works_of_set(client: Client, name: str, cluster: str) -> dict[int, Object]:
    """The works that a set of objects is delivered by, by their number; the first has its name."""
    return (await found_set(client, name, cluster)).works


async def found_set(client: Client, name: str, cluster: str) -> FoundSet:
    """A set as it is on the hub."""
    listed = await client.list(WORKS, cluster, metadata_only=True)
    numbered = {part_number(name, each["metadata"]["name"]): each for each in listed.items}
    own = {
        number: Key.of(each)
        for number, each in numbered.items()
        if number == 1 or (number and belongs_to(each, name))
    }
    found = await asyncio.gather(*(get(client, key) for key in own.values()))
    works = {number: each for number, each in zip(own, found, strict=True) if each is not None}
    return FoundSet(works, frozenset(numbered) - frozenset(own))


async def get(client: Client, key: Key) -> Object | None:
    """A work, if it is there."""
    try:
        return await client.get(WORKS, key.name, key.namespace)
    except NotFound:
        return None


def belongs_to(work: Object, name: str) -> bool:
    """Whether a work is a part of a set."""
    return part(work, "metadata", "annotations").get(WORK_SET) == name


def manifests_in(works: dict[int, Object]) -> dict[Ref, int]:
    """In which part each object is."""
    return {
        Ref.of(each): number
        for number, work in works.items()
        for each in items(work, "spec", "workload", "manifests")
        if part(each, "metadata").get("name")
    }


async def deliver(client: Client, wish: DeliveryWish, cluster: str) -> list[Delivered]:
    """Write the works of one cluster; raises `WorkError`.

    Parts that are no longer needed go last, when what was in them is elsewhere.
    """
    await check_cluster(client, cluster)
    found = await found_set(client, wish.name, cluster)
    there = found.works
    for work in there.values():
        check_owner(work)
    parts = split(wish.name, wish.manifests, manifests_in(there))
    for each in parts:
        if each.number in found.taken:
            raise WorkError(
                f"work {each.name} in cluster {cluster} exists, and is no part of {wish.name};"
                " choose another name"
            )
    try:
        if there and not wish.overwrite:
            return await compared(client, wish, parts, there)
        done = [
            await create(client, each, cluster, wish)
            if each.number not in there
            else await update(client, each, there[each.number], dry_run=wish.dry_run)
            for each in parts
        ]
        kept = {each.number for each in parts}
        for number in sorted(set(there) - kept, reverse=True):
            key = Key.of(there[number])
            with suppress(NotFound):
                await client.delete(WORKS, key, dry_run=wish.dry_run)
            done.append(Delivered("delete", key.name, cluster))
    except ApiError as error:
        raise refused(error, wish.name, cluster) from error
    return done


async def compared(
    client: Client, wish: DeliveryWish, parts: list[WorkPart], there: dict[int, Object]
) -> list[Delivered]:
    """The works as they are, if they are as wanted; else raises `WorkError`."""
    cluster = there[min(there)]["metadata"]["namespace"]
    is_same = {each.number for each in parts} == set(there)
    tried = [
        await update(client, each, there[each.number], dry_run=True) for each in parts if is_same
    ]
    if is_same and all(each.outcome == "exists" for each in tried):
        return tried
    raise WorkError(
        f"work {wish.name} in cluster {cluster} already exists with other content; see what would"
        f" change with: knfleet work plan {wish.name} -f … --clusters {cluster}, and write it with"
        " --overwrite"
    )


def refused(error: ApiError, name: str, cluster: str) -> WorkError:
    """Why the API server does not take a work."""
    if isinstance(error, Conflict):
        return WorkError(
            f"work {name} in cluster {cluster} was changed by another client meanwhile; run the"
            " command again"
        )
    if isinstance(error, NotFound) and error.message.startswith("namespaces "):
        return WorkError(
            f"cluster {cluster} has no namespace on the hub yet; the hub makes it when it accepts a"
            f" cluster: try again in a moment, and see that its pod in {OPERATOR_NAMESPACE} runs"
        )
    return WorkError(f"work {name} in cluster {cluster} is refused: {error.message}")


def check_owner(work: Object) -> None:
    """Raise `WorkError` when a work is not for people to change."""
    key = Key.of(work)
    meta = work["metadata"]
    if meta.get("deletionTimestamp"):
        raise WorkError(
            f"work {key.name} in cluster {key.namespace} is being deleted; wait until it is gone,"
            f" or see what holds it: knfleet work status {key.name} --cluster {key.namespace}"
        )
    if owner := part(meta, "labels").get(REPLICA_SET_LABEL):
        raise WorkError(
            f"work {key.name} in cluster {key.namespace} belongs to ManifestWorkReplicaSet {owner};"
            " change that"
        )
    for each in items(meta, "ownerReferences"):
        raise WorkError(
            f"work {key.name} in cluster {key.namespace} belongs to {each.get('kind')}"
            f" {each.get('name')}, which would write it back; change that"
        )


def manifest_of(each: WorkPart, cluster: str) -> Object:
    """A new work."""
    meta: Object = {"name": each.name, "namespace": cluster}
    if each.annotations:
        meta["annotations"] = each.annotations
    return {
        "apiVersion": WORKS.api_version,
        "kind": WORKS.kind,
        "metadata": meta,
        "spec": {"workload": {"manifests": each.manifests}},
    }


async def create(client: Client, each: WorkPart, cluster: str, wish: DeliveryWish) -> Delivered:
    """Make a work."""
    await client.create(WORKS, manifest_of(each, cluster), dry_run=wish.dry_run)
    return Delivered("create", each.name, cluster)


async def update(client: Client, each: WorkPart, old: Object, *, dry_run: bool) -> Delivered:
    """Give a work other manifests; whatever else is in its spec stays."""
    key = Key.of(old)
    meta: Object = {"resourceVersion": old["metadata"]["resourceVersion"]}
    if each.annotations:
        meta["annotations"] = each.annotations
    patch: Object = {"metadata": meta, "spec": {"workload": {"manifests": each.manifests}}}
    made = await client.patch(WORKS, key, patch, dry_run=dry_run)
    # The server itself knows whether the content is another.
    is_same = made["metadata"]["generation"] == old["metadata"]["generation"]
    return Delivered("exists" if is_same else "update", key.name, key.namespace)


async def delete(
    client: Client, name: str, cluster: str, *, force: bool, seconds: float
) -> list[str]:
    """Delete the works of a set, the last first, and return when they are gone; their names.

    By force, it does not wait for agents: what they applied stays on the cluster.
    """
    there = await works_of_set(client, name, cluster)
    keys = [Key.of(there[number]) for number in sorted(there, reverse=True)]
    for work in there.values():
        if not work["metadata"].get("deletionTimestamp"):
            check_owner(work)
    for key in keys:
        with suppress(NotFound):
            await client.delete(WORKS, key)
            if force:
                await client.patch(WORKS, key, {"metadata": {"finalizers": None}})
    for key in keys:
        wanted = Collection(WORKS, cluster, fields=f"metadata.name={key.name}")
        left = await follow(client, wanted, lambda found: not found, seconds=seconds)
        if key in left:
            raise WaitTimeout(holdup(left[key], seconds))
    return [key.name for key in keys]


def holdup(work: Object, seconds: float) -> str:
    """What keeps a work from going, and what to do about it."""
    key = Key.of(work)
    said = next(
        (
            str(each.get("message", ""))
            for each in items(work, "status", "conditions")
            if each.get("type") == DELETING
        ),
        "",
    )
    reason = said or "the agent has not reported why"
    return (
        f"work {key.name} in cluster {key.namespace} is still there after {seconds:.0f} s:"
        f" {reason}; `knfleet doctor {key.namespace}` looks at the cluster; when it is gone for"
        " good, delete the work with --force, which leaves on the cluster what it applied"
    )
