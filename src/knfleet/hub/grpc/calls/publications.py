"""What a published event does on the hub: one function for each kind of object."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from knfleet.api.addon.managedclusteraddon import ADDONS, ADDONS_BETA
from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import LEASES, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import WORK_FINALIZER, WORKS
from knfleet.apply.manifest_fields import part
from knfleet.cloudevents.cloud_event import CloudEvent, EventError
from knfleet.cloudevents.event_types import (
    ACCESS_TOKENS,
    BUNDLES,
    CREATE,
    EVENTS,
    HUB_SOURCE,
    SPEC,
    STATUS,
    TOKEN_REQUESTS,
    UPDATE,
    EventType,
    data_type,
)
from knfleet.cloudevents.object_events import object_event, read_object
from knfleet.cloudevents.sequence import is_older
from knfleet.cloudevents.work_events import WorkStatusEvent, read_status
from knfleet.hub.grpc.broker import Broker
from knfleet.hub.grpc.calls import payload_rules as rules
from knfleet.hub.grpc.calls.addon_requests import addon_of, addon_request
from knfleet.hub.grpc.calls.caller import Caller
from knfleet.hub.grpc.object_sources import BundleSource
from knfleet.hub.registration.rbac import ACCESS_SECRET
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, Invalid, NotFound

Publish = Callable[[CloudEvent, str, Caller], Awaitable[None]]
MOST_SEQUENCES = 100_000
LARGE_BYTES = 64 * 1024
"""More is parsed in a thread."""

T = TypeVar("T")
V = TypeVar("V")


class Publications:
    """Writes what agents publish."""

    def __init__(self, client: Client, works: BundleSource, broker: Broker) -> None:
        self.client = client
        self.broker = broker
        """By which answers go to the caller."""
        self.works = works
        self.sequences: dict[str, str] = {}
        """The newest status event of each work, by UID."""
        clusters, requests = data_type(CLUSTERS), data_type(CSRS)
        events, tokens = data_type(EVENTS), data_type(ACCESS_TOKENS)
        self.handlers: dict[EventType, Publish] = {
            EventType(clusters, SPEC, CREATE): self.create_cluster,
            EventType(clusters, SPEC, UPDATE): self.update_cluster,
            EventType(clusters, STATUS, UPDATE): self.update_cluster_status,
            EventType(requests, SPEC, CREATE): self.create_request,
            EventType(data_type(LEASES), SPEC, UPDATE): self.update_lease,
            EventType(events, SPEC, CREATE): self.create_event,
            EventType(events, SPEC, UPDATE): self.update_event,
            EventType(tokens, SPEC, UPDATE): self.update_access,
            EventType(data_type(TOKEN_REQUESTS), SPEC, CREATE): self.create_token,
            EventType(BUNDLES, STATUS, UPDATE): self.update_work_status,
            **{
                EventType(data_type(each), STATUS, UPDATE): partial(self.update_addon_status, each)
                for each in (ADDONS, ADDONS_BETA)
            },
        }

    def handler(self, kind: EventType) -> Publish:
        """What an event does; raises `EventError` when it does nothing."""
        found = self.handlers.get(kind)
        if found is None:
            raise EventError(f"event type {str(kind)!r} is not supported")
        return found

    async def create_cluster(self, event: CloudEvent, cluster: str, caller: Caller) -> None:
        """An agent asks to join."""
        await self.client.create(CLUSTERS, rules.new_cluster(read_object(event), cluster))

    async def update_cluster(self, event: CloudEvent, cluster: str, caller: Caller) -> None:
        """An agent says where its cluster is reached."""
        patch = rules.cluster_patch(read_object(event), cluster)
        await self.client.patch(CLUSTERS, Key("", cluster), patch)

    async def update_cluster_status(self, event: CloudEvent, cluster: str, caller: Caller) -> None:
        """An agent reports how its cluster is."""
        manifest = rules.cluster_status(read_object(event), cluster)
        await self.client.replace(CLUSTERS, manifest, subresource="status")

    async def create_request(self, event: CloudEvent, cluster: str, caller: Caller) -> None:
        """An agent asks for a certificate."""
        found = read_object(event)
        if addon_of(found):
            manifest = addon_request(found, cluster, caller)
        else:
            manifest = rules.certificate_request(found, cluster, caller.user)
        await self.client.create(CSRS, manifest)

    async def update_lease(self, event: CloudEvent, cluster: str, caller: Caller) -> None:
        """An agent is alive."""
        await self.client.urgent.replace(LEASES, rules.lease_update(read_object(event), cluster))

    async def create_event(self, event: CloudEvent, cluster: str, caller: Caller) -> None:
        """An agent records an Event."""
        await self.client.create(EVENTS, rules.event_object(read_object(event), cluster))

    async def update_event(self, event: CloudEvent, cluster: str, caller: Caller) -> None:
        """An agent counts an Event once more; of one that is gone, nothing is kept."""
        made = rules.event_object(read_object(event), cluster)
        key = Key(cluster, made["metadata"]["name"])
        try:
            await self.client.patch(EVENTS, key, {"series": made.get("series")})
        except NotFound:
            return

    async def update_addon_status(
        self, resource: Resource, event: CloudEvent, cluster: str, caller: Caller
    ) -> None:
        """An agent reports how an add-on is."""
        manifest = rules.addon_status(read_object(event), cluster, resource)
        await self.client.replace(resource, manifest, subresource="status")

    async def update_access(self, event: CloudEvent, cluster: str, caller: Caller) -> None:
        """An agent hands over a token for its cluster."""
        data = rules.access_data(read_object(event), cluster)
        await self.client.patch(SECRETS, Key(cluster, ACCESS_SECRET), {"data": data})

    async def create_token(self, event: CloudEvent, cluster: str, caller: Caller) -> None:
        """An agent asks for a token of an add-on's account; the answer is for this caller alone."""
        wanted = rules.token_request(read_object(event), cluster)
        made = await self.client.create(
            SERVICE_ACCOUNTS,
            wanted.manifest,
            cluster,
            name=wanted.account,
            subresource="token",
        )
        meta: Object = {"name": wanted.account, "namespace": cluster, "uid": wanted.identity}
        kind = EventType(data_type(TOKEN_REQUESTS), SPEC, CREATE)
        found = {"metadata": meta, "spec": part(made, "spec"), "status": part(made, "status")}
        answer = object_event(kind, TOKEN_REQUESTS, found, source=HUB_SOURCE, cluster=cluster)
        if not self.broker.answer(caller, kind.data_type, cluster, answer):
            raise EventError("there is no subscription of the caller that takes the token")

    async def update_work_status(self, event: CloudEvent, cluster: str, caller: Caller) -> None:
        """An agent reports what became of a work; reports of older generations are dropped."""
        reported = await off_loop_if_large(read_status, event, size=len(event.data))
        kept = self.works.work(cluster, reported.uid)
        if kept is None or is_older(reported.sequence, self.sequences.get(reported.uid, "")):
            return
        self.note_sequence(reported)
        if reported.is_deleted:
            await self.remove_finalizer(kept["metadata"])
            return
        meta: Object = kept["metadata"]
        if int(meta.get("generation", 0)) > reported.generation:
            return
        try:
            await self.add_finalizer(meta)
        except Conflict:
            found = await self.client.get(WORKS, meta["name"], cluster)
            await self.add_finalizer(found["metadata"])
        if not reported.status["conditions"]:
            # Of an agent that asks for the finalizer before it writes anything.
            return
        # Also when the cache has the same status: it may be older than the last report.
        patch: Object = {"metadata": {"uid": meta["uid"]}, "status": reported.status}
        await self.client.patch(WORKS, key_of(meta), patch, subresource="status")

    def note_sequence(self, reported: WorkStatusEvent) -> None:
        """Remember the newest status event of a work."""
        self.sequences.pop(reported.uid, None)
        self.sequences[reported.uid] = reported.sequence
        while len(self.sequences) > MOST_SEQUENCES:
            del self.sequences[next(iter(self.sequences))]

    async def add_finalizer(self, meta: Object) -> None:
        """Keep a work from going before its objects have gone."""
        finalizers: list[str] = meta.get("finalizers") or []
        if WORK_FINALIZER in finalizers or "deletionTimestamp" in meta:
            return
        patch = {
            "metadata": {
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
                "finalizers": [*finalizers, WORK_FINALIZER],
            }
        }
        await self.client.patch(WORKS, key_of(meta), patch)

    async def remove_finalizer(self, meta: Object) -> None:
        """Let a work go whose objects are gone; one that is not deleted is left alone."""
        try:
            found = await self.client.get(WORKS, meta["name"], meta["namespace"])
        except NotFound:
            return
        finalizers: list[str] = found["metadata"].get("finalizers") or []
        if found["metadata"]["uid"] != meta["uid"] or WORK_FINALIZER not in finalizers:
            return
        if "deletionTimestamp" not in found["metadata"]:
            raise EventError("the work is not being deleted")
        index = finalizers.index(WORK_FINALIZER)
        path = f"/metadata/finalizers/{index}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "test", "path": path, "value": WORK_FINALIZER},
            {"op": "remove", "path": path},
        ]
        try:
            await self.client.patch(WORKS, key_of(meta), patch)
        except NotFound:
            return
        except Invalid as error:
            raise Conflict(str(error), code=409, reason="Conflict") from error


async def off_loop_if_large(read: Callable[[T], V], source: T, size: int | None = None) -> V:
    """What a function reads from bytes; of many, in a thread."""
    length = len(source) if size is None and isinstance(source, bytes) else size or 0
    return read(source) if length <= LARGE_BYTES else await asyncio.to_thread(read, source)


def key_of(meta: Object) -> Key:
    """The key of a work."""
    return Key(meta["namespace"], meta["name"])
