"""Waiting for a cluster by watch: a collection is followed until it is as it should be."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

from msgspec import Struct

from knfleet.api.meta import Key, Object, Resource
from knfleet.kube.cache.informer import as_is
from knfleet.kube.client.retry import backoff
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, KubeError

BACKOFF_SECONDS = 0.1
BACKOFF_LIMIT_SECONDS = 2


class Collection(Struct, frozen=True):
    """Which objects to follow."""

    resource: Resource
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False
    trim: Callable[[Object], Object] = as_is
    """What is kept of each object."""


async def follow(
    client: Client,
    collection: Collection,
    is_done: Callable[[Mapping[Key, Object]], bool],
    *,
    seconds: float,
) -> dict[Key, Object]:
    """The objects of a collection, as soon as they are as wanted, or when time is up.

    Errors on the way are outlived, save one that says that we may not look.
    """
    objects: dict[Key, Object] = {}
    failures = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    if await follow_once(client, collection, is_done, objects):
                        return objects
                    failures = 0
                except Forbidden:
                    raise
                except KubeError:
                    failures += 1
                await asyncio.sleep(
                    backoff(failures or 1, base=BACKOFF_SECONDS, limit=BACKOFF_LIMIT_SECONDS)
                )
    except TimeoutError:
        return objects


async def follow_once(
    client: Client,
    collection: Collection,
    is_done: Callable[[Mapping[Key, Object]], bool],
    objects: dict[Key, Object],
) -> bool:
    """Follow one watch to its end; whether the objects became as wanted."""
    seen: dict[Key, Object] = {}
    complete = False
    events = client.watch(
        collection.resource,
        collection.namespace,
        labels=collection.labels,
        fields=collection.fields,
        metadata_only=collection.metadata_only,
    )
    async with aclosing(events):
        async for event in events:
            if event.type == "BOOKMARK":
                complete = complete or event.ends_initial_events
            elif event.type == "DELETED":
                seen.pop(Key.of(event.object), None)
            else:
                seen[Key.of(event.object)] = collection.trim(event.object)
            if complete:
                objects.clear()
                objects.update(seen)
                if is_done(objects):
                    return True
    return False
