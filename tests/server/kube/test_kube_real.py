"""The client and the informer on a real API server."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest

from knfleet.api.core import (
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
)
from knfleet.api.meta import Key, Object, Resource
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client, ClientOptions, ListSelection, WatchEvent
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Unauthorized,
)
from testbed.fakes.clients import Heard
from testbed.fakes.proxies import Wire

WAIT = 30
MINE = "metadata.name!=kube-root-ca.crt"
"""What a test made itself: a controller puts one more ConfigMap into each namespace."""


@pytest.fixture
async def namespace(hub: Client) -> str:
    """A namespace of the test's own; it ends when the cluster is lent again."""
    made = await hub.create(NAMESPACES, {"metadata": {"generateName": "kube-"}})
    return made["metadata"]["name"]


def config_map(namespace: str, name: str = "a", **data: str) -> Object:
    """A ConfigMap."""
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


async def test_the_server_tells_its_version(hub: Client) -> None:
    """And whether it is ready, on a path without objects."""
    assert (await hub.version()).startswith("v1.")
    assert await hub.raw("GET", "/readyz") == b"ok"
    assert b"[+]ping ok" in await hub.raw("GET", "/readyz?verbose")


async def test_an_object_lives(hub: Client, namespace: str) -> None:
    """Create, get, replace, patch in three ways, delete."""
    key = Key(namespace, "a")
    made = await hub.create(CONFIG_MAPS, config_map(namespace, x="1"))
    assert made == await hub.get(CONFIG_MAPS, "a", namespace)
    with pytest.raises(AlreadyExists):
        await hub.create(CONFIG_MAPS, config_map(namespace))

    replaced = await hub.replace(CONFIG_MAPS, {**made, "data": {"y": "1"}})
    assert replaced["data"] == {"y": "1"}
    with pytest.raises(Conflict):
        await hub.replace(CONFIG_MAPS, made)

    merged = await hub.patch(CONFIG_MAPS, key, {"data": {"y": None, "z": "1"}})
    assert merged["data"] == {"z": "1"}
    steps: list[Object] = [
        {"op": "test", "path": "/data/z", "value": "1"},
        {"op": "replace", "path": "/data/z", "value": "2"},
    ]
    assert (await hub.patch(CONFIG_MAPS, key, steps))["data"] == {"z": "2"}
    with pytest.raises(Invalid):
        await hub.patch(CONFIG_MAPS, key, steps)

    dry = await hub.patch(CONFIG_MAPS, key, {"data": {"z": "3"}}, dry_run=True)
    assert dry["data"] == {"z": "3"}
    assert (await hub.get(CONFIG_MAPS, "a", namespace))["data"] == {"z": "2"}

    await hub.delete(CONFIG_MAPS, key)
    with pytest.raises(NotFound) as raised:
        await hub.get(CONFIG_MAPS, "a", namespace)
    assert (raised.value.code, raised.value.reason) == (404, "NotFound")


async def test_an_apply_may_answer_with_metadata_alone(hub: Client, namespace: str) -> None:
    """It is applied as a whole, and the answer has the kind that was asked about."""
    manifest = config_map(namespace, x="1")

    answer = await hub.apply(CONFIG_MAPS, manifest, metadata_only=True)
    whole = await hub.get(CONFIG_MAPS, "a", namespace)

    assert "data" not in answer
    assert (answer["kind"], answer["metadata"]) == ("ConfigMap", whole["metadata"])
    assert whole["data"] == {"x": "1"}


async def test_an_apply_refuses_fields_that_no_server_knows(hub: Client, namespace: str) -> None:
    """A mistake in a manifest is told, not dropped."""
    wrong = deployment(namespace, "one")
    wrong["spec"]["replica"] = 3

    with pytest.raises(KubeError, match="replica"):
        await hub.apply(DEPLOYMENTS, wrong)


def deployment(namespace: str, *names: str) -> Object:
    """A Deployment with some containers."""
    containers = [{"name": name, "image": f"{name}:1"} for name in names]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": containers},
            },
        },
    }


