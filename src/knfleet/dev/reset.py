"""Makes a used cluster like new without restarting it: everything goes that was not there at first.

What there was at first is a list of names, taken when the cluster became ready. Finalizers of what
must go are removed, because whoever put them there is gone.
"""

import asyncio
import contextlib
import time

import msgspec
from msgspec import Struct

from knfleet.api.core import CRDS, EVENTS, LEASES, NAMESPACES
from knfleet.api.meta import Key, Object, Resource
from knfleet.dev.errors import GroundError
from knfleet.dev.folder import Folder, write_private
from knfleet.kube.client import Client
from knfleet.kube.errors import KubeError, NotFound

LIMIT_SECONDS = 30.0
POLL_SECONDS = 0.05
GATES = frozenset(
    {
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "apiservices",
    }
)
"""Kinds that could refuse the deletion of others, so they go first."""
SYSTEM_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease"})
SELF_MADE = frozenset({("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")})
AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
"""The server makes APIServices for CRDs, and makes them again when they are deleted."""


class Thing(Struct, frozen=True, order=True):
    """One object in a cluster."""

    resource: Resource
    key: Key


async def contents(client: Client) -> dict[Thing, Object]:
    """Everything in a cluster that can be listed and deleted, as metadata."""
    resources = [
        each.resource
        for each in await client.discovery.resources()
        if {"list", "delete"} <= set(each.verbs) and each.resource.plural != EVENTS.plural
    ]

    async def list_one(resource: Resource) -> dict[Thing, Object]:
        with contextlib.suppress(NotFound):  # its CRD was deleted meanwhile
            listing = await client.list(resource, metadata_only=True)
            return {Thing(resource, Key.of(item)): item for item in listing.items}
        return {}

    found: dict[Thing, Object] = {}
    for part in await asyncio.gather(*(list_one(resource) for resource in resources)):
        found |= part
    return found


async def remember(client: Client, folder: Folder, cluster: str) -> None:
    """Write down what a new cluster holds."""
    path = folder.cluster(cluster) / "baseline.json"
    if not path.exists():
        write_private(path, msgspec.json.encode(sorted(await contents(client))))


def leftovers(found: dict[Thing, Object], baseline: frozenset[Thing]) -> dict[Thing, Object]:
    """What must go: all that is new, except what ends with a namespace that goes anyway."""
    return {
        thing: item
        for thing, item in found.items()
        if thing not in baseline
        and (thing.resource.plural, thing.key.name) not in SELF_MADE
        and not (thing.resource == LEASES and thing.key.namespace in SYSTEM_NAMESPACES)
        and AUTOMANAGED not in (item["metadata"].get("labels") or {})
    }


async def reset(client: Client, folder: Folder, cluster: str) -> None:
    """Remove everything that a cluster did not hold when it was new."""
    path = folder.cluster(cluster) / "baseline.json"
    baseline = frozenset(msgspec.json.decode(path.read_bytes(), type=list[Thing]))
    deadline = time.monotonic() + LIMIT_SECONDS
    converted = False
    while remaining := leftovers(await contents(client), baseline):
        if time.monotonic() > deadline:
            names = ", ".join(f"{each.resource} {each.key}" for each in list(remaining)[:5])
            raise GroundError(f"{cluster} does not become empty: {names} and others stay")
        if not converted:
            await stop_conversion(client, [each for each in remaining if each.resource == CRDS])
            converted = True
        gates = {each: item for each, item in remaining.items() if each.resource.plural in GATES}
        inner = {
            thing: item
            for thing, item in remaining.items()
            if thing.resource not in (NAMESPACES, CRDS)
        }
        if gates or inner:
            # Namespaces and CRDs wait: deleting them first makes the server do the same slowly.
            await delete_all(client, gates or inner)
        else:
            spaces = [each for each in remaining if each.resource == NAMESPACES]
            crds = {each: item for each, item in remaining.items() if each.resource == CRDS}
            await asyncio.gather(
                delete_all(client, crds),
                *(end_space(client, each.key) for each in spaces),
            )
        await asyncio.sleep(POLL_SECONDS)


async def stop_conversion(client: Client, crds: list[Thing]) -> None:
    """Take conversion webhooks away: without an answer from them nothing can be deleted."""
    patch: Object = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}

    async def stop(crd: Thing) -> None:
        with contextlib.suppress(KubeError):
            await client.patch(CRDS, crd.key, patch)

    await asyncio.gather(*(stop(crd) for crd in crds))


async def end_space(client: Client, key: Key) -> None:
    """End an empty namespace at once; the controller would wait five seconds first.

    It loses its finalizer before it is deleted: the controller leaves such a one alone. Taken away
    afterwards, the controller may be emptying the namespace by then, and goes on when there is a
    new one of the same name. So one that is being deleted already is left to the controller.
    """
    with contextlib.suppress(KubeError):
        await client.delete_collection(EVENTS, key.name)
        namespace = await client.get(NAMESPACES, key.name)
        meta, emptied_by = namespace["metadata"], namespace["spec"].get("finalizers")
        if meta.get("finalizers"):
            await client.patch(NAMESPACES, key, {"metadata": {"finalizers": None}})
        if emptied_by:
            if "deletionTimestamp" in meta:
                return
            free: Object = {**namespace, "metadata": {"name": key.name}, "spec": {"finalizers": []}}
            await client.replace(NAMESPACES, free, subresource="finalize")
        for _ in range(2):  # the first marks it
            await client.delete(NAMESPACES, key)


async def delete_all(client: Client, things: dict[Thing, Object]) -> None:
    """Ask for the deletion of all, and take away what would hold it up."""

    async def delete(thing: Thing, item: Object) -> None:
        with contextlib.suppress(KubeError):
            if item["metadata"].get("finalizers") and thing.resource != CRDS:
                patch: Object = {"metadata": {"finalizers": None}}
                await client.patch(thing.resource, thing.key, patch)
            if "deletionTimestamp" not in item["metadata"]:
                await client.delete(
                    thing.resource, thing.key, propagation="Background", grace_seconds=0
                )

    await asyncio.gather(*(delete(thing, item) for thing, item in things.items()))
