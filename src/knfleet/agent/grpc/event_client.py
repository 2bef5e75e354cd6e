"""A client of the hub over gRPC: the verbs that an agent uses, on the objects of its cluster.

Reads are answered from subscriptions, writes are published. What an agent does not need is not
there: such a call is refused as an API server refuses it.
"""

import asyncio
import secrets
import string
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Any, Self

from knfleet.agent.grpc.event_channel import EventChannel, ResyncEnd
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.access import ACCESS_SECRET
from knfleet.api.cluster.managedcluster import CLUSTERS, LEASE_NAME
from knfleet.api.core import EVENTS as CORE_EVENTS
from knfleet.api.core import LEASES, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import part
from knfleet.cloudevents.cloud_event import CloudEvent, EventError
from knfleet.cloudevents.event_types import (
    ACCESS_TOKENS,
    CREATE,
    DELETE,
    EVENTS,
    SPEC,
    STATUS,
    TOKEN_REQUESTS,
    UPDATE,
    EventType,
    data_type,
    read_event_type,
)
from knfleet.cloudevents.object_events import object_event, read_object
from knfleet.kube.cache.informer import Informer, without_managed_fields
from knfleet.kube.cache.watch import INITIAL_EVENTS_END, WatchEvent
from knfleet.kube.client.responses import ObjectList
from knfleet.kube.client.verbs import Client, ClientOptions, ListSelection
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import (
    Conflict,
    Expired,
    Forbidden,
    KubeError,
    NotFound,
    RequestTimeout,
)

FOLLOWED = (CLUSTERS, CSRS, LEASES, ADDONS)
LETTERS = string.ascii_lowercase + string.digits
SUFFIX_LETTERS = 5
TOKEN_SECONDS = 30.0


