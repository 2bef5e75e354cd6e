"""Pods that only the garbage collector of a spoke can delete.

While its API server is away its attempts fail, each with a longer pause before the next one, and
some pods it forgets: seen not deleted more than 20 minutes after the API server was back. Until a
pod is deleted, a StatefulSet cannot create one of the same name.
"""

import asyncio
from collections.abc import Iterable

from knfleet.api.core import JOBS, PODS, REPLICA_SETS, STATEFUL_SETS
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items
from knfleet.kube.client.verbs import Client
from tests.chaos.stage import Stage

PATIENCE_SECONDS = 60.0
"""Before a garbage collector is started again, some minutes after the last fault."""
RESTARTED_SECONDS = 180.0
"""For one that was started again."""
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
