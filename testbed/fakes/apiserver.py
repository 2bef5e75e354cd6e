"""Fake API servers: many clusters behind one listener, each below a path of its own.

It knows discovery, lists with pages, watches with bookmarks and streaming lists, server-side apply
(as a merge), and the other writes; and it can be slow, fail, forget, and cut watches.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from knfleet.api.meta import Key, Object, Resource
from testbed.fakes.cluster import Cluster, Event, Gone, is_selected, merged, metadata_of
from testbed.fakes.sockets import loopback_socket

encode = msgspec.json.Encoder().encode


class Refusal(Exception):
    """The request is answered with a Status."""

    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message or reason,
        }

    @property
    def answer(self) -> web.Response:
        """The answer that says no."""
        return reply(self.status, self.status["code"])


class Wanted(msgspec.Struct, frozen=True):
    """What a path means."""

    resource: Resource
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> Key:
        """The key of the object."""
        return Key(self.namespace, self.name)


def reply(body: Mapping[str, Any], code: int = 200) -> web.Response:
    """An answer in JSON."""
    return web.Response(body=encode(body), status=code, content_type="application/json")


class ApiServers:
    """Many fake API servers behind one listener."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.clusters: dict[str, Cluster] = {}
        self.tls = tls

    def add(self, name: str, cluster: Cluster | None = None) -> Cluster:
        """Begin to serve a cluster."""
        self.clusters[name] = cluster or Cluster()
        return self.clusters[name]

    def url(self, name: str) -> str:
        """Where a cluster is."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/{name}"

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{cluster}/{path:.*}", self.handle)
        self.runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=1, handler_cancellation=True
        )
        await self.runner.setup()
        listening = loopback_socket()
        self.port: int = listening.getsockname()[1]
        await web.SockSite(self.runner, listening, ssl_context=self.tls, backlog=1024).start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for cluster in self.clusters.values():
            await cluster.cut()
        await self.runner.cleanup()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        cluster = self.clusters[request.match_info["cluster"]]
        path = request.match_info["path"]
        cluster.requests.append(f"{request.method} /{path}")
        try:
            await misbehave(cluster, request)
            if (answer := discovery(cluster, request, path)) is not None:
                return answer
            wanted = parse(cluster, path)
            if request.query.get("watch") == "true":
                return await watch(cluster, request, wanted)
            if request.method == "GET":
                return read(cluster, request, wanted)
            return write(cluster, request, wanted, await request.read())
        except Refusal as refusal:
            return refusal.answer


async def misbehave(cluster: Cluster, request: web.Request) -> None:
    """Do what the cluster's faults say."""
    faults = cluster.faults
    if faults.latency_seconds:
        await asyncio.sleep(faults.latency_seconds)
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if faults.tokens is not None and token not in faults.tokens:
        raise Refusal(401, "Unauthorized")
    if faults.fail > 0:
        faults.fail -= 1
        raise Refusal(faults.code, "ServiceUnavailable")


def parse(cluster: Cluster, path: str) -> Wanted:
    """What a path means."""
    parts = path.split("/")
    group, version, rest = ("", parts[1], parts[2:])
    if parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    resource = cluster.resources.get((group, version, rest[0] if rest else ""))
    if resource is None:
        raise Refusal(404, "NotFound", "404 page not found")
    return Wanted(resource, namespace, rest[1] if len(rest) > 1 else "")


def discovery(cluster: Cluster, request: web.Request, path: str) -> web.Response | None:
    """The answer to questions about the server itself, if the path is one."""
    if path == "readyz":
        return web.Response(text="ok")
    if path == "version":
        return reply({"gitVersion": "v1.35.0-fake"})
    if path in {"api", "apis"}:
        return reply({"kind": "APIGroupDiscoveryList", "items": groups(cluster, path == "api")})
    parts = path.split("/")
    group_version = parts[1:] if parts[0] == "apis" else ["", *parts[1:]]
    if len(group_version) != 2:
        return None
    resources = [
        {"name": r.plural, "kind": r.kind, "namespaced": r.namespaced, "verbs": ["get", "list"]}
        for r in cluster.resources.values()
        if [r.group, r.version] == group_version
    ]
    if not resources:
        raise Refusal(404, "NotFound")
    return reply({"kind": "APIResourceList", "resources": resources})


def groups(cluster: Cluster, core: bool) -> list[Object]:
    """Groups as aggregated discovery shows them."""
    found: dict[tuple[str, str], list[Object]] = {}
    for r in cluster.resources.values():
        entry: Object = {
            "resource": r.plural,
            "responseKind": {"kind": r.kind},
            "scope": "Namespaced" if r.namespaced else "Cluster",
            "verbs": ["get", "list", "watch"],
        }
        if core == (not r.group):
            found.setdefault((r.group, r.version), []).append(entry)
    return [
        {"metadata": {"name": group}, "versions": [{"version": version, "resources": entries}]}
        for (group, version), entries in found.items()
    ]