async def test_a_strategic_patch_merges_lists_by_name(hub: Client, namespace: str) -> None:
    """Where a merge patch would replace them; status is a part of its own."""
    await hub.create(DEPLOYMENTS, deployment(namespace, "one", "two"))
    key = Key(namespace, "d")
    spec = {"template": {"spec": {"containers": [{"name": "one", "image": "one:2"}]}}}

    patched = await hub.patch(DEPLOYMENTS, key, {"spec": spec}, strategic=True)
    status = await hub.patch(
        DEPLOYMENTS, key, {"status": {"replicas": 7}, "spec": {"replicas": 9}}, subresource="status"
    )
    scale = await hub.get(DEPLOYMENTS, "d", namespace, subresource="scale")

    images = [one["image"] for one in patched["spec"]["template"]["spec"]["containers"]]
    assert images == ["one:2", "two:1"]
    assert (status["status"]["replicas"], status["spec"]["replicas"]) == (7, 1)
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 1)


async def test_apply_owns_fields_and_meets_conflicts(hub: Client, namespace: str) -> None:
    """Without force it stops at the fields of others; with it, it takes them."""
    await hub.apply(CONFIG_MAPS, config_map(namespace, x="1", y="1"))
    with pytest.raises(Conflict, match="knfleet") as raised:
        await hub.apply(CONFIG_MAPS, config_map(namespace, x="2"), manager="other", force=False)
    assert [field for field, _ in raised.value.causes] == [".data.x"]

    dry = await hub.apply(CONFIG_MAPS, config_map(namespace, x="3"), dry_run=True)
    kept = await hub.get(CONFIG_MAPS, "a", namespace)
    taken = await hub.apply(CONFIG_MAPS, config_map(namespace, x="2"), manager="other")
    dropped = await hub.apply(CONFIG_MAPS, config_map(namespace, z="1"))

    assert dry["data"] == {"x": "3"}
    assert kept["data"] == {"x": "1", "y": "1"}
    assert taken["data"] == {"x": "2", "y": "1"}
    assert dropped["data"] == {"x": "2", "z": "1"}


async def test_apply_to_status_leaves_the_rest(hub: Client, namespace: str) -> None:
    """A subresource is applied by itself."""
    await hub.apply(DEPLOYMENTS, deployment(namespace, "one"))
    head = {"apiVersion": "apps/v1", "kind": "Deployment"}
    meta = {"name": "d", "namespace": namespace}
    applied = await hub.apply(
        DEPLOYMENTS,
        {**head, "metadata": meta, "status": {"observedGeneration": 5}},
        subresource="status",
    )

    assert applied["status"]["observedGeneration"] == 5
    assert applied["spec"]["template"]["spec"]["containers"]


async def test_a_delete_hits_nothing_but_what_was_meant(hub: Client, namespace: str) -> None:
    """By uid, and by version."""
    made = await hub.create(CONFIG_MAPS, config_map(namespace))
    meta, key = made["metadata"], Key(namespace, "a")
    with pytest.raises(Conflict):
        await hub.delete(CONFIG_MAPS, key, uid="0b5e5a1c-0000-0000-0000-000000000000")
    await hub.patch(CONFIG_MAPS, key, {"data": {"x": "1"}})
    with pytest.raises(Conflict):
        await hub.delete(CONFIG_MAPS, key, resource_version=meta["resourceVersion"])
    await hub.delete(CONFIG_MAPS, key, uid=meta["uid"], dry_run=True)
    assert await hub.get(CONFIG_MAPS, "a", namespace)

    await hub.delete(CONFIG_MAPS, key, uid=meta["uid"])
    with pytest.raises(NotFound):
        await hub.delete(CONFIG_MAPS, key, uid=meta["uid"])


async def test_how_dependents_go_and_how_long_it_may_take(hub: Client, namespace: str) -> None:
    """Foreground deletion leaves a finalizer that the garbage collector takes away."""
    await hub.create(DEPLOYMENTS, deployment(namespace, "one"))
    gone = await hub.delete(
        DEPLOYMENTS, Key(namespace, "d"), propagation="Foreground", grace_seconds=0
    )

    assert gone["metadata"]["finalizers"] == ["foregroundDeletion"]


async def test_a_collection_is_deleted_by_label(hub: Client, namespace: str) -> None:
    """The others stay."""
    for name, label in {"a": "x", "b": "x", "c": "y"}.items():
        manifest = config_map(namespace, name)
        manifest["metadata"]["labels"] = {"app": label}
        await hub.create(CONFIG_MAPS, manifest)

    await hub.delete_collection(CONFIG_MAPS, namespace, labels="app=x")

    assert names((await hub.list(CONFIG_MAPS, namespace, fields=MINE)).items) == ["c"]


