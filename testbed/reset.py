"""Makes a used cluster like new without restarting it: everything goes that was not there at first.

What there is, is read from etcd, which takes one request. What must go is deleted through the API
server, so that it and the controllers notice. Finalizers of what must go are removed, because
whoever put them there is gone.
"""

import asyncio
import base64
import contextlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import aiohttp
import msgspec

from knfleet.api.core import CRDS, EVENTS, LEASES, NAMESPACES
from knfleet.api.meta import Key, Object, Resource
from knfleet.dev import control_plane
from knfleet.dev.cluster_contents import ContentsEntry
from knfleet.dev.dev_folder import DevFolder, write_private
from knfleet.dev.errors import DevError
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.errors import KubeError, NotFound

LIMIT_SECONDS = 60.0
POLL_SECONDS = 0.02
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
"""Controllers make these in each namespace, and make them again while it is there."""
AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
"""The server makes APIServices for CRDs, and makes them again when they are deleted."""
STORED_AS = {
    "minions": "nodes",
    "controllers": "replicationcontrollers",
    "ingress": "ingresses",
    "services/specs": "services",
    "services/endpoints": "endpoints",
}
"""Kinds whose keys in etcd do not have their plural name."""
CRD_KEYS = f"{CRDS.group}/{CRDS.plural}/"
"""How the keys of CRDs begin."""
UNSEEN = frozenset({EVENTS.plural, "ranges", "masterleases", "peerserverleases"})
"""What is no object, or does not matter."""


async def stored(folder: DevFolder, cluster: str) -> frozenset[str]:
    """The keys of all objects of a cluster, as etcd has them."""
    state = folder.read().cluster(cluster)
    assert state is not None, f"there is no cluster {cluster}"
    prefix = f"{state.prefix.rstrip('/')}/".encode()
    wanted = {"key": encoded(prefix), "range_end": encoded(prefix[:-1] + b"0"), "keys_only": True}
    connector = aiohttp.UnixConnector(str(control_plane.etcd_socket(folder)))
    timeout = aiohttp.ClientTimeout(total=LIMIT_SECONDS)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        session.post("http://etcd/v3/kv/range", json=wanted, raise_for_status=True) as answer,
    ):
        found = msgspec.json.decode(await answer.read()).get("kvs", [])
    keys = (base64.b64decode(each["key"]).removeprefix(prefix).decode() for each in found)
    return frozenset(key for key in keys if key.partition("/")[0] not in UNSEEN)


def encoded(key: bytes) -> str:
    """A key as etcd's JSON has it."""
    return base64.b64encode(key).decode()


class Kinds:
    """From keys in etcd to objects in the API."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.by_group: dict[tuple[str, str], Resource] = {}
        self.by_plural: dict[str, Resource] = {}
        for each in resources:
            self.by_group.setdefault((each.group, each.plural), each)
            self.by_plural.setdefault(each.plural, each)

    def thing(self, key: str) -> ContentsEntry | None:
        """The object of a key; none if it belongs to a kind that is not served any more."""
        first, *rest = key.split("/")
        if "." in first:
            resource = self.by_group.get((first, rest[0]))
            return None if resource is None else as_thing(resource, rest[1:])
        if alias := STORED_AS.get(f"{first}/{rest[0]}"):
            return as_thing(self.by_plural[alias], rest[1:])
        resource = self.by_plural.get(STORED_AS.get(first, first))
        if resource is None:
            raise DevError(f"etcd has {key}, which is of no kind that is served")
        return as_thing(resource, rest)


def as_thing(resource: Resource, path: list[str]) -> ContentsEntry:
    """The object at the rest of a key."""
    return ContentsEntry(
        resource, Key(path[0], path[1]) if resource.namespaced else Key("", path[0])
    )


async def remember(folder: DevFolder, cluster: str) -> None:
    """Write down what a new cluster holds."""
    if not baseline_path(folder, cluster).exists():
        write_private(
            baseline_path(folder, cluster),
            msgspec.json.encode(sorted(await stored(folder, cluster))),
        )


async def keep_definitions(folder: DevFolder, cluster: str) -> None:
    """Have the CRDs of a cluster stay: to make and to remove them takes the server seconds."""
    found = [each for each in await stored(folder, cluster) if each.startswith(CRD_KEYS)]
    kept = sorted(baseline(folder, cluster).union(found))
    write_private(baseline_path(folder, cluster), msgspec.json.encode(kept))


def baseline_path(folder: DevFolder, cluster: str) -> Path:
    """The file that names what stays on a cluster."""
    return folder.cluster(cluster) / "baseline.json"


def baseline(folder: DevFolder, cluster: str) -> frozenset[str]:
    """What stays on a cluster."""
    text = baseline_path(folder, cluster).read_bytes()
    return frozenset(msgspec.json.decode(text, type=list[str]))


async def reset(
    client: Client, folder: DevFolder, cluster: str, kept: frozenset[str] = frozenset()
) -> None:
    """Remove everything that a cluster did not hold when it was new, but for the CRDs to be kept.

    Those stay only as we made them: what a test changed, or another program made, is removed.
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    crds = await client.list(CRDS, metadata_only=True)
    unchanged = kept & await unchanged_definitions(client)
    stays = baseline(folder, cluster) | {f"{CRD_KEYS}{name}" for name in unchanged}
    # First of all: objects cannot even be listed while nothing converts them.
    await stop_conversion(client, [ContentsEntry(CRDS, Key.of(each)) for each in crds.items])
    while remaining := await leftovers(client, await stored(folder, cluster), stays):
        if time.monotonic() > deadline:
            names = ", ".join(f"{each.resource} {each.key}" for each in list(remaining)[:5])
            raise DevError(f"{cluster} does not become empty: {names} and others stay")
        await remove(client, remaining)
        await asyncio.sleep(POLL_SECONDS)


