"""Kinds and namespaces that manifests wait for: watched only while one does."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

from knfleet.api.core import CRDS, NAMESPACES
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client

LINGER_SECONDS = 30.0
"""How long is watched on after the last wait."""

What = Literal["kind", "namespace"]
RESOURCES = {"kind": CRDS, "namespace": NAMESPACES}


class Prerequisites:
    """Wakes works when what they wait for may be there."""

    def __init__(self, client: Client, wake: Callable[[set[str]], None]) -> None:
        self.client = client
        self.wake = wake
        self.waits: dict[What, defaultdict[str, set[str]]] = {
            "kind": defaultdict(set),
            "namespace": defaultdict(set),
        }
        """Works that wait for an API group or a namespace."""
        self.tasks: dict[What, asyncio.Task[None]] = {}
        self.group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Watch what is waited for, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self.group = group
            await asyncio.Event().wait()

    def wait(self, work: str, what: What, name: str) -> None:
        """Wake a work when a CRD of a group, or a namespace, changes."""
        self.waits[what][name].add(work)
        if what not in self.tasks and self.group is not None:
            informer = Informer(self.client, RESOURCES[what], metadata_only=True)
            informer.on_change(lambda change: self.changed(what, change, informer))
            self.tasks[what] = self.group.create_task(informer.run())

    def stop(self, work: str) -> None:
        """A work waits for nothing any more."""
        for what, table in self.waits.items():
            for name in [name for name, works in table.items() if work in works]:
                table[name].discard(work)
                if not table[name]:
                    del table[name]
            if not table and what in self.tasks:
                asyncio.get_running_loop().call_later(LINGER_SECONDS, self.end, what)

    def end(self, what: What) -> None:
        """Stop to watch what nothing waits for."""
        if not self.waits[what] and what in self.tasks:
            self.tasks.pop(what).cancel()

    def changed(self, what: What, change: StoreChange, informer: Informer) -> None:
        """Wake who waits for it; what was there from the start is no news."""
        if change.type == "added" and not informer.synced.is_set():
            return
        name = change.key.name.partition(".")[2] if what == "kind" else change.key.name
        works = set(self.waits[what].get(name, ()))
        if works:
            self.wake(works)
