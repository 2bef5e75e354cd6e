"""The verbs of Kubernetes, on one cluster.

Manifests go in and come out as plain dicts. Every call ends before its deadline, is sent again only
when that is safe (see `kube.retry`), and fails with an error of `kube.errors` that names the
cluster, the verb and the path. Without a namespace, namespaced objects are looked for in the
connection's own; a list or watch without one is about all namespaces.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import msgspec

from knfleet.api.meta import Key, Object, Resource
from knfleet.kube import retry
from knfleet.kube.answers import Listing, Page, as_object, as_page, encode
from knfleet.kube.discovery import Discovery
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import BadAnswer, Expired, Unanswered
from knfleet.kube.options import Observer, Options
from knfleet.kube.retry import Verb
from knfleet.kube.transport import Call, Transport
from knfleet.kube.watch import WatchEvent, open_watch

__all__ = ["Client", "Listing", "Observer", "Options", "WatchEvent"]

JSON = {"Accept": "application/json"}
METADATA_LIST = {
    "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
}
METADATA = {
    "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
}
APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
DEFAULTS = Options()


class Version(msgspec.Struct, rename="camel"):
    """What /version says."""

    git_version: str


class Client:
    """Reads and writes the objects of one cluster."""

    def __init__(self, connection: Connection, options: Options = DEFAULTS) -> None:
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
        """Close all connections; calls under way fail."""
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
        return await self.ask(retry.GET, path, deadline=deadline)

    async def pages(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        limit: int = 500,
        resource_version: str = "",
        deadline: float | None = None,
    ) -> AsyncGenerator[Listing, None]:
        """A collection piece by piece; the deadline is for each piece."""
        wanted = {"labelSelector": labels, "fieldSelector": fields, "limit": str(limit or "")}
        exact = {"resourceVersion": resource_version}
        go_on = ""
        while True:
            query = query_string({**wanted, **(exact if not go_on else {"continue": go_on})})
            page = await self.page(
                resource, namespace, query=query, metadata_only=metadata_only, deadline=deadline
            )
            yield Listing(page.items, page.resource_version)
            if not (go_on := page.go_on):
                return

    async def page(
        self,
        resource: Resource,
        namespace: str,
        *,
        query: str,
        metadata_only: bool,
        deadline: float | None,
    ) -> Page:
        """One piece of a collection."""
        call = Call(
            retry.LIST,
            resource.path(namespace),
            query,
            headers=METADATA_LIST if metadata_only else JSON,
            deadline_seconds=deadline,
            urgent=self.is_urgent,
        )
        answer = await self.transport.send(call)
        return await as_page(answer, self.transport.where(call), resource)

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        limit: int = 500,
        resource_version: str = "",
        deadline: float | None = None,
    ) -> Listing:
        """A whole collection as it was at one moment.

        A deadline that is given is for all of it, the default one for each page. When the server
        forgot that moment before the last page, the list is made once more.
        """

        async def collect() -> Listing:
            items: list[Object] = []  # pyright: ignore[reportGeneralTypeIssues]
            version = ""
            pages = self.pages(
                resource,
                namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
                limit=limit,
                resource_version=resource_version,
                deadline=deadline,
            )
            async with aclosing(pages):
                async for page in pages:
                    items += page.items
                    version = page.resource_version
            return Listing(items, version)

        try:
            async with asyncio.timeout(deadline):
                try:
                    return await collect()
                except Expired:
                    return await collect()
        except TimeoutError as error:
            raise Unanswered(
                f"{self.cluster}: GET {resource.path(namespace)}: "
                f"{deadline:g} s passed before the last page"
            ) from error

    def watching(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        since: str = "",
        metadata_only: bool = False,
        timeout_seconds: int | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """A watch as a context: inside it, the server has accepted the watch."""
        start = (
            {"resourceVersion": since}
            if since
            else {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        )
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": str(timeout_seconds or ""),
            **start,
        }
        call = Call(
            retry.WATCH,
            resource.path(namespace),
            query_string(query),
            headers=METADATA if metadata_only else JSON,
        )
        return open_watch(self.transport, call, resource)

    async def watch(
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
        async with self.watching(
            resource,
            namespace,
            labels=labels,
            fields=fields,
            since=since,
            metadata_only=metadata_only,
            timeout_seconds=timeout_seconds,
        ) as events:
            async for event in events:
                yield event

    async def create(
        self,
        resource: Resource,
        manifest: Object,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Make an object; with a name and subresource, something below an object (pods/binding)."""
        namespace = namespace or self.home(manifest)
        return await self.ask(
            retry.CREATE.dry() if dry_run else retry.CREATE,
            resource.path(namespace, name, subresource),
            query=self.write_query(dry_run=dry_run),
            body=manifest,
            deadline=deadline,
        )

    async def replace(
        self,
        resource: Resource,
        manifest: Object,
        *,
        subresource: str = "",
        dry_run: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Write a whole object; with a resource version, only if nobody else wrote meanwhile."""
        path = resource.path(self.home(manifest), manifest["metadata"]["name"], subresource)
        query = self.write_query(dry_run=dry_run)
        return await self.ask(retry.REPLACE, path, query=query, body=manifest, deadline=deadline)

    async def apply(
        self,
        resource: Resource,
        manifest: Object,
        *,
        manager: str | None = None,
        force: bool = True,
        dry_run: bool = False,
        subresource: str = "",
        deadline: float | None = None,
    ) -> Object:
        """Make the fields of a manifest so, by server-side apply.

        Without `force`, `Conflict` names the fields that belong to somebody else.
        """
        return await self.ask(
            retry.APPLY,
            resource.path(self.home(manifest), manifest["metadata"]["name"], subresource),
            query=self.write_query(manager=manager, force=force, dry_run=dry_run),
            body=manifest,
            content_type=APPLY_PATCH,
            deadline=deadline,
        )

    async def patch(
        self,
        resource: Resource,
        key: Key,
        patch: Object | Sequence[Object],
        *,
        strategic: bool = False,
        subresource: str = "",
        dry_run: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Change an object by a merge patch (a dict), or by a JSON patch (a list)."""
        merge = STRATEGIC_PATCH if strategic else MERGE_PATCH
        verb = retry.patch_verb(patch)
        return await self.ask(
            verb.dry() if dry_run else verb,
            resource.path(key.namespace or self.namespace, key.name, subresource),
            query=self.write_query(dry_run=dry_run),
            body=patch,
            content_type=merge if isinstance(patch, dict) else JSON_PATCH,
            deadline=deadline,
        )

    async def delete(
        self,
        resource: Resource,
        key: Key,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        grace_seconds: int | None = None,
        dry_run: bool = False,
        deadline: float | None = None,
    ) -> Object:
        """Delete an object: this very one if a uid is given, this very state of it by version.

        Returns the object as it was, or a Status.
        """
        verb = retry.DELETE if uid or resource_version else retry.DELETE_ONCE
        conditions = {"uid": uid, "resourceVersion": resource_version}
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {name: value for name, value in conditions.items() if value},
            "propagationPolicy": propagation or None,
            "gracePeriodSeconds": grace_seconds,
            "dryRun": ["All"] if dry_run else None,
        }
        return await self.ask(
            verb.dry() if dry_run else verb,
            resource.path(key.namespace or self.namespace, key.name),
            body={name: value for name, value in options.items() if value not in (None, {})},
            deadline=deadline,
        )

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        propagation: str = "",
        deadline: float | None = None,
    ) -> None:
        """Delete all objects of a collection that a selector matches."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        await self.ask(
            retry.DELETE_COLLECTION,
            resource.path(namespace or self.namespace),
            query=query_string({**selectors, "propagationPolicy": propagation}),
            deadline=deadline,
        )

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

    async def version(self) -> str:
        """The version of the server, as `v1.35.8`."""
        body = await self.raw("GET", "/version")
        try:
            return msgspec.json.decode(body, type=Version).git_version
        except msgspec.DecodeError as error:
            raise BadAnswer(f"{self.cluster}: GET /version: not a version: {error}") from error

    async def ask(
        self,
        verb: Verb,
        path: str,
        *,
        query: str = "",
        body: Object | Sequence[Object] | None = None,
        content_type: str = "application/json",
        deadline: float | None = None,
    ) -> Object:
        """Send a request about one object."""
        call = Call(
            verb,
            path,
            query,
            None if body is None else encode(body),
            headers=JSON if body is None else {**JSON, "Content-Type": content_type},
            deadline_seconds=deadline,
            urgent=self.is_urgent,
        )
        return as_object(await self.transport.send(call), self.transport.where(call))

    def home(self, manifest: Object) -> str:
        """The namespace that a manifest belongs to, if its kind has any."""
        return manifest.get("metadata", {}).get("namespace") or self.namespace

    def write_query(
        self, *, manager: str | None = None, force: bool | None = None, dry_run: bool = False
    ) -> str:
        """The query of a write."""
        return query_string(
            {
                "fieldManager": manager or self.options.manager,
                "force": "" if force is None else str(force).lower(),
                "dryRun": "All" if dry_run else "",
            }
        )


def query_string(values: Mapping[str, str]) -> str:
    """A query with all values that are not empty."""
    given = [(name, value) for name, value in values.items() if value]
    return f"?{urlencode(given)}" if given else ""


def path_and_query(path: str) -> tuple[str, str]:
    """A path apart from its query, which belongs in no message."""
    path, mark, query = path.partition("?")
    return path, mark + query
