"""Placements on a real hub: what they select, and watchers of what they decide."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from knfleet.api.cluster.clusterset import BINDINGS
from knfleet.api.cluster.managedcluster import AVAILABLE, CLUSTERS, SET_LABEL
from knfleet.api.cluster.placement import DECISIONS, PLACEMENT_LABEL, PLACEMENTS
from knfleet.api.core import NAMESPACES
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists
from testbed.waiting import until


def thing(resource: Resource, name: str, namespace: str = "", **parts: Any) -> Object:
    """An object of a kind."""
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **parts}


async def bind(client: Client, namespace: str, *sets: str) -> None:
    """A namespace to which sets are bound."""
    with suppress(AlreadyExists):
        await client.create(NAMESPACES, thing(NAMESPACES, namespace))
    for name in sets:
        await client.create(BINDINGS, thing(BINDINGS, name, namespace, spec={"clusterSet": name}))


async def add_clusters(
    client: Client,
    names: Iterable[str],
    set_: str = "default",
    *,
    available: bool = True,
    **labels: str,
) -> None:
    """Clusters that nobody accepted: scheduling does not ask for that."""
    condition = {
        "type": AVAILABLE,
        "status": "True",
        "reason": "Tested",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }

    async def add(name: str) -> None:
        cluster = thing(CLUSTERS, name, spec={})
        cluster["metadata"]["labels"] = {SET_LABEL: set_, **labels}
        await client.create(CLUSTERS, cluster)
        if available:
            status = {"conditions": [condition]}
            await client.patch(CLUSTERS, Key("", name), {"status": status}, subresource="status")

    await asyncio.gather(*(add(name) for name in names))


async def remove_clusters(client: Client, names: Iterable[str]) -> None:
    """Delete clusters, and wait until they are gone."""
    chosen = list(names)

    async def remove(name: str) -> None:
        await client.delete(CLUSTERS, Key("", name))

    await asyncio.gather(*(remove(name) for name in chosen))

    async def gone() -> bool:
        left = {each["metadata"]["name"] for each in (await client.list(CLUSTERS)).items}
        return left.isdisjoint(chosen)

    await until(gone, "the clusters are gone")


async def relabel(client: Client, name: str, **labels: str | None) -> None:
    """Change labels of a cluster."""
    await client.patch(CLUSTERS, Key("", name), {"metadata": {"labels": labels}})


async def objects_of(client: Client, namespace: str, placement: str) -> list[Object]:
    """The decision objects of a Placement."""
    found = await client.list(DECISIONS, namespace, labels=f"{PLACEMENT_LABEL}={placement}")
    return sorted(found.items, key=lambda each: each["metadata"]["name"])


def clusters_in(objects: Iterable[Object]) -> list[str]:
    """The clusters of decision objects."""
    return sorted(
        decision["clusterName"]
        for each in objects
        for decision in items(each, "status", "decisions")
    )


async def decided(client: Client, namespace: str, placement: str, *clusters: str) -> None:
    """Wait until a Placement has decisions for exactly these clusters, and says so."""

    async def is_decided() -> bool:
        objects = await objects_of(client, namespace, placement)
        found = await client.get(PLACEMENTS, placement, namespace)
        return (
            bool(objects)
            and clusters_in(objects) == sorted(clusters)
            and part(found, "status").get("numberOfSelectedClusters") == len(clusters)
        )

    await until(is_decided, f"{namespace}/{placement} selects {len(clusters)} clusters")


async def condition(client: Client, namespace: str, placement: str, type_: str) -> Object:
    """A condition of a Placement; empty when it does not have it."""
    found = await client.get(PLACEMENTS, placement, namespace)
    said = [each for each in items(found, "status", "conditions") if each["type"] == type_]
    return said[0] if said else {}


async def says(client: Client, namespace: str, placement: str, type_: str, reason: str) -> Object:
    """Wait until a Placement has a condition with a reason."""

    async def does() -> bool:
        return (await condition(client, namespace, placement, type_)).get("reason") == reason

    await until(does, f"{namespace}/{placement} says {reason}")
    return await condition(client, namespace, placement, type_)


class DecisionHistory:
    """What a reader of all decision objects of a Placement can have seen, after every event."""

    def __init__(self, resource: Resource, clusters: Callable[[Object], list[str]]) -> None:
        self.resource = resource
        self.clusters = clusters
        self.objects: dict[Key, frozenset[str]] = {}
        self.seen: list[frozenset[str]] = []
        self.largest = 0

    def note(self, change: StoreChange) -> None:
        """Remember what is decided after an event."""
        if change.new is None:
            self.objects.pop(change.key, None)
        else:
            held = self.clusters(change.new)
            self.objects[change.key] = frozenset(held)
            self.largest = max(self.largest, len(held))
        self.seen.append(frozenset[str]().union(*self.objects.values()))


def status_clusters(manifest: Object) -> list[str]:
    """The clusters of one PlacementDecision."""
    return clusters_in([manifest])


@asynccontextmanager
async def history(
    client: Client,
    namespace: str,
    labels: str,
    resource: Resource = DECISIONS,
    clusters: Callable[[Object], list[str]] = status_clusters,
) -> AsyncGenerator[DecisionHistory, None]:
    """Watch the decision objects that a selector matches."""
    made = DecisionHistory(resource, clusters)
    informer = Informer(client, resource, namespace, labels=labels)
    informer.on_change(made.note)
    task = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.synced.wait(), 30)
        # What the first list brought came object by object.
        made.seen.clear()
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
