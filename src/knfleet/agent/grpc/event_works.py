"""Works from a gRPC server: bundles of manifests come as events, their status goes as events.

The server sets the finalizer of a work when its first status is reported, and removes it when the
agent reports that everything is gone. After a lost connection only what is newer is sent again.
"""

import asyncio
from typing import Any

import msgspec

from knfleet.agent.grpc.event_channel import EventChannel, ResyncEnd
from knfleet.agent.work.source import PACKED, Work, WorkHandler, pack
from knfleet.api.meta import Object
from knfleet.api.schema import ObjectMeta
from knfleet.api.work.appliedmanifestwork import hub_hash
from knfleet.api.work.manifestwork import WORK_FINALIZER, ManifestWorkStatus
from knfleet.cloudevents.cloud_event import CloudEvent, EventError
from knfleet.cloudevents.event_types import (
    BUNDLES,
    CLUSTER_NAME,
    HUB_SOURCE,
    RESYNC,
    STATUS,
    read_event_type,
)
from knfleet.cloudevents.resync import changed_statuses, read_status_hashes, status_hash
from knfleet.cloudevents.sequence import SequenceGenerator
from knfleet.cloudevents.work_events import DELETED, read_bundle, status_event
from knfleet.kube.client.retry import backoff
from knfleet.kube.errors import KubeError
from knfleet.runtime.logs import log

RECONNECT_SECONDS = 0.5
RECONNECT_LIMIT_SECONDS = 5.0
GONE: Object = {
    "type": DELETED,
    "status": "True",
    "reason": "ManifestsDeleted",
}


