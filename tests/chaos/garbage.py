"""Pods that only the garbage collector of a spoke can delete.

After each attempt that fails, as while its API server is away, it waits twice as long before the
next one, up to 1000 s. Until then a StatefulSet cannot create a pod of the same name.
"""

import asyncio
from collections.abc import Iterable

from knfleet.api.core import JOBS, PODS, REPLICA_SETS, STATEFUL_SETS
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items
from knfleet.kube.client.verbs import Client
from tests.chaos.stage import Stage

GARBAGE_SECONDS = 1000.0
"""The longest pause between two attempts."""
LIST_SECONDS = 10.0
OWNERS = (JOBS, REPLICA_SETS, STATEFUL_SETS)


async def left(stage: Stage) -> list[str]:
    """The pods of all spokes whose owners are gone."""
    found = await asyncio.gather(
        *(left_on(name, spoke.client) for name, spoke in stage.spokes.items())
    )
    return [pod for pods in found for pod in pods]


async def left_on(spoke: str, client: Client) -> list[str]:
    """The pods of one spoke whose owners are gone."""
    pods = await client.list(PODS, metadata_only=True, deadline=LIST_SECONDS)
    listings = [
        await client.list(each, metadata_only=True, deadline=LIST_SECONDS) for each in OWNERS
    ]
    owners = {item["metadata"]["uid"] for listing in listings for item in listing.items}
    return [f"{spoke}: {each}" for each in orphans(pods.items, owners)]


def orphans(pods: Iterable[Object], owners: set[str]) -> list[str]:
    """The pods that have owners, none of which is there."""
    return [
        f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in pods
        if (uids := {each["uid"] for each in items(pod["metadata"], "ownerReferences")})
        and not uids & owners
    ]
