"""How often a status is written: others write the same object, and must get through."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from knfleet.api.core import DEPLOYMENTS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key
from knfleet.apply.manifest_fields import part
from knfleet.dev.node.annotations import HOLD
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.errors import Conflict
from knfleet.operator.status.status_writer import PROGRESS_SECONDS
from testbed.operators import Hub, Operator
from testbed.waiting import until

HELD = ("activator", "only-1-23")
ROUNDS = 50


@asynccontextmanager
async def status_writes(hub: Hub) -> AsyncGenerator[list[StoreChange]]:
    """Collects the changes of a status during the block."""
    found: list[StoreChange] = []

    def keep(change: StoreChange) -> None:
        if change.old and change.new and change.old.get("status") != change.new.get("status"):
            found.append(change)

    informer = Informer(hub.client, SERVINGS)
    informer.on_change(keep)
    task = asyncio.ensure_future(informer.run())
    try:
        await informer.synced.wait()
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_progress_is_written_seldom_so_that_updates_of_others_get_through(
    knative_hub: Hub, small: Operator
) -> None:
    """Workloads of an installation come and go; few updates conflict, and Ready is told at once."""
    hub, loop = knative_hub, asyncio.get_running_loop()
    held = [{"name": name, "annotations": {HOLD: "true"}} for name in HELD]
    async with status_writes(hub) as writes:
        begun, conflicts = loop.time(), 0
        await hub.create(SERVINGS, version="1.23.0", ingress={}, workloads=held)
        await hub.says(SERVINGS, "DeploymentsAvailable", *HELD)
        await until(lambda: is_available(hub), "what is not held is available")
        for number in range(ROUNDS):
            read = await hub.get(SERVINGS)
            await toggle(hub, ready=bool(number % 2))
            read["metadata"].setdefault("labels", {})["round"] = str(number)
            try:
                await hub.client.replace(SERVINGS, read)
            except Conflict:
                conflicts += 1
        # When it began, when all was applied, and progress.
        most = 2 + (loop.time() - begun) / PROGRESS_SECONDS
        assert len(writes) <= most, writes
        assert conflicts <= most

        # What was not written at once is written later, though nothing else happens.
        await toggle(hub, ready=False)
        await hub.says(SERVINGS, "DeploymentsAvailable", "controller", *HELD)
        await toggle(hub, ready=True)
        await hub.change(SERVINGS, workloads=[])
        await hub.ready(SERVINGS, "1.23.0")


async def toggle(hub: Hub, *, ready: bool) -> None:
    """Make one Deployment available, or not, and wait until it is so."""
    patch = {"metadata": {"annotations": {HOLD: None if ready else "true"}}}
    with suppress(Conflict):
        await hub.client.patch(DEPLOYMENTS, Key("knative-serving", "controller"), patch)

    async def holds() -> bool:
        return await is_available(hub) == ready

    await until(holds, f"the Deployment is {'' if ready else 'not '}available")


async def is_available(hub: Hub) -> bool:
    """Whether the one Deployment that is not held is available."""
    found = await hub.client.get(DEPLOYMENTS, "controller", "knative-serving")
    return bool(part(found, "status").get("availableReplicas"))
