"""The dashboard over HTTP, on a fake hub: pages, streams, the way in, and what is refused."""

import asyncio
import re

import aiohttp
import msgspec
import pytest

from knfleet.api.core import EVENTS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.operator.kinds import PAUSED, TRIGGER
from knfleet.web.server.server import CONNECTIONS, PER_ADDRESS
from knfleet.web.server.sessions import STREAMS
from knfleet.web.server.settings import WebSettings
from testbed.fakes.sockets import free_port
from testbed.waiting import PATIENCE_SECONDS
from tests.support import dashboards
from tests.support.dashboards import Running
from tests.unit.web.conftest import FakeHub

PAGES = [
    "/",
    "/versions",
    "/addons",
    "/cluster/cluster-001",
    "/cr/knativeserving/knative-serving/cluster-001",
]
ONE = "/cr/knativeserving/knative-serving/cluster-001"


async def text(visitor: aiohttp.ClientSession, path: str, status: int = 200) -> str:
    """A page."""
    async with visitor.get(path, allow_redirects=False) as answer:
        assert answer.status == status
        return await answer.text()


async def events(answer: aiohttp.ClientResponse, count: int) -> list[tuple[str, Object]]:
    """The next events of a stream."""
    found: list[tuple[str, Object]] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found) < count:
            line = (await answer.content.readline()).decode()
            if line.startswith("event: "):
                data = (await answer.content.readline()).removeprefix(b"data: ")
                found.append((line.removeprefix("event: ").strip(), msgspec.json.decode(data)))
    return found


def stream_of(page: str, path: str) -> str:
    """The address of the stream that belongs to a loaded page."""
    rev = re.search(r'data-rev="(\w+)"', page)
    assert rev is not None
    return f"/live?at={path}&rev={rev[1]}"


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_tells_the_browser_to_load_nothing_else(running: Running, path: str):
    """A strict policy, no inline script or style, nothing from elsewhere, nothing kept."""
    async with running.visitor() as visitor, visitor.get(path) as answer:
        page = await answer.text()
        headers = answer.headers

    assert answer.status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert re.findall(r"<script(?! src=\"/static/)|<style|style=|\son\w+=", page) == []
    assert re.findall(r"(?:src|href|action)=\"(?!/|#)[^\"]*", page) == []


async def test_files_are_kept_by_browsers_only_by_their_content(running: Running):
    """Another version of a file has another address."""
    async with running.visitor() as visitor:
        page = await text(visitor, "/")
        (address,) = re.findall(r"/static/page\.js\?v=\w+", page)
        async with visitor.get(address) as answer:
            assert "immutable" in answer.headers["Cache-Control"]
        async with visitor.get("/static/page.js?v=old") as answer:
            assert answer.headers["Cache-Control"] == "no-cache"
        await text(visitor, "/static/..%2Fserver.py", 404)


async def test_without_the_key_nobody_comes_in(running: Running):
    """Others on the same machine see nothing; neither pages nor streams."""
    async with running.visitor(key=False) as visitor:
        for path in [*PAGES, "/live?at=/"]:
            assert "cluster-00" not in await text(visitor, path, 401)
        await text(visitor, "/enter?key=guess", 401)


async def test_a_name_that_is_not_ours_is_refused(running: Running):
    """A page elsewhere whose name leads here gets nothing, even with a cookie."""
    async with running.visitor() as visitor:
        headers = {"Host": "evil.example"}
        async with visitor.get("/", headers=headers) as answer:
            assert answer.status == 421
            assert "cluster-00" not in await answer.text()


async def test_the_cookie_is_for_this_server_and_no_script(running: Running):
    """HttpOnly, SameSite=Strict, and named by port, since ports share cookies."""
    address = f"/enter?key={running.dashboard.door.key}"
    async with running.visitor(key=False) as visitor, visitor.get(address) as answer:
        cookie = answer.headers["Set-Cookie"]

    assert cookie.startswith(f"knfleet-{running.dashboard.settings.port}=")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


