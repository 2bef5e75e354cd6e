"""The garbage collector's work, for a workload that has waited for it too long.

A workload is deleted with all that it owns, and goes last: a cluster's garbage collector deletes
the rest, and takes a finalizer away at the end. Requests of its that fail, as while its API server
is down, it repeats after twice the time, up to a quarter of an hour, long after everything is back.
"""

import asyncio
from collections.abc import Collection as Names
from contextlib import suppress
from datetime import UTC, datetime

from knfleet.api.core import PODS, REPLICA_SETS
from knfleet.api.meta import Object, Resource
from knfleet.apply.observed import Observed, observe
from knfleet.apply.parts import items
from knfleet.apply.waiting import Collection, follow
from knfleet.kube.client import Client
from knfleet.kube.errors import Conflict, NotFound

FOREGROUND = "foregroundDeletion"
"""The finalizer of an object that goes after all that it owns."""
NAMED = 3
"""How many pods are named that are in the way."""


class Collector:
    """Deletes what workloads own, and lets these go when no pod of theirs is left."""

    def __init__(self, client: Client, *, patience_seconds: float, gone_seconds: float) -> None:
        self.client = client
        self.patience_seconds = patience_seconds
        """How long the cluster's own garbage collector has for a workload."""
        self.gone_seconds = gone_seconds

    def is_due(self, workload: Observed) -> bool:
        """Whether the garbage collector had its time for an object that only it holds."""
        if workload.finalizers != (FOREGROUND,):
            return False
        age = datetime.now(UTC) - datetime.fromisoformat(workload.deleted_at)
        return age.total_seconds() >= self.patience_seconds

    async def collect(self, resource: Resource, workload: Observed) -> list[Observed]:
        """Delete what a workload owns, and the workload, too, unless pods are left: these."""
        namespace = workload.ref.namespace
        sets = await self.owned(REPLICA_SETS, namespace, {workload.uid})
        # Before their pods, which they would make anew.
        await asyncio.gather(*(self.delete(REPLICA_SETS, each) for each in sets))
        owners = {workload.uid, *(each.uid for each in sets)}
        pods = await self.owned(PODS, namespace, owners)
        # Those that are being deleted, too: an API server that was killed between marking a pod and
        # removing it goes on when it is asked again, and shortens nobody's time for that.
        await asyncio.gather(*(self.delete(PODS, each) for each in pods))
        if pods:
            await self.wait(namespace, owners)
            pods = await self.owned(PODS, namespace, owners)
        if not pods:
            await self.delete(resource, workload)
        return pods

    async def owned(self, resource: Resource, namespace: str, owners: Names[str]) -> list[Observed]:
        """The objects of a kind that have one of these owners."""
        found = await self.client.list(resource, namespace, metadata_only=True)
        return [observe(each) for each in found.items if is_owned(each, owners)]

    async def wait(self, namespace: str, owners: Names[str]) -> None:
        """Wait until owners have no pods, or time is up, perhaps before anything was seen."""
        await follow(
            self.client,
            Collection(PODS, namespace, metadata_only=True),
            lambda found: not any(is_owned(each, owners) for each in found.values()),
            seconds=self.gone_seconds,
        )

    async def delete(self, resource: Resource, observed: Observed) -> None:
        """Delete an object before what it owns, whatever state it is in by now."""
        # Who asks for one state, and for background deletion of an object that is being deleted,
        # is refused: the server takes the finalizer away, and is then in another state itself.
        with suppress(NotFound, Conflict):
            await self.client.delete(
                resource, observed.ref.key, uid=observed.uid, propagation="Background"
            )


def is_owned(manifest: Object, owners: Names[str]) -> bool:
    """Whether an object has one of these owners."""
    return any(each.get("uid") in owners for each in items(manifest, "metadata", "ownerReferences"))


def in_the_way(pods: list[Observed]) -> str:
    """What to say of pods that a workload waits for."""
    told = [str(each.ref.key) + held(each) for each in pods[:NAMED]]
    more = [f"{len(pods) - NAMED} more"] if len(pods) > NAMED else []
    return f"it is being deleted, and waits for its pods: {', '.join((*told, *more))}"


def held(pod: Observed) -> str:
    """What holds a pod, if that is known."""
    return f" (held by the finalizers {', '.join(pod.finalizers)})" if pod.finalizers else ""
