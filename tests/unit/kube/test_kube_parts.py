"""The parts of the client that need no network."""

import asyncio
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key, Object
from knfleet.kube.auth.credentials import Credential
from knfleet.kube.auth.tls import tls_context
from knfleet.kube.cache.store import Store
from knfleet.kube.cache.watch import LineBuffer, LineTooLong
from knfleet.kube.client.proxy import proxy_for
from knfleet.kube.client.responses import HttpResponse, as_page, excerpt
from knfleet.kube.client.retry import backoff, retry_after
from knfleet.kube.client.slots import ClientSlots
from knfleet.kube.endpoint import Endpoint
from testbed.fakes.certificates import Authority
from testbed.waiting import PATIENCE_SECONDS


@given(st.lists(st.binary(max_size=20)), st.data())
def test_lines_do_not_depend_on_how_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    """A line comes out whole, however many chunks it came in; empty ones do not count."""
    lines = [line.replace(b"\n", b"") for line in lines]
    text = b"".join(line + b"\n" for line in lines) + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    splitter = LineBuffer(1000)

    found = [
        line
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)
        for line in splitter.feed(text[start:end])
    ]

    assert [line for line in lines if line] == found
    assert splitter.rest == b"rest"


def test_a_line_may_not_grow_for_ever() -> None:
    """Even when its end never comes."""
    splitter = LineBuffer(100)
    splitter.feed(b"x" * 100)

    with pytest.raises(LineTooLong):
        splitter.feed(b"x")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7),
        ("0", 0),
        ("-1", None),
        ("soon", None),
        ("Sun, 15 Nov 2026 12:00:30 GMT", 30),
        ("Sun, 15 Nov 2026 11:00:00 GMT", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    """Anything else is not there."""
    assert seconds == retry_after(value, datetime(2026, 11, 15, 12, tzinfo=UTC))


@given(st.integers(1, 10_000))
def test_backoff_grows_up_to_its_limit(failures: int) -> None:
    """It is never nothing, so that a broken server is never asked in a tight loop."""
    wait = backoff(failures, base=0.1, limit=5)

    assert 0 < wait <= min(5, 0.1 * 2 ** min(failures - 1, 32))


@pytest.mark.parametrize(
    ("server", "exceptions", "proxied"),
    [
        ("https://api.example:6443", "", True),
        ("https://api.example:6443", "api.example", False),
        ("https://api.example:6443", "other,.example", False),
        ("https://api.example:6443", "ample", True),
        ("https://api.example:6443", "*", False),
        ("https://10.1.2.3", "10.0.0.0/8", False),
        ("https://10.1.2.3", "10.1.2.3", False),
        ("https://11.1.2.3", "10.0.0.0/8,x", True),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://api.example", "", False),
    ],
)
def test_the_environment_names_a_proxy(server: str, exceptions: str, proxied: bool) -> None:
    """As it does for kubectl, and never for this machine itself."""
    environment = {"HTTPS_PROXY": "http://u:p@proxy:3128", "NO_PROXY": exceptions}

    proxy = proxy_for(Endpoint(server), environment)

    assert ("proxy:3128" if proxied else "None") == str(proxy)
    assert "u:p" not in str(proxy and proxy.url)


def test_an_endpoints_own_proxy_wins() -> None:
    """Whatever the environment says."""
    endpoint = Endpoint("https://127.0.0.1", proxy_url="http://mine:1")

    assert str(proxy_for(endpoint, {"HTTPS_PROXY": "http://other", "NO_PROXY": "*"})) == "mine:1"


async def test_clients_that_trust_the_same_share_a_context() -> None:
    """A context is large; one with another certificate is another one."""
    authority = Authority()
    pair = authority.client("me")
    here, there = Endpoint("https://a", ca=authority.pem), Endpoint("https://b", ca=authority.pem)
    mine = Credential(client_certificate=pair.certificate, client_key=pair.key)
    insecure = Endpoint("https://a", ca=authority.pem, insecure=True)
    shared = await tls_context(here, Credential(token="x"))

    assert shared is await tls_context(there, Credential(token="y"))
    assert shared is not await tls_context(here, mine)
    assert shared is not await tls_context(insecure, Credential())


async def test_slots_are_given_in_order_of_arrival() -> None:
    """Nobody overtakes, except the urgent, for whom one is kept."""
    slots = ClientSlots(3, 1)
    order: list[str] = []

    async def work(name: str, *, urgent: bool = False) -> None:
        async with slots.slot(urgent=urgent):
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        await slots.acquire()
        await slots.acquire()
        for name in "abc":
            tasks.create_task(work(name))
        tasks.create_task(work("urgent", urgent=True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == ["urgent"]
        slots.release()
        slots.release()

    assert order == ["urgent", "a", "b", "c"]
    assert slots.free == 3


@given(st.lists(st.sampled_from(["take", "urgent", "give", "cancel", "step"]), max_size=60))
def test_slots_are_never_lost(steps: list[str]) -> None:
    """Whoever gives up waiting, and whenever."""

    async def play() -> None:
        slots = ClientSlots(2, 1)
        waiting: list[asyncio.Task[None]] = []
        for step in steps:
            if step in {"take", "urgent"}:
                task = asyncio.create_task(slots.acquire(urgent=step == "urgent"))
                waiting.append(task)
            elif step == "cancel" and waiting:
                waiting[len(waiting) // 2].cancel()
            elif step == "give" and (done := [task for task in waiting if held(task)]):
                waiting.remove(done[0])
                slots.release()
            else:
                await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while waiting:
                await asyncio.sleep(0)
                for task in [task for task in waiting if task.done()]:
                    waiting.remove(task)
                    if held(task):
                        slots.release()
        assert slots.free == 2

    asyncio.run(play())


def held(task: asyncio.Task[None]) -> bool:
    """Whether a task got its slot."""
    return task.done() and not task.cancelled()


def labelled(name: str, version: int, *labels: str) -> Object:
    """An object with some labels."""
    meta = {"name": name, "resourceVersion": str(version), "labels": dict.fromkeys(labels, "")}
    return {"metadata": meta}


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.sets(st.sampled_from("xyz"))))
    )
)
def test_indexes_are_what_a_search_would_find(
    steps: list[tuple[str, set[str] | None]],
) -> None:
    """After any order of changes and deletions, even if an object was changed in place."""
    store = Store({"label": lambda manifest: list(manifest["metadata"]["labels"])})
    model: dict[Key, set[str]] = {}
    for version, (name, labels) in enumerate(steps):
        key = Key("", name)
        if labels is None:
            change = store.remove(key)
            assert (model.pop(key, None) is None) == (change is None)
        else:
            assert store.put(key, labelled(name, version, *labels)) is not None
            model[key] = labels
            store.objects[key]["metadata"]["spoiled"] = True

    for label in "xyz":
        wanted = {key.name for key, labels in model.items() if label in labels}
        assert wanted == {one["metadata"]["name"] for one in store.by_index("label", label)}
    assert not any(keys for values in store.keys.values() for keys in values.values()) or model