def read(cluster: Cluster, request: web.Request, wanted: Wanted) -> web.Response:
    """One object, or a page of a list."""
    if wanted.name:
        found = cluster.objects[wanted.resource].get(wanted.key)
        if found is None:
            raise Refusal(404, "NotFound", f'{wanted.resource} "{wanted.name}" not found')
        return reply(found)
    items = cluster.select(
        wanted.resource, wanted.namespace, request.query.get("labelSelector", "")
    )
    start = int(request.query.get("continue") or 0)
    limit = int(request.query.get("limit") or 0) or len(items)
    meta = {"resourceVersion": str(cluster.version)}
    if start + limit < len(items):
        meta["continue"] = str(start + limit)
    page = [shown(item, request) for item in items[start : start + limit]]
    return reply({"kind": f"{wanted.resource.kind}List", "metadata": meta, "items": page})


def shown(manifest: Object, request: web.Request) -> Object:
    """As much of an object as is asked for."""
    only = "as=PartialObjectMetadata" in request.headers.get("Accept", "")
    return metadata_of(manifest) if only else manifest


def write(cluster: Cluster, request: web.Request, wanted: Wanted, raw: bytes) -> web.Response:
    """Do a write."""
    body: Object = msgspec.json.decode(raw) if raw else {}
    old = cluster.objects[wanted.resource].get(wanted.key)
    if request.method == "POST":
        body.setdefault("metadata", {})["namespace"] = wanted.namespace
        if Key.of(body) in cluster.objects[wanted.resource]:
            raise Refusal(409, "AlreadyExists")
        return reply(cluster.put(wanted.resource, body), 201)
    if request.method == "PATCH" and request.content_type == "application/apply-patch+yaml":
        body.setdefault("metadata", {})["namespace"] = wanted.namespace
        return reply(cluster.put(wanted.resource, merged(old or {}, body)), 200 if old else 201)
    if old is None:
        raise Refusal(404, "NotFound")
    if request.method == "DELETE":
        cluster.delete(wanted.resource, wanted.key)
        return reply(old)
    if request.method == "PUT":
        version = body["metadata"].get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            raise Refusal(409, "Conflict")
        return reply(cluster.put(wanted.resource, body))
    return reply(cluster.put(wanted.resource, merged(old, body)))


async def watch(cluster: Cluster, request: web.Request, wanted: Wanted) -> web.StreamResponse:
    """Stream events until the client, the time limit or a fault ends it."""
    initial = request.query.get("sendInitialEvents") == "true"
    if initial and not cluster.faults.streams_lists:
        raise Refusal(422, "Invalid", "sendInitialEvents is forbidden")
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    task = asyncio.ensure_future(follow(cluster, request, wanted, response))
    cluster.watches.add(task)
    try:
        await asyncio.wait([task])
    finally:
        cluster.watches.discard(task)
        task.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await task
    if task.cancelled() and request.transport is not None:
        request.transport.abort()
    return response


async def follow(
    cluster: Cluster, request: web.Request, wanted: Wanted, response: web.StreamResponse
) -> None:
    """Send what happens to a selection."""
    labels = request.query.get("labelSelector", "")
    version = int(request.query.get("resourceVersion") or cluster.version)
    woken = asyncio.Event()
    cluster.changed.add(woken)
    try:
        async with asyncio.timeout(float(request.query.get("timeoutSeconds") or 3600)):
            if request.query.get("sendInitialEvents") == "true":
                items = cluster.select(wanted.resource, wanted.namespace, labels)
                version = cluster.version
                lines = [line("ADDED", shown(item, request)) for item in items]
                await response.write(b"".join([*lines, bookmark(wanted, version, initial=True)]))
            while True:
                woken.clear()
                events = cluster.since(version)
                version = cluster.version
                lines = [event_line(event, wanted, labels, request) for event in events]
                if any(lines):
                    await response.write(b"".join(lines))
                try:
                    await asyncio.wait_for(woken.wait(), cluster.bookmark_seconds)
                except TimeoutError:
                    await response.write(bookmark(wanted, version))
    except Gone:
        await response.write(line("ERROR", Refusal(410, "Expired", "too old").status))
    except TimeoutError:
        await response.write(bookmark(wanted, version))
    finally:
        cluster.changed.discard(woken)


def event_line(event: Event, wanted: Wanted, labels: str, request: web.Request) -> bytes:
    """The line for an event; empty when it is about something else."""
    if event.resource != wanted.resource:
        return b""
    now = event.type != "DELETED" and is_selected(event.object, wanted.namespace, labels)
    before = event.old is not None and is_selected(event.old, wanted.namespace, labels)
    kinds = {(True, True): "MODIFIED", (True, False): "ADDED", (False, True): "DELETED"}
    kind = kinds.get((now, before))
    return line(kind, shown(event.object, request)) if kind else b""


def bookmark(wanted: Wanted, version: int, *, initial: bool = False) -> bytes:
    """The line of a bookmark."""
    meta: Object = {"resourceVersion": str(version)}
    if initial:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    resource = wanted.resource
    return line(
        "BOOKMARK",
        {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta},
    )


def line(kind: str, manifest: Object) -> bytes:
    """One event as a line."""
    return encode({"type": kind, "object": manifest}) + b"\n"
