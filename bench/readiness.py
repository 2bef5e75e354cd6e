"""Waits for custom resources by watch: to ask all the time takes CPU from what is measured."""

import asyncio
from collections.abc import Collection
from contextlib import aclosing

from tests.fleet.operators import HOME, Hub

from knfleet.api.meta import Object, Resource
from knfleet.apply.parts import items, part

LAST_SECONDS = 300.0


async def ready(hub: Hub, resource: Resource, version: str, names: Collection[str]) -> None:
    """Wait until some custom resources are Ready at a version, all at the same time."""
    found: dict[str, Object] = {}
    events = hub.client.watch(resource, HOME[resource])
    async with asyncio.timeout(LAST_SECONDS), aclosing(events):
        async for event in events:
            if event.type != "BOOKMARK":
                found[event.object["metadata"]["name"]] = event.object
            if all(name in found and is_ready(found[name], version) for name in names):
                return
    raise AssertionError(f"the watch of {resource} ended")


async def gone(hub: Hub, resource: Resource, names: Collection[str]) -> None:
    """Wait until some custom resources are not there any more."""
    there: set[str] = set()
    complete = False
    events = hub.client.watch(resource, HOME[resource])
    async with asyncio.timeout(LAST_SECONDS), aclosing(events):
        async for event in events:
            complete = complete or event.ends_initial_events
            if event.type == "DELETED":
                there.discard(event.object["metadata"]["name"])
            elif event.type != "BOOKMARK":
                there.add(event.object["metadata"]["name"])
            if complete and there.isdisjoint(names):
                return
    raise AssertionError(f"the watch of {resource} ended")


def is_ready(manifest: Object, version: str) -> bool:
    """Whether a custom resource is Ready at a version."""
    status = part(manifest, "status")
    return (
        status.get("version") == version
        and status.get("observedGeneration") == manifest["metadata"]["generation"]
        and any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in items(status, "conditions")
        )
    )
