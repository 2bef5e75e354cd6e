"""The floor of works: an agent that looks at nothing, and only makes the writes it cannot avoid.

It keeps no order, reads no object, notices no drift and forgets everything; no agent that keeps an
AppliedManifestWork for each work and reports to the hub can send fewer requests.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime

from bench.fleet.sides import Ground, Processes
from knfleet.api.core import CONFIG_MAPS, CRDS, DEPLOYMENTS, NAMESPACES
from knfleet.api.crds.fleet import hub_definitions, spoke_definitions
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORK_FINALIZER, WORKS
from knfleet.apply.manifest_fields import items
from knfleet.install.hub_manifests import named
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from testbed import hubs

KINDS: dict[str, Resource] = {each.kind: each for each in (CONFIG_MAPS, DEPLOYMENTS)}
AT_ONCE = 32


class Floor:
    """A bare agent for each spoke."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.applied: set[Key] = set()
        self.removed: set[Key] = set()
        self.slots = asyncio.Semaphore(AT_ONCE * len(ground.spokes))

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncGenerator[Processes]:
        """Works are delivered while the block runs."""
        await define(self.ground.hub, hub_definitions())
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[None]] = []
            for index, (_, spoke) in enumerate(self.ground.spokes):
                cluster = self.ground.cluster(index)
                await self.ground.hub.apply(NAMESPACES, named("v1", "Namespace", cluster))
                await define(spoke, spoke_definitions())
                informer = Informer(self.ground.hub, WORKS, cluster)

                def handle(change: StoreChange, client: Client = spoke) -> None:
                    if change.new is not None:
                        group.create_task(self.act(client, change.new))

                informer.on_change(handle)
                tasks.append(group.create_task(informer.run()))
                await informer.synced.wait()
            try:
                yield Processes()
            finally:
                for task in tasks:
                    task.cancel()

    async def act(self, spoke: Client, work: Object) -> None:
        """Make the writes that a change of a work asks for."""
        key, meta = Key.of(work), work["metadata"]
        conditions = items(work, "status", "conditions")
        reported = conditions[0]["observedGeneration"] if conditions else 0
        async with self.slots:
            if "deletionTimestamp" in meta:
                if key not in self.removed:
                    self.removed.add(key)
                    await self.remove(spoke, work)
            elif key not in self.applied:
                self.removed.discard(key)
                self.applied.add(key)
                await self.create(spoke, work)
            elif reported not in (0, meta["generation"]):
                await self.change(spoke, work)

    async def create(self, spoke: Client, work: Object) -> None:
        """Deliver a new work."""
        key = Key.of(work)
        patch: Object = {"metadata": {"finalizers": [WORK_FINALIZER]}}
        await self.ground.hub.patch(WORKS, key, patch)
        name = applied_name(key)
        made = named(APPLIED_WORKS.api_version, APPLIED_WORKS.kind, name)
        owner = await spoke.create(
            APPLIED_WORKS, {**made, "spec": {"hubHash": "floor", "manifestWorkName": key.name}}
        )
        manifests = work["spec"]["workload"]["manifests"]
        await asyncio.gather(*(spoke.create(KINDS[each["kind"]], each) for each in manifests))
        resources = [
            {
                "version": KINDS[each["kind"]].version,
                "group": KINDS[each["kind"]].group,
                "resource": KINDS[each["kind"]].plural,
                "namespace": each["metadata"]["namespace"],
                "name": each["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
            }
            for each in manifests
        ]
        status: Object = {"status": {"appliedResources": resources}}
        await spoke.patch(APPLIED_WORKS, Key("", name), status, subresource="status")
        await self.report(work)

    async def change(self, spoke: Client, work: Object) -> None:
        """Deliver new content."""
        for each in work["spec"]["workload"]["manifests"]:
            patch = {name: each[name] for name in ("data", "spec") if name in each}
            await spoke.patch(KINDS[each["kind"]], Key.of(each), patch)
        await self.report(work)

    async def report(self, work: Object) -> None:
        """Tell the hub that a work is applied."""
        conditions = [
            {
                "type": type_,
                "status": "True",
                "reason": "Floor",
                "message": "",
                "observedGeneration": work["metadata"]["generation"],
                "lastTransitionTime": timestamp(datetime.now(UTC)),
            }
            for type_ in ("Applied", "Available")
        ]
        patch: Object = {"status": {"conditions": conditions}}
        await self.ground.hub.patch(WORKS, Key.of(work), patch, subresource="status")

    async def remove(self, spoke: Client, work: Object) -> None:
        """Remove what a work delivered."""
        key = Key.of(work)
        self.applied.discard(key)
        for each in work["spec"]["workload"]["manifests"]:
            await spoke.delete(KINDS[each["kind"]], Key.of(each))
        await spoke.delete(APPLIED_WORKS, Key("", applied_name(key)))
        await self.ground.hub.patch(WORKS, key, {"metadata": {"finalizers": None}})


def applied_name(key: Key) -> str:
    """The name of the AppliedManifestWork of a work."""
    return f"{hashlib.sha256(b'floor').hexdigest()}-{key.name}"


async def define(client: Client, definitions: Iterable[Object]) -> None:
    """Create CRDs, and wait until they are served."""
    for each in definitions:
        await client.apply(CRDS, each)
        await hubs.established(client, each["metadata"]["name"])
