"""Everything that is in a cluster, whatever its kind."""

import asyncio
import contextlib

from msgspec import Struct

from knfleet.api.core import EVENTS
from knfleet.api.meta import Key, Object, Resource
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound


class ContentsEntry(Struct, frozen=True, order=True):
    """One object in a cluster."""

    resource: Resource
    key: Key


async def contents(client: Client) -> dict[ContentsEntry, Object]:
    """Everything in a cluster that can be listed and deleted, as metadata."""
    resources = [
        each.resource
        for each in await client.discovery.resources()
        if {"list", "delete"} <= set(each.verbs) and each.resource.plural != EVENTS.plural
    ]

    async def list_one(resource: Resource) -> dict[ContentsEntry, Object]:
        with contextlib.suppress(NotFound):  # its CRD was deleted meanwhile
            listing = await client.list(resource, metadata_only=True)
            return {ContentsEntry(resource, Key.of(item)): item for item in listing.items}
        return {}

    found: dict[ContentsEntry, Object] = {}
    for part in await asyncio.gather(*(list_one(resource) for resource in resources)):
        found |= part
    return found