class EventClient(Client):
    """Reads and writes the objects of one cluster on its hub."""

    def __init__(
        self, connection: Connection, options: ClientOptions, channel: EventChannel
    ) -> None:
        super().__init__(connection, options)
        self.channel = channel
        self.latest: dict[tuple[Resource, Key], Object] = {}
        """Objects as subscriptions last showed them."""
        self.leases = Informer(
            self,
            LEASES,
            channel.cluster,
            fields=f"metadata.name={LEASE_NAME}",
            trim=without_managed_fields,
        )
        """Followed for as long as a session lasts, so that a heartbeat is one call."""

    @property
    def urgent(self) -> Self:
        """The same: calls do not wait for each other."""
        return self

    async def close(self) -> None:
        """Close all connections."""
        await self.channel.close()
        await super().close()

    # Reads

    def watching(
        self, selection: ListSelection, *, since: str = "", timeout_seconds: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """What there is and what changes; no watch goes on where another was."""
        del timeout_seconds
        if selection.resource not in FOLLOWED:
            raise self.unsupported("watch", selection.resource)
        if since:
            message = "a subscription begins with everything that there is"
            raise Expired(message, code=410, reason="Expired", where="hub")
        return self.watched(selection)

    @asynccontextmanager
    async def watched(self, selection: ListSelection) -> AsyncGenerator[AsyncIterator[WatchEvent]]:
        """A watch that the server has accepted."""
        kind = data_type(selection.resource)
        async with (
            self.channel.following(kind, {}) as followed,
            aclosing(self.watch_events(selection, followed)) as events,
        ):
            yield events

    async def watch_events(
        self, selection: ListSelection, followed: AsyncIterator[CloudEvent | ResyncEnd]
    ) -> AsyncGenerator[WatchEvent, None]:
        """Events of a subscription as those of a watch."""
        async for event in followed:
            if isinstance(event, ResyncEnd):
                yield WatchEvent("BOOKMARK", END_OF_LIST)
                continue
            try:
                action = read_event_type(event.type).action
                found = read_object(event)
            except EventError:
                continue
            if not is_selected(selection, found):
                continue
            key = (selection.resource, Key.of(found))
            if action == DELETE:
                self.latest.pop(key, None)
                yield WatchEvent("DELETED", found, len(event.data))
            else:
                self.latest[key] = found
                yield WatchEvent("MODIFIED", found, len(event.data))

    async def snapshot(self, selection: ListSelection) -> list[Object]:
        """All objects of a selection, as they are now."""
        found: dict[Key, Object] = {}
        async with self.watching(selection) as events:
            async for event in events:
                if event.type == "BOOKMARK":
                    break
                if event.type == "DELETED":
                    found.pop(Key.of(event.object), None)
                else:
                    found[Key.of(event.object)] = event.object
        return list(found.values())

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        **pages: Any,
    ) -> ObjectList:
        """All objects of a selection, at once."""
        del pages
        found = await self.snapshot(ListSelection(resource, namespace, "", fields))
        chosen = [each for each in found if has_labels(each, labels)]
        return ObjectList(chosen, "")

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        **options: Any,
    ) -> Object:
        """One object."""
        del options
        key = Key(namespace if resource.namespaced else "", name)
        if resource == LEASES and self.leases.synced.is_set():
            found = self.leases.get(key)
        else:
            fields = f"metadata.name={name}"
            every = await self.snapshot(ListSelection(resource, namespace, "", fields))
            found = next(iter(every), None)
        if found is None:
            raise NotFound(
                f'{resource.plural} "{name}" not found', code=404, reason="NotFound", where="hub"
            )
        return found

    # Writes

    async def create(
        self,
        resource: Resource,
        manifest: Object,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        **options: Any,
    ) -> Object:
        """Make an object: a ManagedCluster, a certificate request, an Event, a token."""
        del options
        if resource == SERVICE_ACCOUNTS and subresource == "token":
            return await self.token(Key(namespace, name), manifest)
        if name or subresource or resource not in (CLUSTERS, CSRS, CORE_EVENTS):
            raise self.unsupported("create", resource)
        made = with_name(manifest)
        if resource == CORE_EVENTS:
            await self.publish(EVENTS, SPEC, CREATE, new_event(made))
        else:
            await self.publish(resource, SPEC, CREATE, made)
        return made

    async def token(self, account: Key, manifest: Object) -> Object:
        """A token of an account, which comes as an event to those who ask for it."""
        identity = str(uuid.uuid4())
        meta = {"name": account.name, "namespace": account.namespace, "uid": identity}
        kind = data_type(TOKEN_REQUESTS)
        try:
            async with (
                asyncio.timeout(TOKEN_SECONDS),
                self.channel.following(kind, None) as answers,
            ):
                await self.publish(TOKEN_REQUESTS, SPEC, CREATE, {**manifest, "metadata": meta})
                async for event in answers:
                    if isinstance(event, ResyncEnd):
                        continue
                    with suppress(EventError):
                        found = read_object(event)
                        if found["metadata"].get("uid") == identity:
                            return found
        except TimeoutError:
            pass
        raise RequestTimeout(f"hub: {kind}: no token for {account} in {TOKEN_SECONDS:.0f} s")

    async def replace(
        self,
        resource: Resource,
        manifest: Object,
        *,
        subresource: str = "",
        **options: Any,
    ) -> Object:
        """Write the Lease; what is returned has no version, for the server tells none."""
        del options
        if subresource or resource != LEASES:
            raise self.unsupported("update", resource)
        await self.publish(LEASES, SPEC, UPDATE, manifest)
        return without_version(manifest)

    async def patch(
        self,
        resource: Resource,
        key: Key,
        patch: Object | Sequence[Object],
        *,
        subresource: str = "",
        **options: Any,
    ) -> Object:
        """Change the status of the ManagedCluster or an add-on, a token, the count of an Event."""
        del options
        if isinstance(patch, dict):
            if resource in (CLUSTERS, ADDONS) and subresource == "status":
                return await self.patch_status(resource, key, patch)
            if resource == SECRETS and key.name == ACCESS_SECRET:
                meta = {"name": key.name, "namespace": key.namespace}
                made = {"metadata": meta, "data": patch.get("data") or {}}
                await self.publish(ACCESS_TOKENS, SPEC, UPDATE, made)
                return made
            if resource == CORE_EVENTS:
                meta = {"name": key.name, "namespace": key.namespace}
                await self.publish(EVENTS, SPEC, UPDATE, counted_event(meta, patch))
                return {"metadata": meta}
        raise self.unsupported("patch", resource)

    async def patch_status(self, resource: Resource, key: Key, patch: Object) -> Object:
        """Change the status of an object in the state that the patch was made for."""
        known = self.latest.get((resource, key))
        version = part(patch, "metadata").get("resourceVersion")
        if known is None or version not in (None, known["metadata"].get("resourceVersion")):
            message = f"{resource.plural} {key.name} has changed"
            raise Conflict(message, code=409, reason="Conflict", where="hub")
        changed = {**known, "status": merged(part(known, "status"), part(patch, "status"))}
        await self.publish(resource, STATUS, UPDATE, changed)
        return changed

    async def publish(self, resource: Resource, where: str, action: str, manifest: Object) -> None:
        """Publish an object."""
        kind = EventType(data_type(resource), where, action)
        cluster = self.channel.cluster
        event = object_event(kind, resource, manifest, source=self.channel.source, cluster=cluster)
        await self.channel.publish(event)

    def unsupported(self, verb: str, resource: Resource) -> KubeError:
        """The error for what cannot be done over gRPC."""
        message = f"{verb} {resource.plural} is not possible over gRPC"
        return Forbidden(message, code=403, reason="Forbidden", where="hub")


