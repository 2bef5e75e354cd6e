"""Reading one cluster: objects, collections, watches, and bare paths."""

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from knfleet.api.meta import Object, Resource
from knfleet.kube.cache.watch import WatchEvent, open_watch
from knfleet.kube.client import retry
from knfleet.kube.client.options import ClientOptions
from knfleet.kube.client.responses import ListPage, ObjectList, as_object, as_page, encode
from knfleet.kube.client.retry import RequestVerb
from knfleet.kube.client.transport import Call, Transport
from knfleet.kube.discovery import Discovery
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import BadResponse, Expired, RequestTimeout
from knfleet.kube.untrusted_json import decode_json

JSON = {"Accept": "application/json"}
METADATA_LIST = {
    "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
}
METADATA = {
    "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
}
PAGE_ITEMS = 500
PAGE_BYTES = 64 * 1024
"""What a page counts beside its objects, so that there is an end of empty ones."""
DEFAULTS = ClientOptions()


class ServerVersion(Struct, rename="camel"):
    """What /version says."""

    git_version: str


class ListSelection(Struct, frozen=True):
    """Which objects of a cluster are meant, and how much of them."""

    resource: Resource
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace)

    def query(self, **more: str) -> str:
        """The query that selects them."""
        return query_string({"labelSelector": self.labels, "fieldSelector": self.fields, **more})