async def test_a_change_reaches_an_open_page(running: Running, fake_hub: FakeHub):
    """Only the row that changed and the counts come, in the order that counts now."""
    async with running.visitor() as visitor:
        page = await text(visitor, "/")
        async with visitor.get(stream_of(page, "/")) as answer:
            name = "cluster-001"
            changed = dashboards.installation(SERVINGS, name, "knative-serving", at=name)
            changed["status"] = dashboards.lost("connection refused")
            fake_hub.put(SERVINGS, changed)
            ((kind, patch),) = await events(answer, 1)

    row = "i:KnativeServing/knative-serving/cluster-001"
    assert kind == "patch"
    assert "connection refused" in patch["blocks"][row]
    assert "1</b> failed" in patch["blocks"]["counts"]
    assert patch["lists"]["installs"][0] == row
    assert "Serving failed" in patch["blocks"]["t:cluster-001"]
    assert patch["lists"]["tiles"][0] == "t:cluster-001"
    assert not any("cluster-000" in each for each in patch["blocks"])


async def test_a_page_that_is_old_already_gets_all_of_it(running: Running):
    """What changed between loading and connecting is not lost."""
    async with running.visitor() as visitor, visitor.get("/live?at=/&rev=old") as answer:
        ((_, patch),) = await events(answer, 1)

    assert len(patch["lists"]["tiles"]) == 3
    assert "t:cluster-002" in patch["blocks"]


async def test_pages_that_show_the_same_share_one_drawing(running: Running, fake_hub: FakeHub):
    """However many are open, the fleet is put together and drawn once for a change."""
    async with running.visitor() as visitor:
        page = await text(visitor, "/")
        answers = [await visitor.get(stream_of(page, "/")) for _ in range(10)]
        before = running.feed.revision - running.feed.computed
        fake_hub.put(SERVINGS, dashboards.installation(SERVINGS, "new", "knative-serving"))
        patches = await asyncio.gather(*(events(each, 1) for each in answers))
        channels = len(running.dashboard.site.live.channels)
        for answer in answers:
            answer.close()

    assert channels == 1
    assert all(each == patches[0] for each in patches)
    assert running.feed.revision - running.feed.computed == before


async def test_one_session_opens_only_so_many_pages(running: Running):
    """Nobody takes all streams for themselves."""
    async with running.visitor() as visitor:
        (session,) = running.dashboard.sessions.sessions.values()
        session.streams = STREAMS

        assert "Too many pages" in await text(visitor, "/live?at=/", 503)


async def test_an_installation_that_is_deleted_is_told_as_gone(running: Running, fake_hub: FakeHub):
    """Its open page says so, and its address is not found any more."""
    async with running.visitor() as visitor:
        page = await text(visitor, ONE)
        async with visitor.get(stream_of(page, ONE)) as answer:
            fake_hub.cluster.delete(SERVINGS, Key("knative-serving", "cluster-001"))
            found = await events(answer, 1)
        assert found[0][0] == "gone"
        assert "no such thing" in await text(visitor, ONE, 404)


async def test_events_and_repairs_of_an_installation_are_shown_and_live(
    running: Running, fake_hub: FakeHub
):
    """Drift and repairs have a list of their own."""
    async with running.visitor() as visitor:
        page = await text(visitor, ONE)
        assert "Nothing had to be repaired lately" in page
        async with visitor.get(stream_of(page, ONE)) as answer:
            fake_hub.put(EVENTS, an_event("Repaired", "somebody scaled activator; it is repaired"))
            (_, patch), *_ = await events(answer, 1)
        again = await text(visitor, ONE)

    assert "somebody scaled activator" in patch["blocks"]["repairs"]
    assert "somebody scaled activator" in again