class EventWorkSource:
    """Works of the cluster, from a gRPC server."""

    def __init__(self, channel: EventChannel, server: str) -> None:
        self.channel = channel
        self.hub = hub_hash(server)
        """Of the hub's API server, as without gRPC: so no work is evicted when that changes."""
        self.sequence = SequenceGenerator()
        self.works: dict[str, Object] = {}
        """As `work.source.pack` makes them, by name."""
        self.synced = asyncio.Event()
        self.handlers: list[WorkHandler] = []
        self.failures = 0

    def get(self, name: str) -> Work | None:
        """A work."""
        found = self.works.get(name)
        if found is None:
            return None
        meta = msgspec.convert(found["metadata"], ObjectMeta)
        return Work(meta, found[PACKED], found["status"])

    def on_change(self, handler: WorkHandler) -> None:
        """Call a function with the name of each work that changed."""
        self.handlers.append(handler)

    def on_drop(self, handler: WorkHandler) -> None:
        """Works are never dropped: the event of a deletion always comes before it is complete."""

    def changed(self, name: str) -> None:
        """Tell that a work changed."""
        for handler in self.handlers:
            handler(name)

    # What the server sends

    async def run(self) -> None:
        """Follow the works until cancelled."""
        while True:
            try:
                await self.follow()
            except KubeError as error:
                self.failures += 1
                log.warning("works are not followed", error=str(error))
            pause = backoff(
                max(self.failures, 1), base=RECONNECT_SECONDS, limit=RECONNECT_LIMIT_SECONDS
            )
            await asyncio.sleep(pause)

    async def follow(self) -> None:
        """Follow one subscription to its end."""
        known = {
            each["metadata"]["uid"]: each["metadata"].get("generation", 0)
            for each in self.works.values()
        }
        async with self.channel.following(BUNDLES, known) as events:
            async for event in events:
                self.failures = 0
                if isinstance(event, ResyncEnd):
                    self.synced.set()
                else:
                    await self.receive(event)

    async def receive(self, event: CloudEvent) -> None:
        """Take in an event; one that cannot be used changes nothing."""
        try:
            kind = read_event_type(event.type)
            if event.text(CLUSTER_NAME) != self.channel.cluster or kind.data_type != BUNDLES:
                return
            if kind.part == STATUS:
                if kind.action == RESYNC:
                    await self.report_changed(read_status_hashes(event.data))
                return
            self.take(read_bundle(event), is_complete=bool(event.data))
        except EventError as error:
            log.warning("event of a work not usable", error=str(error))

    def take(self, work: Object, *, is_complete: bool) -> None:
        """Take in the state of a work."""
        meta: Object = work["metadata"]
        name = self.name_of(meta)
        old = self.works.get(name)
        same = old is not None and old["metadata"]["uid"] == meta["uid"]
        deleting = "deletionTimestamp" in meta
        if deleting and not same and old is not None:
            return
        if same and old is not None:
            if meta.get("generation", 0) < old["metadata"].get("generation", 0) and not deleting:
                return
            work = {**work, "status": old["status"]}
        kept = pack({**work, "metadata": {**meta, "name": name}})
        if same and old is not None:
            kept["metadata"]["finalizers"] = old["metadata"].get("finalizers") or []
            if not is_complete:
                kept[PACKED] = old[PACKED]
        if deleting and WORK_FINALIZER not in (kept["metadata"].get("finalizers") or []):
            # The server lets it go only when we say so, whether or not its finalizer is there.
            kept["metadata"]["finalizers"] = [WORK_FINALIZER]
        self.works[name] = kept
        self.changed(name)

    def name_of(self, meta: Object) -> str:
        """The name of a work, also when an event has only its UID."""
        if meta["name"] != meta["uid"]:
            return meta["name"]
        for name, each in self.works.items():
            if each["metadata"]["uid"] == meta["uid"]:
                return name
        return meta["name"]

    async def report_changed(self, hashes: dict[str, str]) -> None:
        """Report the statuses that the server does not have as they are."""
        statuses: dict[str, Object] = {
            each["metadata"]["uid"]: each["status"] for each in self.works.values()
        }
        for uid in changed_statuses(hashes, statuses, status_hash):
            for each in list(self.works.values()):
                if each["metadata"]["uid"] == uid:
                    await self.publish(each["metadata"], each["status"])

    # What the agent reports

    async def publish(self, meta: Object, status: Object) -> None:
        """Report the status of a work."""
        named = {"name", "namespace", "uid", "generation", "creationTimestamp"}
        event = status_event(
            {name: value for name, value in meta.items() if name in named},
            status,
            source=self.channel.source,
            original=HUB_SOURCE,
            sequence=self.sequence.next(),
        )
        await self.channel.publish(event)

    async def add_finalizer(self, work: Work) -> None:
        """Have the server keep the work from going before its objects have gone."""
        kept = self.works.get(work.name)
        if kept is None or kept["metadata"]["uid"] != work.metadata.uid:
            return
        await self.publish(kept["metadata"], kept["status"])
        finalizers: list[str] = kept["metadata"].get("finalizers") or []
        kept["metadata"]["finalizers"] = [*finalizers, WORK_FINALIZER]
        self.changed(work.name)

    async def remove_finalizer(self, work: Work) -> None:
        """Have the server let the work go."""
        kept = self.works.get(work.name)
        if kept is None or kept["metadata"]["uid"] != work.metadata.uid:
            return
        status: Object = kept["status"]
        message = f"The manifests are deleted from the cluster {self.channel.cluster}"
        since = kept["metadata"].get("deletionTimestamp") or "1970-01-01T00:00:00Z"
        gone = {**GONE, "message": message, "lastTransitionTime": since}
        conditions: list[Any] = [*(status.get("conditions") or []), gone]
        await self.publish(kept["metadata"], {**status, "conditions": conditions})
        if self.works.get(work.name) is kept:
            del self.works[work.name]
            self.changed(work.name)

    async def write_status(self, work: Work, status: ManifestWorkStatus) -> None:
        """Report what became of the work."""
        kept = self.works.get(work.name)
        if kept is None or kept["metadata"]["uid"] != work.metadata.uid:
            return
        written = msgspec.to_builtins(status)
        written.setdefault("resourceStatus", {}).setdefault("manifests", [])
        await self.publish({**kept["metadata"], "generation": work.generation}, written)
        kept["status"] = written