END_OF_LIST: Object = {
    "metadata": {"resourceVersion": "", "annotations": {INITIAL_EVENTS_END: "true"}}
}


def is_selected(selection: ListSelection, manifest: Object) -> bool:
    """Whether an object is one that was asked for by name, if any name was."""
    field, _, name = selection.fields.partition("=")
    return field != "metadata.name" or manifest["metadata"].get("name") == name


def has_labels(manifest: Object, labels: str) -> bool:
    """Whether an object has labels as `a=b`, and lacks those as `!a`."""
    present = part(manifest, "metadata", "labels")
    for each in filter(None, labels.split(",")):
        name, mark, value = each.partition("=")
        fits = present.get(name) == value if mark else name.removeprefix("!") not in present
        if not fits:
            return False
    return True


def with_name(manifest: Object) -> Object:
    """An object with a name of its own where one was to be generated."""
    meta: Object = dict(manifest["metadata"])
    prefix = meta.pop("generateName", "")
    if not meta.get("name"):
        suffix = "".join(secrets.choice(LETTERS) for _ in range(SUFFIX_LETTERS))
        meta["name"] = f"{prefix}{suffix}"
    return {**manifest, "metadata": meta}


def without_version(manifest: Object) -> Object:
    """An object whose version is not known."""
    meta: Object = dict(manifest["metadata"])
    meta.pop("resourceVersion", None)
    return {**manifest, "metadata": meta}


def merged(target: Any, patch: Any) -> Any:
    """A value changed by a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    changed: Object = dict(target) if isinstance(target, dict) else {}  # pyright: ignore[reportUnknownArgumentType]  any JSON
    for name, value in patch.items():  # pyright: ignore[reportUnknownVariableType]  any JSON
        if value is None:
            changed.pop(str(name), None)  # pyright: ignore[reportUnknownArgumentType]
        else:
            changed[str(name)] = merged(changed.get(str(name)), value)  # pyright: ignore[reportUnknownArgumentType]
    return changed


def new_event(event: Object) -> Object:
    """A core Event as the events API has it."""
    component = part(event, "source").get("component") or "knfleet-agent"
    return {
        "metadata": event["metadata"],
        "eventTime": micro(event.get("firstTimestamp", "")),
        "reportingController": component,
        "reportingInstance": component,
        "action": event.get("reason", ""),
        "reason": event.get("reason", ""),
        "regarding": event.get("involvedObject") or {},
        "note": event.get("message", ""),
        "type": event.get("type", ""),
    }


def counted_event(meta: Object, patch: Object) -> Object:
    """An Event that happened again, of which only the series counts."""
    series = {"count": patch.get("count", 2), "lastObservedTime": micro(patch["lastTimestamp"])}
    return {"metadata": meta, "series": series}


def micro(timestamp: str) -> str:
    """A time of seconds as one of microseconds."""
    return timestamp if "." in timestamp else timestamp.replace("Z", ".000000Z")
