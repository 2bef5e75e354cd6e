"""Events about objects, written to the cluster that the objects live on.

Recording never waits and never fails: what happened is put into a queue that one task empties. When
the cluster does not take Events as fast as they come, the newest are dropped, and counted.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct

from knfleet.api.core import EVENTS
from knfleet.api.meta import ClusterName, Object
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound
from knfleet.runtime.events.series import EventLog, EventRecord, EventWrite, Regarding
from knfleet.runtime.leader.lease_rules import LostLeadership
from knfleet.runtime.logs import log

WAITING = 1000
WRITE_SECONDS = 10.0
FLUSH_SECONDS = 1.0
"""How long what is left may take to be written at the end."""


class EventObserver(Protocol):
    """Receives results of Events, for metrics."""

    def event(self, cluster: ClusterName, outcome: str) -> None:
        """One was written, suppressed, dropped, or failed."""
        ...


class SilentEvents:
    """The observer that does nothing."""

    def event(self, cluster: ClusterName, outcome: str) -> None:
        """Something became of an Event."""


class EventOptions(Struct, frozen=True):
    """How Events are recorded."""

    waiting: int = WAITING
    """How many may wait to be written."""
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    observe: EventObserver = SilentEvents()


DEFAULTS = EventOptions()


class Events:
    """Records Events on one cluster; they are written while `run` runs."""

    def __init__(self, client: Client, component: str, options: EventOptions = DEFAULTS) -> None:
        self.client = client
        self.options = options
        self.log = EventLog(component)
        self.queue: asyncio.Queue[EventRecord] = asyncio.Queue(options.waiting)

    def normal(self, manifest: Object, reason: str, message: str) -> None:
        """Tell that something went as it should."""
        self.record(manifest, "Normal", reason, message)

    def warning(self, manifest: Object, reason: str, message: str) -> None:
        """Tell that something went wrong."""
        self.record(manifest, "Warning", reason, message)

    def record(self, manifest: Object, kind: str, reason: str, message: str) -> None:
        """Tell that something happened to an object."""
        try:
            self.queue.put_nowait(EventRecord(Regarding.of(manifest), kind, reason, message))
        except asyncio.QueueFull:
            self.count("dropped")

    async def run(self) -> None:
        """Write what is recorded; when cancelled, for a moment more."""
        try:
            while True:
                await self.write(await self.queue.get())
        except asyncio.CancelledError:
            await self.flush()
            raise

    async def flush(self) -> None:
        """Write what is left, as far as that goes quickly."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while not self.queue.empty():
                    await self.write(self.queue.get_nowait())
        except TimeoutError:
            for _ in range(self.queue.qsize()):
                self.count("dropped")

    async def write(self, happening: EventRecord) -> None:
        """Write one, or count up the one that is there."""
        write = self.log.observe(happening, self.options.clock(), self.options.wall())
        if write is None:
            self.count("suppressed")
            return
        try:
            await self.send(write)
        except (KubeError, LostLeadership) as error:
            self.count("failed")
            log.warning(
                "event not written",
                cluster=self.client.cluster,
                regarding=str(happening.regarding.key),
                reason=happening.reason,
                error=str(error),
            )
        else:
            self.count("written")

    async def send(self, write: EventWrite) -> None:
        """Patch an Event, or make it when there is none, or none any more."""
        if write.patch is not None:
            try:
                await self.client.patch(EVENTS, write.key, write.patch, deadline=WRITE_SECONDS)
            except NotFound:
                pass
            else:
                return
        await self.client.create(
            EVENTS, write.manifest, write.key.namespace, deadline=WRITE_SECONDS
        )

    def count(self, outcome: str) -> None:
        """Tell what became of one."""
        self.options.observe.event(self.client.cluster, outcome)