async def test_words_of_others_are_shown_as_words(running: Running, fake_hub: FakeHub):
    """A message that looks like HTML stays a message, on the page and in the stream."""
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    changed = dashboards.installation(SERVINGS, "cluster-001", "knative-serving")
    changed["status"] = dashboards.lost(evil)
    fake_hub.put(SERVINGS, changed)
    async with running.visitor() as visitor:
        for path in ("/", ONE, "/?q=<script>alert(3)"):
            page = await text(visitor, path)
            assert "<script>alert" not in page
            assert "<img" not in page
        async with visitor.get("/live?at=/&rev=old") as answer:
            ((_, patch),) = await events(answer, 1)

    row = patch["blocks"]["i:KnativeServing/knative-serving/cluster-001"]
    assert "&lt;script&gt;alert" in row


async def test_a_search_finds_by_all_words_without_a_script(running: Running):
    """It is a form, so it works by reloading."""
    async with running.visitor() as visitor:
        page = await text(visitor, "/?q=serving+cluster-002")

    assert "Found 1 clusters and 1 installations" in page
    assert "KnativeServing/knative-serving/cluster-002" in page
    assert "cluster-001" not in page


async def test_who_leaves_is_out(running: Running):
    """The cookie is of no use any more."""
    async with running.visitor() as visitor:
        csrf = csrf_of(await text(visitor, "/"))
        await post(visitor, "/logout", csrf, 303)

        await text(visitor, "/", 401)


def csrf_of(page: str) -> str:
    """The token that forms of a page bring."""
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]


async def post(
    visitor: aiohttp.ClientSession, path: str, csrf: str, status: int, **more: str
) -> str:
    """Send a form as a browser does that is on one of our pages."""
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}
    async with visitor.post(
        path, data={"csrf": csrf, **more}, headers=headers, allow_redirects=False
    ) as answer:
        assert answer.status == status
        return await answer.text()


async def test_without_actions_there_are_none(running: Running):
    """Neither forms nor something that answers to them."""
    async with running.visitor() as visitor:
        page = await text(visitor, ONE)
        assert "Upgrade" not in page
        await post(visitor, f"{ONE}/retry", csrf_of(page), 404)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_form_from_elsewhere_is_refused(
    acting: Running, fake_hub: FakeHub, headers: dict[str, str]
):
    """Even with the cookie and the right token."""
    async with acting.visitor() as visitor:
        csrf = csrf_of(await text(visitor, ONE))
        async with visitor.post(f"{ONE}/retry", data={"csrf": csrf}, headers=headers) as answer:
            assert answer.status == 403

    assert TRIGGER not in annotations(fake_hub)


async def test_a_form_without_the_sessions_token_is_refused(acting: Running, fake_hub: FakeHub):
    """The token of another session is none."""
    async with acting.visitor() as visitor, acting.visitor() as other:
        csrf = csrf_of(await text(other, ONE))
        await post(visitor, f"{ONE}/retry", csrf, 403)
        await post(visitor, f"{ONE}/retry", "", 403)

    assert TRIGGER not in annotations(fake_hub)


async def test_a_form_in_an_unknown_encoding_is_the_fault_of_its_sender(acting: Running):
    sent = "multipart/form-data; boundary=b"
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": "null", "Content-Type": sent}
    field = "Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: b"
    body = f"--b\r\n{field}\r\n\r\nx\r\n--b--\r\n"
    async with (
        acting.visitor() as visitor,
        visitor.post(f"{ONE}/retry", data=body, headers=headers) as answer,
    ):
        assert answer.status == 400