class Reader:
    """Reads the objects of one cluster."""

    def __init__(self, connection: Connection, options: ClientOptions = DEFAULTS) -> None:
        self.cluster = connection.cluster
        self.namespace = connection.namespace
        self.options = options
        self.transport = Transport(connection, options)
        self.discovery = Discovery(self)
        self.is_urgent = False

    @property
    def urgent(self) -> Self:
        """The same client for calls that must not wait behind a burst: lease renewals, probes."""
        other = copy.copy(self)
        other.is_urgent = True
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; calls in progress fail."""
        await self.transport.close()

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        deadline: float | None = None,
    ) -> Object:
        """One object, or a part of it."""
        path = resource.path(namespace or self.namespace, name, subresource)
        return await self.request(retry.GET, path, deadline=deadline)

    async def pages_of(
        self,
        selection: ListSelection,
        *,
        limit: int = PAGE_ITEMS,
        resource_version: str = "",
        deadline: float | None = None,
    ) -> AsyncGenerator[ObjectList, None]:
        """A selection piece by piece; the deadline is for each piece."""
        place = {"resourceVersion": resource_version}
        while True:
            query = selection.query(limit=str(limit or ""), **place)
            page = await self.page(selection, query, deadline)
            yield ObjectList(page.items, page.resource_version, page.weights)
            if not page.go_on:
                return
            place = {"continue": page.go_on}

    async def page(self, selection: ListSelection, query: str, deadline: float | None) -> ListPage:
        """One piece of a collection."""
        call = Call(
            retry.LIST,
            selection.path,
            query,
            headers=METADATA_LIST if selection.metadata_only else JSON,
            deadline_seconds=deadline,
            urgent=self.is_urgent,
        )
        answer = await self.transport.send(call)
        return await as_page(answer, self.transport.where(call), selection.resource)

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        limit: int = PAGE_ITEMS,
        resource_version: str = "",
        deadline: float | None = None,
    ) -> ObjectList:
        """A whole collection as it was at one moment.

        A deadline that is given is for all of it, the default one for each page. When the server
        forgot that moment before the last page, the list is made once more.
        """
        selection = ListSelection(resource, namespace, labels, fields, metadata_only)

        async def collect() -> ObjectList:
            found, version = ObjectList([], "").items, ""
            pages = self.pages_of(
                selection, limit=limit, resource_version=resource_version, deadline=deadline
            )
            async with self.holding(selection, pages) as held:
                async for page in held:
                    found += page.items
                    version = page.resource_version
            return ObjectList(found, version)

        async with self.within(deadline or self.options.list_seconds, selection):
            try:
                return await collect()
            except Expired:
                return await collect()

    @asynccontextmanager
    async def holding(
        self, selection: ListSelection, pages: AsyncGenerator[ObjectList, None]
    ) -> AsyncGenerator[AsyncIterator[ObjectList], None]:
        """All pages of a list, which count as held until the end."""
        where, budget = f"{self.cluster}: GET {selection.path}", self.transport.budget
        count = 0

        async def counted() -> AsyncGenerator[ObjectList, None]:
            nonlocal count
            async for page in pages:
                size = PAGE_BYTES + sum(page.weights)
                budget.acquire(size, where)
                count += size
                await self.transport.reading.acquire(size)
                yield page

        try:
            async with aclosing(pages), aclosing(counted()) as stream:
                yield stream
        finally:
            budget.release(count)

    @asynccontextmanager
    async def within(
        self, seconds: float | None, selection: ListSelection
    ) -> AsyncGenerator[asyncio.Timeout, None]:
        """The time that all of a list may take."""
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                yield clock
        except TimeoutError as error:
            if not clock.expired():
                raise
            where = f"{self.cluster}: GET {selection.path}"
            raise RequestTimeout(f"{where}: {seconds:g} s passed before the last page") from error

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        since: str = "",
        metadata_only: bool = False,
        timeout_seconds: int | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Every change since a resource version, until the server ends the watch.

        Without `since` everything that exists comes first, then a bookmark. An error that the
        server reports on the way is raised: `Expired` when the resource version is too old.
        """
        selection = ListSelection(resource, namespace, labels, fields, metadata_only)
        return self.events_of(selection, since, timeout_seconds)

    async def events_of(
        self, selection: ListSelection, since: str, timeout_seconds: int | None
    ) -> AsyncGenerator[WatchEvent, None]:
        """Every change of a selection."""
        async with self.watching(selection, since=since, timeout_seconds=timeout_seconds) as events:
            async for event in events:
                yield event

    def watching(
        self, selection: ListSelection, *, since: str = "", timeout_seconds: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """A watch as a context: inside it, the server has accepted the watch."""
        start = (
            {"resourceVersion": since}
            if since
            else {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        )
        query = selection.query(
            watch="true",
            allowWatchBookmarks="true",
            timeoutSeconds=str(timeout_seconds or ""),
            **start,
        )
        headers = METADATA if selection.metadata_only else JSON
        call = Call(retry.WATCH, selection.path, query, headers=headers)
        return open_watch(self.transport, call, selection.resource)

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> bytes:
        """The bare answer at a path of the server: /readyz, /metrics, a pod's log."""
        call = Call(
            retry.raw_verb(method),
            *path_and_query(path),
            body,
            headers=headers or {},
            deadline_seconds=deadline,
            urgent=self.is_urgent,
        )
        return (await self.transport.send(call)).body

    async def version(self, *, deadline: float | None = None) -> str:
        """The version of the server, as `v1.35.8`."""
        body = await self.raw("GET", "/version", deadline=deadline)
        try:
            return decode_json(body, ServerVersion).git_version
        except msgspec.DecodeError as error:
            raise BadResponse(f"{self.cluster}: GET /version: not a version: {error}") from error

    async def request(
        self,
        verb: RequestVerb,
        path: str,
        *,
        query: str = "",
        body: Object | Sequence[Object] | None = None,
        content_type: str = "application/json",
        metadata_only: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Send a request about one object."""
        accept = METADATA if metadata_only else JSON
        call = Call(
            verb,
            path,
            query,
            None if body is None else encode(body),
            headers=accept if body is None else {**accept, "Content-Type": content_type},
            deadline_seconds=deadline,
            urgent=self.is_urgent,
        )
        return as_object(await self.transport.send(call), self.transport.where(call))


def query_string(values: Mapping[str, str]) -> str:
    """A query with all values that are not empty."""
    given = [(name, value) for name, value in values.items() if value]
    return f"?{urlencode(given)}" if given else ""


def path_and_query(path: str) -> tuple[str, str]:
    """A path apart from its query, which belongs in no message."""
    path, mark, query = path.partition("?")
    return path, mark + query