def names(items: list[Object]) -> list[str]:
    """Names in order."""
    return sorted(one["metadata"]["name"] for one in items)


async def test_lists_by_pages_labels_fields_and_metadata(hub: Client, namespace: str) -> None:
    """However it is asked, a list is complete, and its objects know their kind."""
    made = [config_map(namespace, f"c{number:02}", x="1") for number in range(25)]
    made[3]["metadata"]["labels"] = {"app": "x"}
    await asyncio.gather(*(hub.create(CONFIG_MAPS, manifest) for manifest in made))

    selection = ListSelection(CONFIG_MAPS, namespace, fields=MINE)
    pages = [len(page.items) async for page in hub.pages_of(selection, limit=10)]
    whole = await hub.list(CONFIG_MAPS, namespace, fields=MINE, limit=7)
    labelled = await hub.list(CONFIG_MAPS, namespace, labels="app in (x, y)")
    field = await hub.list(CONFIG_MAPS, namespace, fields="metadata.name=c07")
    everywhere = await hub.list(CONFIG_MAPS, fields=f"metadata.namespace={namespace},{MINE}")
    slim = await hub.list(CONFIG_MAPS, namespace, fields=MINE, metadata_only=True, limit=10)
    past = await hub.list(
        CONFIG_MAPS, namespace, fields=MINE, resource_version=whole.resource_version
    )

    assert pages == [10, 10, 5]
    assert names(made) == names(whole.items) == names(everywhere.items) == names(past.items)
    assert names(labelled.items) == ["c03"]
    assert names(field.items) == ["c07"]
    assert names(made) == names(slim.items)
    assert {("v1", "ConfigMap", True)} == {
        (one["apiVersion"], one["kind"], "data" in one) for one in whole.items
    }
    assert {("v1", "ConfigMap", False)} == {
        (one["apiVersion"], one["kind"], "data" in one) for one in slim.items
    }


async def test_something_below_an_object_is_created(hub: Client, namespace: str) -> None:
    """A token of a service account, which then may do little."""
    meta = {"name": "robot", "namespace": namespace}
    await hub.create(SERVICE_ACCOUNTS, {"metadata": meta})
    request = await hub.create(
        SERVICE_ACCOUNTS,
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        namespace,
        name="robot",
        subresource="token",
    )
    endpoint = hub.transport.endpoint
    source = StaticCredential(Credential(token=request["status"]["token"]))
    async with Client(Connection(hub.cluster, endpoint, source)) as robot:
        with pytest.raises(Forbidden, match="robot"):
            await robot.list(PODS)
        assert await robot.version()
    async with Client(Connection(hub.cluster, endpoint, StaticCredential())) as nobody:
        with pytest.raises(Forbidden, match="anonymous"):
            await nobody.list(PODS)
    bad = StaticCredential(Credential(token="not-a-token"))
    async with Client(Connection(hub.cluster, endpoint, bad)) as liar:
        with pytest.raises(Unauthorized) as raised:
            await liar.list(PODS)
    assert "not-a-token" not in str(raised.value)


async def test_what_is_wrong_with_an_object_is_named(hub: Client, namespace: str) -> None:
    """Field by field."""
    manifest = deployment(namespace)
    with pytest.raises(Invalid) as raised:
        await hub.create(DEPLOYMENTS, manifest)
    assert "spec.template.spec.containers" in [field for field, _ in raised.value.causes]

    with pytest.raises(BadRequest):
        await hub.create(CONFIG_MAPS, {"kind": "Secret", "metadata": {"name": "a"}}, namespace)


async def test_the_largest_object_that_the_server_takes(hub: Client, namespace: str) -> None:
    """Comes and goes, and arrives by watch."""
    big = config_map(namespace, "big", x="y" * 1_000_000)
    async with aclosing(hub.watch(CONFIG_MAPS, namespace)) as events:
        made = await hub.apply(CONFIG_MAPS, big)
        async with asyncio.timeout(WAIT):
            arrived = await first_about(events, "big")

    assert big["data"] == made["data"] == arrived.object["data"]
    with pytest.raises(KubeError, match=r"(?i)too l|must have at most"):
        await hub.apply(CONFIG_MAPS, config_map(namespace, "huge", x="y" * 2_000_000))


async def first_about(events: AsyncGenerator[WatchEvent, None], name: str) -> WatchEvent:
    """The first event about an object."""
    async for event in events:
        if event.object["metadata"].get("name") == name:
            return event
    raise AssertionError(name)