async def test_actions_are_done_and_noted(acting: Running, fake_hub: FakeHub):
    """Retry, pause, resume and upgrade; each leaves an Event that names the user."""
    async with acting.visitor() as visitor:
        csrf = csrf_of(await text(visitor, ONE))
        await post(visitor, f"{ONE}/retry", csrf, 303)
        assert annotations(fake_hub)[TRIGGER]
        await post(visitor, f"{ONE}/pause", csrf, 303)
        assert annotations(fake_hub)[PAUSED] == "true"
        await post(visitor, f"{ONE}/resume", csrf, 303)
        assert PAUSED not in annotations(fake_hub)
        await seen(acting, fake_hub)
        await post(visitor, f"{ONE}/upgrade", csrf, 303, version="1.23.0")
        assert "asked for an upgrade from 1.22.1 to 1.23.0" in await text(visitor, ONE)

    assert one(fake_hub)["spec"]["version"] == "1.23.0"
    noted = [each["message"] for each in fake_hub.cluster.objects[EVENTS].values()]
    assert len(noted) == 4
    assert all("user asked for" in each for each in noted)


@pytest.mark.parametrize("version", ["", "1.21.2", "1.22.1", "9.9.9"])
async def test_an_upgrade_to_what_is_no_next_step_is_refused(
    acting: Running, fake_hub: FakeHub, version: str
):
    """Nothing is written, and a sentence says what would be."""
    async with acting.visitor() as visitor:
        csrf = csrf_of(await text(visitor, ONE))
        await post(visitor, f"{ONE}/upgrade", csrf, 303, version=version)
        assert "is not a next step from 1.22.1: 1.23.0" in await text(visitor, ONE)

    assert one(fake_hub)["spec"]["version"] == "1.22.1"


async def test_what_cannot_be_noted_is_not_done(acting: Running, fake_hub: FakeHub):
    """Without Events there are no actions."""
    del fake_hub.cluster.resources[EVENTS.group, EVENTS.version, EVENTS.plural]
    async with acting.visitor() as visitor:
        csrf = csrf_of(await text(visitor, ONE))
        await post(visitor, f"{ONE}/pause", csrf, 303)
        assert "Nothing was done, since it cannot be noted" in await text(visitor, ONE)

    assert PAUSED not in annotations(fake_hub)


async def test_a_hub_without_the_kinds_is_told(fake_hub: FakeHub):
    """What is missing is named, and what is there is shown."""
    del fake_hub.cluster.resources[SERVINGS.group, SERVINGS.version, SERVINGS.plural]
    async with dashboards.running(fake_hub.connection) as running, running.visitor() as visitor:
        page = await text(visitor, "/")

    assert "does not serve knativeservings.operator.knative.dev" in page
    assert "knative-eventing/cluster-001" in page


async def seen(running: Running, fake_hub: FakeHub) -> None:
    """Wait until the dashboard has what the hub has."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while running.feed.find(SERVINGS, Key("knative-serving", "cluster-001")) != one(fake_hub):
            await running.feed.after(running.feed.revision)


def one(fake_hub: FakeHub) -> Object:
    """The installation that tests act on."""
    return fake_hub.cluster.objects[SERVINGS][Key("knative-serving", "cluster-001")]


def annotations(fake_hub: FakeHub) -> dict[str, str]:
    """Its annotations."""
    return one(fake_hub)["metadata"].get("annotations") or {}


def an_event(reason: str, message: str) -> Object:
    """An Event about some installation."""
    return {
        "metadata": {"name": reason.lower(), "namespace": "knative-serving"},
        "type": "Normal",
        "reason": reason,
        "message": message,
        "lastTimestamp": dashboards.MOMENT,
    }


@pytest.mark.parametrize(("plain", "each"), [(False, PER_ADDRESS), (True, CONNECTIONS)])
async def test_one_address_takes_a_part_of_the_connections(
    fake_hub: FakeHub, plain: bool, each: int
):
    """All of them behind a proxy, which has every visitor's."""
    settings = WebSettings(port=free_port(), login=True, plain=plain)
    async with dashboards.running(fake_hub.connection, settings) as running:
        limits = running.dashboard.limits()

    assert (limits.connections, limits.per_address) == (CONNECTIONS, each)
    assert limits.header_seconds < 60
