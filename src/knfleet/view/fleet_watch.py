"""The fleet as it changes: the hub's four kinds, watched, with a word whenever something moved."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from knfleet.api.meta import Resource
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.view.fleet_reader import KINDS, HubObjects, read_objects

SETTLE_SECONDS = 0.2
"""Changes come in crowds; they are shown together."""


class LiveObjects:
    """The hub's objects, kept in memory by watches."""

    def __init__(self, client: Client, known: HubObjects) -> None:
        self.known = known
        self.informers: dict[Resource, Informer] = {
            kind: Informer(client, kind, trim=without_managed_fields)
            for kind in KINDS
            if kind not in known.left_out
        }
        self.stirred = asyncio.Event()
        for informer in self.informers.values():
            informer.on_change(self.stir)

    def stir(self, _change: StoreChange) -> None:
        self.stirred.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers.values():
                group.create_task(informer.run())

    async def synced(self) -> None:
        """Return when all kinds were read once."""
        await asyncio.gather(*(each.synced.wait() for each in self.informers.values()))
        self.stirred.clear()

    async def changed(self) -> None:
        """Return when something changed since the last time, and a moment has passed."""
        await self.stirred.wait()
        await asyncio.sleep(SETTLE_SECONDS)
        self.stirred.clear()

    def objects(self) -> HubObjects:
        """All objects as they are now."""
        lists = [self.informers[kind].items() if kind in self.informers else [] for kind in KINDS]
        return HubObjects(*lists, warnings=self.known.warnings, left_out=self.known.left_out)

    @property
    def problem(self) -> str:
        """Why what is shown may be old; empty when nothing is wrong."""
        failing = (each.failing for each in self.informers.values())
        return next((str(error) for error in failing if error is not None), "")


@asynccontextmanager
async def following(client: Client) -> AsyncGenerator[LiveObjects]:
    """The hub's objects, read and watched; kinds that cannot be listed are left out."""
    live = LiveObjects(client, await read_objects(client))
    running = asyncio.ensure_future(live.run())
    try:
        await live.synced()
        yield live
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