WIDGETS = Resource("kube.example.dev", "v1", "Widget", "widgets")
GADGETS = Resource("late.example.dev", "v1", "Gadget", "gadgets")


def definition(resource: Resource) -> Object:
    """The CRD of a kind."""
    version: Object = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(resource)},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [version],
        },
    }


def custom(resource: Resource, namespace: str, name: str, **fields: str) -> Object:
    """An object of a kind."""
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "metadata": {"name": name, "namespace": namespace}, **fields}


@pytest.fixture
async def gadgets(hub: Client) -> AsyncGenerator[Resource, None]:
    """A kind that is so new that the server knows nothing about its past."""
    await hub.apply(CRDS, definition(GADGETS))
    async with asyncio.timeout(WAIT), aclosing(hub.watch(CRDS)) as events:
        async for event in events:
            conditions: list[Object] = event.object.get("status", {}).get("conditions") or []
            if event.object["metadata"].get("name") == str(GADGETS) and any(
                one["type"] == "Established" and one["status"] == "True" for one in conditions
            ):
                break
    async with following(hub, GADGETS) as it:
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)
    yield GADGETS
    await hub.delete(CRDS, Key("", str(GADGETS)))
    async with asyncio.timeout(WAIT), aclosing(hub.watch(CRDS)) as events:
        known = True
        async for event in events:
            if event.type == "DELETED" and event.object["metadata"]["name"] == str(GADGETS):
                break
            if event.object["metadata"].get("name") == str(GADGETS):
                known = False
            if event.ends_initial_events and known:
                break


async def test_a_new_kind_is_learned_and_followed(hub: Client, namespace: str) -> None:
    """Discovery finds it, and an informer that waited for it begins."""
    now = [0.0]
    hub.discovery.now = lambda: now[0]
    with pytest.raises(NotFound):
        await hub.discovery.resource("kube.example.dev/v1", "Widget")
    async with following(hub, WIDGETS) as it:
        await it.until(lambda: isinstance(it.informer.failing, NotFound))
        await hub.apply(CRDS, definition(WIDGETS))
        try:
            async with asyncio.timeout(WAIT):
                while True:
                    now[0] += 60
                    try:
                        found = await hub.discovery.resource("kube.example.dev/v1", "Widget")
                        break
                    except NotFound:
                        continue
            everything = {served.resource: served for served in await hub.discovery.resources()}
            await hub.apply(WIDGETS, custom(WIDGETS, namespace, "w"))
            await it.until(lambda: it.informer.get(Key(namespace, "w")))
        finally:
            await hub.delete(CRDS, Key("", str(WIDGETS)))

    assert found == WIDGETS
    assert {"create", "get", "list", "patch", "watch"} <= everything[WIDGETS].verbs
    assert {DEPLOYMENTS, PODS, NAMESPACES} <= everything.keys()
    assert not any("/" in resource.plural for resource in everything)


async def test_a_watch_resumes_where_it_was(hub: Client, namespace: str) -> None:
    """Initial events, a bookmark, changes; then from there on, nothing twice."""
    await hub.create(CONFIG_MAPS, config_map(namespace, "old"))
    async with asyncio.timeout(WAIT):
        async with aclosing(hub.watch(CONFIG_MAPS, namespace, fields=MINE)) as events:
            first = await anext(events)
            mark = await anext(events)
        await hub.create(CONFIG_MAPS, config_map(namespace, "new"))
        await hub.delete(CONFIG_MAPS, Key(namespace, "old"))
        since = mark.object["metadata"]["resourceVersion"]
        watch = hub.watch(CONFIG_MAPS, namespace, fields=MINE, since=since, timeout_seconds=1)
        rest = [event async for event in watch]

    assert (first.type, first.object["metadata"]["name"]) == ("ADDED", "old")
    assert mark.ends_initial_events
    changes = [event for event in rest if event.type != "BOOKMARK"]
    assert [(event.type, event.object["metadata"]["name"]) for event in changes] == [
        ("ADDED", "new"),
        ("DELETED", "old"),
    ]
    assert {"ConfigMap"} == {event.object["kind"] for event in rest}


async def test_a_version_that_is_too_old(hub: Client, gadgets: Resource) -> None:
    """The server does not know what happened since."""
    with pytest.raises(Expired) as raised:
        async with asyncio.timeout(WAIT), aclosing(hub.watch(gadgets, since="1")) as events:
            await anext(events)
    assert raised.value.code == 410


