"""Waits for custom resources by watch: to ask all the time takes CPU from what is measured."""

import asyncio
import time
from collections.abc import Collection
from contextlib import aclosing

from knfleet.api.meta import Object, Resource
from knfleet.apply.manifest_fields import items, part
from testbed.operators import HOME, Hub

LAST_SECONDS = 300.0


async def ready(hub: Hub, resource: Resource, version: str, names: Collection[str]) -> float:
    """Wait until some custom resources are Ready at a version, all at the same time.

    When their Deployments were Available, too, by the monotonic clock, is returned.
    """
    found: dict[str, Object] = {}
    available: float | None = None
    events = hub.client.watch(resource, HOME[resource])
    async with asyncio.timeout(LAST_SECONDS), aclosing(events):
        async for event in events:
            if event.type != "BOOKMARK":
                found[event.object["metadata"]["name"]] = event.object
            every = [found[name] for name in names if name in found]
            if available is None and len(every) == len(names) and all(map(is_available, every)):
                available = time.monotonic()
            if len(every) == len(names) and all(is_ready(each, version) for each in every):
                return available or time.monotonic()
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
        and is_true(manifest, "Ready")
    )


def is_available(manifest: Object) -> bool:
    """Whether a custom resource says that its Deployments are Available."""
    return is_true(manifest, "DeploymentsAvailable")


def is_true(manifest: Object, type_: str) -> bool:
    """Whether a condition is True."""
    return any(
        each["type"] == type_ and each["status"] == "True"
        for each in items(part(manifest, "status"), "conditions")
    )