def test_a_change_leaves_an_object_in_its_place() -> None:
    """What names the objects of an index says the same after each change of one of them."""
    store = Store({"label": lambda manifest: list(manifest["metadata"]["labels"])})
    for name in ("a", "b", "c"):
        store.put(Key("", name), labelled(name, 1, "x"))

    store.put(Key("", "a"), labelled("a", 2, "x"))

    assert [one["metadata"]["name"] for one in store.by_index("label", "x")] == ["a", "b", "c"]


def test_an_index_that_fails_finds_nothing() -> None:
    """The object is there all the same, and the other indexes work."""
    store = Store({"bad": lambda one: [one["no"]], "good": lambda one: [one["metadata"]["name"]]})

    assert store.put(Key("", "a"), labelled("a", 1)) is not None
    assert store.by_index("bad", "x") == []
    assert len(store.by_index("good", "a")) == 1


def test_the_same_version_is_no_change() -> None:
    """A list after a gap tells only what is new."""
    store = Store({})
    store.put(Key("", "a"), labelled("a", 1))

    assert store.put(Key("", "a"), labelled("a", 1)) is None


async def test_others_run_while_a_large_page_is_decoded() -> None:
    """Decoding gives way often enough."""
    item = (
        b'{"metadata":{"name":"x"},"data":{' + b",".join(b'"%d":"y"' % i for i in range(90)) + b"}}"
    )
    body = b'{"metadata":{},"items":[' + b",".join([item] * 2000) + b"]}"
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    page = await as_page(HttpResponse(200, body), "here", CONFIG_MAPS)
    task.cancel()

    assert len(page.items) == 2000
    assert page.items[0]["kind"] == "ConfigMap"
    assert turns >= len(body) // (300 * 1024)


def test_an_excerpt_is_short_and_printable() -> None:
    """Whatever the server sent."""
    text = excerpt(b"\x00\x1b[31m" + b"a\n" * 5000 + b"\xff")

    assert len(text) <= 201
    assert text.isprintable()