class Following(msgspec.Struct):
    """An informer that runs, and what it told."""

    informer: Informer
    changes: list[str]
    restarts: list[str]
    stirred: asyncio.Event

    async def until(self, true: Callable[[], object]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(WAIT):
            while not true():
                self.stirred.clear()
                await self.stirred.wait()


def label_values(manifest: Object) -> list[str]:
    """The values of all labels."""
    labels: dict[str, str] = manifest["metadata"].get("labels") or {}
    return list(labels.values())


@asynccontextmanager
async def following(
    hub: Client, resource: Resource, namespace: str = "", *, server: str = "", slim: bool = False
) -> AsyncGenerator[Following, None]:
    """An informer with a client of its own."""
    heard = Heard()
    endpoint = hub.transport.endpoint
    if server:
        endpoint = msgspec.structs.replace(endpoint, server=server)
    connection = Connection(hub.cluster, endpoint, hub.transport.login.source)
    async with Client(connection, ClientOptions(observe=heard)) as client:
        informer = Informer(
            client,
            resource,
            namespace,
            fields=MINE if resource == CONFIG_MAPS else "",
            metadata_only=slim,
            indexes={"app": label_values},
        )
        changes: list[str] = []

        def note(change: StoreChange) -> None:
            changes.append(f"{change.type} {change.key.name}")
            heard.stirred.set()

        informer.on_change(note)
        task = asyncio.create_task(informer.run())
        try:
            yield Following(informer, changes, heard.restarts, heard.stirred)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("forgotten", [False, True])
async def test_an_informer_notices_what_happened_while_the_wire_was_cut(
    hub: Client, namespace: str, gadgets: Resource, forgotten: bool
) -> None:
    """Deletions too, whether the server still knows the place or not."""
    for name in ("a", "b"):
        await hub.apply(gadgets, custom(gadgets, namespace, name))
    async with (
        Wire(hub.transport.endpoint.server) as wire,
        following(hub, gadgets, namespace, server=wire.url) as it,
    ):
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)
        wire.refusing = True
        await wire.cut()
        await it.until(lambda: it.informer.failing)
        await hub.delete(gadgets, Key(namespace, "a"))
        await hub.apply(gadgets, custom(gadgets, namespace, "b", x="1"))
        await hub.apply(gadgets, custom(gadgets, namespace, "c"))
        assert names(it.informer.items()) == ["a", "b"]
        if forgotten:
            it.informer.resource_version = "1"
        wire.refusing = False
        await it.until(lambda: names(it.informer.items()) == ["b", "c"])

        assert it.changes[:2] == ["added a", "added b"]
        assert {"deleted a", "updated b", "added c"} == set(it.changes[2:])
        assert it.informer.failing is None
        assert forgotten == ("Expired" in it.restarts)
        assert it.informer.items() == (await hub.list(gadgets, namespace)).items


async def test_an_informer_of_metadata_with_an_index(hub: Client, namespace: str) -> None:
    """It holds no data, and its index follows the labels."""
    manifest = config_map(namespace, x="1")
    manifest["metadata"]["labels"] = {"app": "one"}
    await hub.create(CONFIG_MAPS, manifest)
    async with following(hub, CONFIG_MAPS, namespace, slim=True) as it:
        await asyncio.wait_for(it.informer.synced.wait(), WAIT)
        [found] = it.informer.by_index("app", "one")
        assert "data" not in found

        key = Key(namespace, "a")
        await hub.patch(CONFIG_MAPS, key, {"metadata": {"labels": {"app": "two"}}})
        await it.until(lambda: it.informer.by_index("app", "two"))
        assert it.informer.by_index("app", "one") == []

        await hub.delete(CONFIG_MAPS, key)
        await it.until(lambda: not it.informer.items())
        assert it.informer.by_index("app", "two") == []


async def test_a_hundred_applies_at_once(hub: Client, namespace: str) -> None:
    """More than there are slots; all arrive, and an urgent call among them."""
    applies = [hub.apply(CONFIG_MAPS, config_map(namespace, f"c{number}")) for number in range(100)]
    *_, ready = await asyncio.gather(*applies, hub.urgent.raw("GET", "/readyz"))

    assert ready == b"ok"
    assert len((await hub.list(CONFIG_MAPS, namespace, fields=MINE)).items) == 100
