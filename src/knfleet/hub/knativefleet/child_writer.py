"""Writes, deletes and orphans the children of fleets."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from knfleet.api.core import NAMESPACES
from knfleet.api.fleet.fleet_names import FLEET_LABEL
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.knative.resources import Component
from knfleet.api.meta import Key, Object
from knfleet.hub.context import Now
from knfleet.hub.knativefleet.children import child_manifest, orphan_patch
from knfleet.hub.knativefleet.fleet_cache import FleetCache
from knfleet.hub.knativefleet.plan.child_state import Child, read_child
from knfleet.hub.knativefleet.plan.fleet_rollout import ChildWrite
from knfleet.hub.knativefleet.template.fleet_template import (
    COMPONENTS,
    KINDS,
    InvalidTemplate,
    typed,
)
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, ApiError, Conflict, NotFound

WRITERS = 16
"""How many children of one fleet are written at once."""


class ChildWriter:
    """Writes children."""

    def __init__(self, client: Client, cache: FleetCache, now: Now) -> None:
        self.client = client
        self.cache = cache
        self.now = now

    async def write_all(self, fleet: KnativeFleet, writes: Iterable[ChildWrite]) -> dict[str, str]:
        """Write children, so many at a time; what fails concerns one cluster alone."""
        slots = asyncio.Semaphore(WRITERS)
        problems: dict[str, str] = {}

        async def write(each: ChildWrite) -> None:
            async with slots:
                try:
                    await self.write(fleet, each)
                except Conflict:
                    # Another client wrote it meanwhile; the next pass sees that.
                    problems.setdefault(each.cluster, "")
                except ApiError as error:
                    problems[each.cluster] = str(error)

        await asyncio.gather(*(write(each) for each in writes))
        return problems

    async def write(self, fleet: KnativeFleet, write: ChildWrite) -> None:
        """Write a child; what others have added to its spec is replaced."""
        resource = KINDS[write.component].resource
        manifest = child_manifest(fleet, write, self.now())
        answer = await self.apply(write.component, manifest)
        if not is_meant(answer, write):
            meta = answer["metadata"]
            patch: list[Object] = [
                {
                    "op": "test",
                    "path": "/metadata/resourceVersion",
                    "value": meta["resourceVersion"],
                },
                {"op": "replace", "path": "/spec", "value": write.rendered.spec},
            ]
            answer = await self.client.patch(resource, Key.of(answer), patch)
        self.cache.remember(answer)

    async def apply(self, component: Component, manifest: Object) -> Object:
        """Apply a child; its namespace is made if there is none."""
        resource = KINDS[component].resource
        try:
            return await self.client.apply(resource, manifest)
        except NotFound:
            name = manifest["metadata"]["namespace"]
            with suppress(AlreadyExists):
                made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                await self.client.create(NAMESPACES, made)
            return await self.client.apply(resource, manifest)

    async def children_of(self, fleet: KnativeFleet) -> list[Child]:
        """All children of a fleet, from the server: a watch may not show the last one yet."""
        labels = f"{FLEET_LABEL}={fleet.metadata.name}"
        found: list[Child] = []
        for component in COMPONENTS:
            listed = await self.client.list(KINDS[component].resource, labels=labels)
            found += [read_child(each, component) for each in listed.items]
        return found

    async def remove(self, fleet: KnativeFleet, children: Sequence[Child]) -> None:
        """Delete children, or have them stay without the fleet, as its policy says."""
        slots = asyncio.Semaphore(WRITERS)

        async def remove(child: Child) -> None:
            async with slots:
                with suppress(NotFound, Conflict):
                    if fleet.spec.deletion_policy == "Orphan":
                        await self.orphan(fleet, child)
                    elif not child.deleting:
                        resource = KINDS[child.component].resource
                        await self.client.delete(resource, child.key, uid=child.uid)

        await asyncio.gather(*map(remove, children))

    async def orphan(self, fleet: KnativeFleet, child: Child) -> None:
        """Make a child an ordinary custom resource."""
        resource = KINDS[child.component].resource
        live = await self.client.get(resource, child.key.name, child.key.namespace)
        patch = orphan_patch(live, fleet)
        self.cache.remember(await self.client.patch(resource, child.key, patch))


def is_meant(answer: Object, write: ChildWrite) -> bool:
    """Whether a spec is what was meant, and nothing more."""
    try:
        return typed(write.component, answer.get("spec") or {}) == write.rendered.value
    except InvalidTemplate:
        return False
