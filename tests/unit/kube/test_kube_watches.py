"""Watches and informers, and what can go wrong with them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS
from knfleet.api.meta import Key, Object, Resource
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client, ClientOptions, WatchEvent
from knfleet.kube.errors import (
    BadResponse,
    ConnectionInterrupted,
    Expired,
    Forbidden,
    KubeError,
    NotFound,
    RequestTimeout,
    ServerError,
)
from testbed.fakes.apiserver import ApiServers
from testbed.fakes.clients import QUICK, Heard, Tokens, client_for
from testbed.fakes.cluster import Cluster
from testbed.fakes.server import Server, answer, silence, status, stream

WAIT = 20


def event(kind: str, name: str, version: int, **more: Any) -> Object:
    """An event as a server sends it."""
    meta = {"name": name, "namespace": "n", "resourceVersion": str(version)}
    return {"type": kind, "object": {"kind": "ConfigMap", "metadata": meta, **more}}


def config_map(name: str, **data: str) -> Object:
    """A ConfigMap."""
    return {"metadata": {"name": name, "namespace": "n"}, "data": data}


async def collect(client: Client, since: str = "1") -> list[WatchEvent]:
    """Events until the watch ends."""
    async with aclosing(client.watch(CONFIG_MAPS, since=since)) as events:
        return [event async for event in events]


async def test_events_come_in_order_however_the_stream_is_cut() -> None:
    """The end that the server makes is no error."""
    text = b"".join(
        msgspec.json.encode(event("ADDED", f"a{number}", number)) + b"\n" for number in range(20)
    )
    chunks = [text[start : start + 7] for start in range(0, len(text), 7)]
    async with Server(stream(*chunks)) as server, client_for(server.url) as client:
        events = await collect(client)

    assert [f"a{number}" for number in range(20)] == [
        event.object["metadata"]["name"] for event in events
    ]


@pytest.mark.parametrize(
    ("chunks", "end", "error"),
    [
        ([event("ADDED", "a", 1)], "cut", ConnectionInterrupted),
        ([event("ADDED", "a", 1), b'{"type":"ADD'], "end", ConnectionInterrupted),
        ([b'{"type":"ADD'], "cut", ConnectionInterrupted),
        ([b"<html>\n"], "end", BadResponse),
        ([b'{"type":"ADDED"}\n'], "end", BadResponse),
        ([b"x" * 3000], "end", BadResponse),
    ],
)
async def test_a_watch_that_ends_badly(
    chunks: list[bytes | Object], end: str, error: type[KubeError]
) -> None:
    """A cut, half an event, nonsense, and a line without end are told apart."""
    options = msgspec.structs.replace(QUICK, line_limit_bytes=2000)
    async with (
        Server(stream(*chunks, end=end)) as server,
        client_for(server.url, options=options) as client,
    ):
        with pytest.raises(error, match="GET /api/v1/configmaps"):
            await collect(client)


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [(410, "Expired", Expired), (500, "InternalError", ServerError)],
)
async def test_an_error_event_is_raised(code: int, reason: str, error: type[KubeError]) -> None:
    """It comes as an event because the answer began long ago."""
    no = {"kind": "Status", "code": code, "reason": reason, "message": "too old"}
    async with (
        Server(stream(event("ADDED", "a", 1), {"type": "ERROR", "object": no})) as server,
        client_for(server.url) as client,
    ):
        with pytest.raises(error, match="too old"):
            await collect(client)


async def test_a_watch_that_is_refused() -> None:
    """Before it began."""
    no = status(403, "Forbidden", "not you")
    async with Server(no) as server, client_for(server.url) as client:
        with pytest.raises(Forbidden, match="not you"):
            await collect(client)


async def test_a_watch_logs_in_again_once() -> None:
    """As every request does."""
    tokens = Tokens()
    script = [status(401, "Unauthorized"), stream(event("ADDED", "a", 1))]
    async with Server(*script) as server, client_for(server.url, credentials=tokens) as client:
        assert len(await collect(client)) == 1
    assert tokens.fetched == 2


async def test_a_silent_watch_is_given_up() -> None:
    """The other side may be gone without a word."""
    options = msgspec.structs.replace(QUICK, silence_seconds=0.1)
    async with (
        Server(stream(event("ADDED", "a", 1), end="hang")) as server,
        client_for(server.url, options=options) as client,
    ):
        with pytest.raises(RequestTimeout, match="no data was received"):
            await collect(client)


async def test_a_watch_that_is_not_accepted_in_time() -> None:
    """The deadline is for the beginning of a watch only."""
    options = msgspec.structs.replace(QUICK, deadline_seconds=0.1)
    async with Server(silence) as server, client_for(server.url, options=options) as client:
        with pytest.raises(RequestTimeout, match="waiting for an answer"):
            await collect(client)


async def test_watches_take_no_slot() -> None:
    """Otherwise a few of them would stop all else."""
    options = msgspec.structs.replace(QUICK, concurrency=1, reserve=0)
    hanging = stream(event("ADDED", "a", 1), end="hang")
    async with (
        Server(hanging, hanging, answer({"metadata": {}})) as server,
        client_for(server.url, options=options) as client,
        aclosing(client.watch(CONFIG_MAPS, since="1")) as one,
        aclosing(client.watch(CONFIG_MAPS, since="1")) as two,
    ):
        await anext(one)
        await anext(two)

        assert await client.get(CONFIG_MAPS, "a") == {"metadata": {}}


async def test_a_large_event_is_read() -> None:
    """An object may be as large as etcd takes."""
    big = event("ADDED", "a", 1, data={"x": "y" * 1_500_000})
    async with Server(stream(big)) as server, client_for(server.url) as client:
        assert big["object"]["data"] == (await collect(client))[0].object["data"]


class Fixture(msgspec.Struct):
    """A fake cluster, and an informer that follows it."""

    cluster: Cluster
    informer: Informer
    changes: list[StoreChange]
    heard: Heard

    async def until(self, true: Callable[[], object]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(WAIT):
            while not true():
                self.heard.stirred.clear()
                await self.heard.stirred.wait()

    def names(self) -> list[str]:
        """The names in the informer."""
        return sorted(one["metadata"]["name"] for one in self.informer.items())

    def told(self) -> list[str]:
        """What handlers were told."""
        return [f"{change.type} {change.key}" for change in self.changes]


@asynccontextmanager
async def following(
    *names: str, cluster: Cluster | None = None, **wishes: Any
) -> AsyncGenerator[Fixture, None]:
    """An informer in step with a fake cluster."""
    cluster = cluster or Cluster()
    for name in names:
        cluster.put(CONFIG_MAPS, config_map(name))
    heard = Heard()
    silence_seconds = wishes.pop("silence_seconds", 30)
    resource: Resource = wishes.pop("resource", CONFIG_MAPS)
    options = ClientOptions(observe=heard, silence_seconds=silence_seconds, backoff_seconds=0.01)
    async with ApiServers() as servers:
        servers.add("c", cluster)
        async with client_for(servers.url("c"), options=options) as client:
            informer = Informer(client, resource, **wishes)
            changes: list[StoreChange] = []
            informer.on_change(changes.append)
            informer.on_change(lambda _: heard.stirred.set())
            task = asyncio.create_task(informer.run())
            try:
                yield Fixture(cluster, informer, changes, heard)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("streams", [True, False])
async def test_an_informer_holds_what_the_server_holds(streams: bool) -> None:
    """By a streaming list, or by pages where the server does not know it."""
    cluster = Cluster()
    cluster.faults.streams_lists = streams
    async with following("a", "b", cluster=cluster) as it:
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)
        assert it.names() == ["a", "b"]

        cluster.put(CONFIG_MAPS, config_map("c"))
        cluster.put(CONFIG_MAPS, config_map("a", x="1"))
        cluster.delete(CONFIG_MAPS, Key("n", "b"))
        await it.until(lambda: it.informer.resource_version == str(cluster.version))

        assert it.names() == ["a", "c"]
        assert it.told() == [
            "added n/a",
            "added n/b",
            "added n/c",
            "updated n/a",
            "deleted n/b",
        ]
        assert (it.informer.get(Key("n", "a")) or {})["data"] == {"x": "1"}
        assert it.informer.failing is None


async def test_a_cut_watch_goes_on_where_it_was() -> None:
    """Nothing is listed again, and nothing is told twice."""
    async with following("a") as it:
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)
        await it.cluster.cut()
        it.cluster.put(CONFIG_MAPS, config_map("b"))
        await it.until(lambda: it.names() == ["a", "b"])

        assert it.told() == ["added n/a", "added n/b"]
        assert it.heard.restarts == ["ConnectionInterrupted"]
        assert it.informer.failing is None


async def test_what_was_deleted_in_a_gap_is_noticed() -> None:
    """The server forgot what happened meanwhile, so the informer lists again."""
    async with following("a", "b", "c") as it:
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)
        it.cluster.faults.fail = 1
        await it.cluster.cut()
        it.cluster.delete(CONFIG_MAPS, Key("n", "b"))
        it.cluster.put(CONFIG_MAPS, config_map("c", x="1"))
        it.cluster.forget()
        await it.until(lambda: it.informer.get(Key("n", "b")) is None)

        assert it.names() == ["a", "c"]
        assert {"updated n/c", "deleted n/b"} == set(it.told()[3:])
        assert "Expired" in it.heard.restarts


async def test_a_server_that_forgets_all_the_time_is_listed_less_and_less_often() -> None:
    """However long each list and watch took, and whatever went well in between."""
    async with client_for("http://127.0.0.1:1") as client:
        informer = Informer(client, CONFIG_MAPS)
        delays: list[float] = []
        for version in range(12):
            informer.complete(set(), str(version))
            some_time_ago = time.monotonic() - 5
            informer.after_end(some_time_ago)
            delays.append(informer.after_error(Expired("gone"), some_time_ago))

        assert delays[0] == 0
        assert min(delays[1:]) > 0
        assert min(delays[8:]) > 2
        informer.listed = time.monotonic() - 60
        informer.resource_version = "13"
        assert informer.after_error(Expired("gone"), time.monotonic()) == 0


async def test_a_handler_that_fails_with_everything_is_logged_once_in_a_while() -> None:
    """A server that sends what no handler expects could fill the log."""

    def fail(change: StoreChange) -> None:
        raise KeyError(change.key)

    async with client_for("http://127.0.0.1:1") as client:
        informer = Informer(client, CONFIG_MAPS)
        informer.on_change(fail)
        with capture_logs() as lines:
            for number in range(100):
                informer.put(event("ADDED", f"o{number}", number)["object"])

        assert len(informer.items()) == informer.handler_failures == 100
        assert [line["event"] for line in lines] == ["an informer's handler failed"]


@pytest.mark.parametrize("streams", [True, False])
async def test_what_a_list_or_watch_brings_counts_as_read(streams: bool) -> None:
    """So that who sends without end is read no faster than allowed."""
    cluster = Cluster()
    cluster.faults.streams_lists = streams
    cluster.put(CONFIG_MAPS, config_map("a", text="x" * 5000))
    async with ApiServers() as servers:
        servers.add("c", cluster)
        options = ClientOptions(read_bytes_per_second=1000)
        async with client_for(servers.url("c"), options=options) as client:
            informer = Informer(client, CONFIG_MAPS)
            following = asyncio.create_task(informer.run())
            await asyncio.wait_for(informer.synced.wait(), WAIT)
            owed = client.transport.reading.next_at - asyncio.get_running_loop().time()
            following.cancel()
            await asyncio.wait([following])

    assert owed > 1


async def test_the_old_objects_are_served_until_the_new_list_is_there() -> None:
    """A server that is down takes nothing away."""
    async with following("a", "b") as it:
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)
        it.cluster.forget()
        it.cluster.version += 10
        it.cluster.forget()
        it.cluster.faults.fail = 10**9
        await it.cluster.cut()
        await it.until(lambda: it.informer.failing is not None)

        assert it.names() == ["a", "b"]
        assert it.informer.synced.is_set()
        assert isinstance(it.informer.failing, ServerError | ConnectionInterrupted)


async def test_a_silent_connection_is_dropped_and_resumed() -> None:
    """A half-open connection would otherwise hide every change for ever."""
    cluster = Cluster(bookmark_seconds=600)
    async with following("a", cluster=cluster, silence_seconds=0.2) as it:
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)
        await it.until(lambda: "RequestTimeout" in it.heard.restarts)
        cluster.put(CONFIG_MAPS, config_map("b"))
        await it.until(lambda: it.names() == ["a", "b"])

        assert it.told() == ["added n/a", "added n/b"]


async def test_a_server_from_a_backup_is_listed_again() -> None:
    """Its versions are older than ours, so it would stay silent for ever."""
    cluster = Cluster(bookmark_seconds=600)
    async with following("a", "b", cluster=cluster, silence_seconds=0.2) as it:
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)
        cluster.faults.fail = 10**9
        await cluster.cut()
        await it.until(lambda: isinstance(it.informer.failing, ServerError))
        cluster.delete(CONFIG_MAPS, Key("n", "b"))
        it.informer.resource_version = "1000000"
        cluster.faults.fail = 0
        await it.until(lambda: it.names() == ["a"])

        assert it.told()[-1] == "deleted n/b"


async def test_a_kind_that_is_not_served_yet_is_waited_for() -> None:
    """The CRD may be installed any time; until then it can be seen what is wrong."""
    widgets = Resource("example.dev", "v1", "Widget", "widgets")
    async with following(resource=widgets) as it:
        await it.until(lambda: it.informer.failing is not None)
        assert isinstance(it.informer.failing, NotFound)
        assert not it.informer.synced.is_set()

        it.cluster.resources[("example.dev", "v1", "widgets")] = widgets
        it.cluster.objects[widgets] = {}
        it.cluster.put(widgets, config_map("w"))
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)

        assert it.names() == ["w"]
        assert it.informer.failing is None


async def test_a_handler_that_fails_harms_nobody() -> None:
    """The others are told, and the informer goes on."""

    def fail(change: StoreChange) -> None:
        raise RuntimeError(change.key.name)

    async with following() as it:
        it.informer.handlers.insert(0, fail)
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)
        it.cluster.put(CONFIG_MAPS, config_map("a"))
        it.cluster.put(CONFIG_MAPS, config_map("b"))
        await it.until(lambda: it.told() == ["added n/a", "added n/b"])


def app_of(manifest: Object) -> list[str]:
    """The value of a label."""
    return [manifest["metadata"]["labels"]["app"]]


async def test_indexes_selectors_metadata_and_trimming() -> None:
    """An informer holds as much as it is asked for, and finds it."""
    cluster = Cluster()
    for name, labels in {"a": {"app": "x"}, "b": {"app": "y"}, "c": {}}.items():
        manifest = config_map(name, big="data")
        manifest["metadata"] |= {"labels": labels, "managedFields": [{}]}
        cluster.put(CONFIG_MAPS, manifest)
    wishes: dict[str, Any] = {
        "labels": "app",
        "metadata_only": True,
        "trim": without_managed_fields,
        "indexes": {"app": app_of},
    }
    async with following(cluster=cluster, **wishes) as it:
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)

        assert it.names() == ["a", "b"]
        [found] = it.informer.by_index("app", "x")
        assert "data" not in found
        assert "managedFields" not in found["metadata"]
        assert found["kind"] == "ConfigMap"

        manifest = config_map("a")
        manifest["metadata"]["labels"] = {"app": "y"}
        cluster.put(CONFIG_MAPS, manifest)
        await it.until(lambda: len(it.informer.by_index("app", "y")) == 2)

        assert it.informer.by_index("app", "x") == []


async def test_nonsense_in_a_watch_does_not_stop_an_informer() -> None:
    """An object without a name is an answer of no API server; the next one may be."""
    end: Object = {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}}
    good = stream(
        event("ADDED", "a", 1), {"type": "BOOKMARK", "object": {"metadata": end}}, end="hang"
    )
    nonsense = stream({"type": "ADDED", "object": {"metadata": None}}, end="hang")
    async with Server(nonsense, stream(b"<"), good) as server, client_for(server.url) as client:
        informer = Informer(client, CONFIG_MAPS)
        task = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), WAIT)

        assert [one["metadata"]["name"] for one in informer.items()] == ["a"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_twenty_thousand_objects() -> None:
    """By pages and by a stream."""
    cluster = Cluster()
    for number in range(20_000):
        cluster.put(CONFIG_MAPS, config_map(f"c{number:05}"))
    async with following(cluster=cluster) as it:
        await asyncio.wait_for(it.informer.synced.wait(), 60)
        listing = await it.informer.client.list(CONFIG_MAPS, deadline=60)

        assert 20_000 == len(it.informer.items()) == len(listing.items)
        assert sum(entry == "GET /api/v1/configmaps" for entry in cluster.requests[1:]) == 40


async def test_a_list_begins_again_once_when_its_place_expired() -> None:
    """A slow reader of a busy cluster still gets a list of one moment."""
    first = answer(
        {"metadata": {"resourceVersion": "1", "continue": "x"}, "items": [{"metadata": {}}]}
    )
    whole = answer({"metadata": {"resourceVersion": "2"}, "items": [{"metadata": {"name": "new"}}]})
    gone = status(410, "Expired")
    async with Server(first, gone, whole, first, gone) as server, client_for(server.url) as client:
        listing = await client.list(CONFIG_MAPS)
        assert [one["metadata"]["name"] for one in listing.items] == ["new"]
        assert listing.resource_version == "2"

        server.script = [first, gone, first, gone]
        with pytest.raises(Expired):
            await client.list(CONFIG_MAPS)


async def test_discovery_learns_and_asks_little() -> None:
    """One request for a group and version, and not again for what is known not to be there."""
    now = [0.0]
    async with following() as it:
        discovery = it.informer.client.discovery
        discovery.now = lambda: now[0]

        found = await asyncio.gather(*(discovery.resource("apps/v1", "Deployment") for _ in "abc"))
        for _ in "ab":
            with pytest.raises(NotFound, match="does not serve Widget in apps/v1"):
                await discovery.resource("apps/v1", "Widget")
        assert found == [DEPLOYMENTS] * 3
        assert it.cluster.requests.count("GET /apis/apps/v1") == 1

        widgets = Resource("apps", "v1", "Widget", "widgets", namespaced=False)
        it.cluster.resources[("apps", "v1", "widgets")] = widgets
        now[0] += 10
        assert widgets == await discovery.resource("apps/v1", "Widget")
        assert it.cluster.requests.count("GET /apis/apps/v1") == 2
        everything = {served.resource for served in await discovery.resources()}
        assert {widgets, CONFIG_MAPS, DEPLOYMENTS} <= everything


async def test_discovery_of_an_old_server_goes_group_by_group() -> None:
    """And a group whose own server is down does not hide the others."""
    groups: list[Object] = [
        {
            "name": name,
            "versions": [{"groupVersion": f"{name}/v1beta1"}, {"groupVersion": f"{name}/v1"}],
            "preferredVersion": {"groupVersion": f"{name}/v1"},
        }
        for name in ("one", "down")
    ]
    one: Object = {"name": "ones", "kind": "One", "namespaced": True, "verbs": ["get"]}
    old: Object = {"name": "olds", "kind": "Old", "namespaced": True, "verbs": []}
    script = [
        answer({"kind": "APIVersions", "versions": ["v1"]}),
        answer({"resources": [{"name": "pods", "kind": "Pod", "namespaced": True}]}),
        answer({"kind": "APIGroupList", "groups": groups}),
        answer({"resources": [one, {**one, "name": "ones/status"}]}),
        answer({"resources": [one, old]}),
        status(503, "ServiceUnavailable"),
    ]
    options = msgspec.structs.replace(QUICK, attempts=1)
    async with Server(*script) as server, client_for(server.url, options=options) as client:
        found = await client.discovery.resources()

        assert [
            f"{served.resource.group}/{served.resource.version} {served.resource.plural}"
            for served in found
        ] == ["/v1 pods", "one/v1 ones", "one/v1beta1 olds"]
        assert client.discovery.unavailable == ("down/v1", "down/v1beta1")