async def unchanged_definitions(client: Client) -> frozenset[str]:
    """The names of CRDs that are as a client of ours made them."""
    found = await client.list(CRDS, metadata_only=True)
    return frozenset(each["metadata"]["name"] for each in found.items if is_as_made(each))


def is_as_made(crd: Object) -> bool:
    """Whether nothing but a client of ours wrote a CRD, and that once."""
    meta: Object = crd["metadata"]
    fields: list[Object] = meta.get("managedFields") or []
    managers = {each["manager"] for each in fields}
    return meta["generation"] == 1 and managers <= {ClientOptions().manager, "kube-apiserver"}


async def leftovers(
    client: Client, keys: frozenset[str], kept: frozenset[str]
) -> dict[ContentsEntry, Object]:
    """What must go, as metadata."""
    new = keys - kept
    if not new:
        return {}
    kinds = Kinds(each.resource for each in await client.discovery.resources())

    def stays(thing: ContentsEntry) -> bool:
        home = thing.key.namespace
        if (thing.resource.plural, thing.key.name) in SELF_MADE:
            return f"{NAMESPACES.plural}/{home}" in keys
        return thing.resource == LEASES and home in SYSTEM_NAMESPACES

    wanted = {thing for key in new if (thing := kinds.thing(key)) and not stays(thing)}
    found: dict[ContentsEntry, Object] = {}
    for part in await asyncio.gather(
        *(listed(client, resource) for resource in {each.resource for each in wanted})
    ):
        found |= part
    return {
        thing: found[thing]
        for thing in wanted & found.keys()
        if AUTOMANAGED not in (found[thing]["metadata"].get("labels") or {})
    }


async def listed(client: Client, resource: Resource) -> dict[ContentsEntry, Object]:
    """All objects of a kind, as metadata."""
    with contextlib.suppress(NotFound):  # its CRD was deleted meanwhile
        listing = await client.list(resource, metadata_only=True)
        return {ContentsEntry(resource, Key.of(item)): item for item in listing.items}
    return {}


async def remove(client: Client, remaining: Mapping[ContentsEntry, Object]) -> None:
    """Ask for the deletion of what can go now."""
    gates = {each: item for each, item in remaining.items() if each.resource.plural in GATES}
    inner = {
        thing: item for thing, item in remaining.items() if thing.resource not in (NAMESPACES, CRDS)
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


async def stop_conversion(client: Client, crds: list[ContentsEntry]) -> None:
    """Take conversion webhooks away: without an answer from them nothing can be deleted."""
    patch: Object = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}

    async def stop(crd: ContentsEntry) -> None:
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


async def delete_all(client: Client, things: dict[ContentsEntry, Object]) -> None:
    """Ask for the deletion of all, and take away what would hold it up."""

    async def delete(thing: ContentsEntry, item: Object) -> None:
        with contextlib.suppress(KubeError):
            if item["metadata"].get("finalizers") and thing.resource != CRDS:
                patch: Object = {"metadata": {"finalizers": None}}
                await client.patch(thing.resource, thing.key, patch)
            if "deletionTimestamp" not in item["metadata"]:
                await client.delete(
                    thing.resource, thing.key, propagation="Background", grace_seconds=0
                )

    await asyncio.gather(*(delete(thing, item) for thing, item in things.items()))
