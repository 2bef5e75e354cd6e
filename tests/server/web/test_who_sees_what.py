"""Who sees and does what follows the RBAC of a real hub."""

import asyncio
import re
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.core import EVENTS, SERVICE_ACCOUNTS
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.web.server.main import informers
from knfleet.web.server.sessions import WebSession
from knfleet.web.server.settings import WebSettings
from testbed.clusters import Pool
from testbed.fakes.sockets import free_port
from testbed.hubs import with_token
from testbed.waiting import PATIENCE_SECONDS, until
from tests.support import dashboards
from tests.support.dashboards import RealHub, Running
from tests.support.hub_works import config_map, work

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("web")]
GROUP = "operator.knative.dev"
ONE = Key("knative-serving", "cluster-001")
CR = f"/cr/knativeserving/{ONE.namespace}/{ONE.name}"
OTHER = "/cr/knativeeventing/knative-eventing/cluster-001"
BROWSER = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}


def rule(resources: str, *verbs: str, group: str = GROUP) -> Object:
    """One rule of a role."""
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(pool: Pool) -> AsyncIterator[RealHub]:
    """A real hub with two clusters."""
    (lent,) = await pool.lend(1)
    async with Client(lent.connection) as client:
        hub = RealHub(client, lent.connection)
        await hub.prepare(2)
        yield hub


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(hub: RealHub) -> AsyncIterator[Running]:
    """A dashboard with logins and actions."""
    settings = WebSettings(port=free_port(), login=True, actions=True)
    async with dashboards.running(hub.connection, settings) as running:
        yield running


async def login(visitor: aiohttp.ClientSession, token: str) -> tuple[int, str]:
    """Log in as a browser does; status and page."""
    async with visitor.post("/login", data={"token": token}, headers=BROWSER) as answer:
        return answer.status, await answer.text()


async def text(visitor: aiohttp.ClientSession, path: str, status: int = 200) -> str:
    """A page."""
    async with visitor.get(path) as answer:
        assert answer.status == status
        return await answer.text()


async def is_watched(running: Running, kind: Resource, key: Key) -> None:
    """Wait until the dashboard's watch has shown an object, with its status if it gets one.

    The API server refuses lists of a kind that was just defined ("storage is (re)initializing").
    """

    def is_seen() -> bool:
        found = running.feed.find(kind, key)
        return found is not None and (kind == WORKS or "status" in found)

    await until(is_seen, f"the dashboard has seen {kind} {key}")


async def act(visitor: aiohttp.ClientSession, action: str, **more: str) -> str:
    """Do something as a browser does; the page that tells what became of it."""
    found = re.search(r'name="csrf" value="([^"]+)"', await text(visitor, CR))
    assert found is not None
    form = {"csrf": found[1], **more}
    async with visitor.post(f"{CR}/{action}", data=form, headers=BROWSER) as answer:
        assert answer.status == 200
        return await answer.text()


async def test_without_a_login_there_is_only_the_question(running: Running):
    """Every page leads to it, and nothing of the fleet is told."""
    async with running.visitor(key=False) as visitor:
        for path in ("/", "/versions", CR, f"{CR}/objects"):
            page = await text(visitor, path)
            assert "Log in" in page
            assert "cluster-00" not in page
        await text(visitor, "/live?at=/", 401)
        await text(visitor, f"/enter?key={running.dashboard.door.key}", 404)


@pytest.mark.parametrize("token", ["", "no token", "abc", "ey.made.up"])
async def test_a_token_that_the_hub_does_not_know_is_refused(running: Running, token: str):
    """With a sentence, and without a session."""
    async with running.visitor(key=False) as visitor:
        status, page = await login(visitor, token)

        assert status == 401
        assert "token" in page
        assert running.dashboard.sessions.sessions == {}


async def test_a_login_from_another_site_is_refused(running: Running, hub: RealHub):
    """Nobody is logged in as somebody else without noticing."""
    token = await hub.account("ada", rule("*", "list"))
    headers = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    async with running.visitor(key=False) as visitor:
        async with visitor.post("/login", data={"token": token}, headers=headers) as answer:
            assert answer.status == 403
        assert "Log in" in await text(visitor, "/")


async def test_somebody_sees_the_namespaces_in_which_they_may_list(running: Running, hub: RealHub):
    """All else is not there for them: neither in lists, nor by address, nor in streams."""
    token = await hub.account("bob", rule("knativeservings", "list"), inside="knative-serving")
    async with running.visitor(key=False) as visitor:
        status, page = await login(visitor, token)
        assert status == 200
        assert "system:serviceaccount:default:bob" in page
        assert "knative-serving/cluster-001" in page
        assert "knative-eventing/cluster-001" not in page
        assert "shown are those in knative-serving." in page
        assert "You may not list managedclusters" in page
        assert token not in page
        await text(visitor, CR)
        await text(visitor, OTHER, 404)
        await text(visitor, f"{OTHER}/objects", 404)
        await text(visitor, f"/live?at={OTHER}", 404)
        async with visitor.get("/live?at=/&rev=old") as answer:
            await answer.content.readuntil(b"\n\n")
            await hub.say(EVENTINGS, Key("knative-eventing", "cluster-001"), dashboards.lost("x"))
            await hub.say(SERVINGS, ONE, dashboards.waiting(1, 2))
            sent = await answer.content.readuntil(b"\n\n")
    assert b"KnativeServing" in sent
    assert b"KnativeEventing" not in sent


def session_of(running: Running, name: str) -> WebSession:
    """The session of an account."""
    sessions = running.dashboard.sessions.sessions.values()
    (found,) = [each for each in sessions if each.user.endswith(f":{name}")]
    return found


async def test_a_viewer_is_shown_nothing_by_the_rights_of_another(running: Running, hub: RealHub):
    """Two who saw the same share a drawing; one who gets more rights has another from then on."""
    few = rule("knativeservings", "list")
    tokens = [await hub.account(name, few, inside="knative-serving") for name in ("jim", "kim")]
    async with running.visitor(key=False) as jim, running.visitor(key=False) as kim:
        for visitor, token in zip((jim, kim), tokens, strict=True):
            await login(visitor, token)
        async with jim.get("/live?at=/&rev=old") as first, kim.get("/live?at=/&rev=old") as second:
            for answer in (first, second):
                await answer.content.readuntil(b"\n\n")
            await hub.account("jim", rule("knativeeventings", "list"))
            session_of(running, "jim").seen_at = float("-inf")

            async def sees_more() -> bool:
                return "knative-eventing/cluster-001" in await text(jim, "/")

            await until(sees_more, "jim sees more")
            eventing = Key("knative-eventing", "cluster-001")
            await hub.say(EVENTINGS, eventing, dashboards.lost("not for kim"))
            await hub.say(SERVINGS, ONE, dashboards.lost("for both"))
            sent = b""
            while b"for both" not in sent:
                sent += await asyncio.wait_for(second.content.readuntil(b"\n\n"), PATIENCE_SECONDS)

    assert b"not for kim" not in sent
    assert b"knative-eventing/cluster" not in sent


LISTS = rule("knativeservings", "list")
SEES_OBJECTS = rule("knativeservings/objects", "get")


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("/", [LISTS], [rule("knativeeventings", "list")]),
        (CR, [LISTS], [rule("knativeeventings", "list")]),
        (CR, [LISTS, SEES_OBJECTS], [LISTS]),
    ],
)
async def test_rights_that_are_taken_away_end_streams_of_a_busy_dashboard(
    hub: RealHub, path: str, before: list[Object], after: list[Object]
):
    """All of a session's, however much is sent on them; the page is loaded again by the browser."""
    settings = WebSettings(port=free_port(), login=True, rights_seconds=0.2)
    token = await hub.account("leo", *before)
    async with (
        dashboards.running(hub.connection, settings) as busy,
        busy.visitor(key=False) as visitor,
    ):
        await login(visitor, token)
        address = f"/live?at={path}&rev=old"
        async with visitor.get(address) as first, visitor.get(address) as second:
            await hub.account("leo", *after)
            sent = [b"", b""]
            for number in range(200):
                await hub.say(SERVINGS, ONE, dashboards.lost(f"busy {number}"))
                for index, answer in enumerate((first, second)):
                    if b"event: ended" not in sent[index] and not answer.content.at_eof():
                        sent[index] += await next_event(answer)
                if all(b"event: ended" in each for each in sent):
                    break

    assert all(each.endswith(b"event: ended\ndata: {}\n\n") for each in sent)


async def next_event(answer: aiohttp.ClientResponse) -> bytes:
    """What a stream sends next."""
    return await asyncio.wait_for(answer.content.readuntil(b"\n\n"), PATIENCE_SECONDS)


async def test_events_are_read_with_the_viewers_rights(running: Running, hub: RealHub):
    """Who may not list them is told so."""
    token = await hub.account("carol", rule("*", "list"))
    async with running.visitor(key=False) as visitor:
        await login(visitor, token)

        assert "You may not list events in knative-serving" in await text(visitor, CR)


async def test_what_is_on_a_target_takes_a_right_of_its_own(running: Running, hub: RealHub):
    """The virtual subresource `objects`; without it a sentence says so."""
    await hub.say(SERVINGS, ONE, dashboards.waiting(1, 2))
    without = await hub.account("dan", rule("knativeservings", "list", "get"))
    with_it = await hub.account("eve", rule("knativeservings knativeservings/objects", "*"))
    async with running.visitor(key=False) as visitor:
        await login(visitor, without)
        told = "To see what is on the target takes the right to get knativeservings"
        assert told in await text(visitor, f"{CR}/objects")
        assert told in await text(visitor, CR)
    async with running.visitor(key=False) as visitor:
        await login(visitor, with_it)
        assert told not in await text(visitor, f"{CR}/objects")


async def test_actions_are_done_with_the_users_own_rights_and_noted(running: Running, hub: RealHub):
    """Who may not patch is told so; both wishes are Events that name who had them."""
    await hub.say(SERVINGS, ONE, dashboards.ready("1.22.1"))
    looker = await hub.account("fay", rule("knativeservings", "list"))
    doer = await hub.account("gus", rule("knativeservings", "list", "patch"))
    async with running.visitor(key=False) as visitor:
        await login(visitor, looker)
        assert "You may not patch" in await act(visitor, "upgrade", version="1.23.0")
    assert (await hub.client.get(SERVINGS, ONE.name, ONE.namespace))["spec"]["version"] == "1.22.1"
    async with running.visitor(key=False) as visitor:
        await login(visitor, doer)
        assert "Done" in await act(visitor, "upgrade", version="1.23.0")
    assert (await hub.client.get(SERVINGS, ONE.name, ONE.namespace))["spec"]["version"] == "1.23.0"

    found = (await hub.client.list(EVENTS, ONE.namespace, fields="source=knfleet-web")).items
    noted = [f"{each['type']}: {each['message']}" for each in found]
    assert any(each.startswith("Warning: system:serviceaccount:default:fay") for each in noted)
    assert (
        "Normal: system:serviceaccount:default:gus asked for an upgrade from 1.22.1 to 1.23.0"
        " in the dashboard" in noted
    )


async def test_a_session_ends_with_its_token(running: Running, hub: RealHub):
    """Once the hub does not know it any more; the page asks for another."""
    token = await hub.account("hal", rule("*", "list"))
    async with running.visitor(key=False) as visitor:
        await login(visitor, token)
        await hub.client.delete(SERVICE_ACCOUNTS, Key("default", "hal"))
        (session,) = [
            each for each in running.dashboard.sessions.sessions.values() if "hal" in each.user
        ]

        async def is_out() -> bool:
            session.seen_at = float("-inf")
            async with visitor.get("/") as answer:
                return "Log in" in await answer.text()

        await until(is_out, "the session is over")
    assert not running.dashboard.sessions.is_open(session)


async def test_a_kubeconfig_with_few_rights_shows_what_it_may(hub: RealHub):
    """Watches are opened where they are allowed; the rest is told in sentences."""
    verbs = ("list", "watch")
    token = await hub.account("ivy", rule("knativeservings", *verbs), inside="knative-serving")
    connection = with_token(hub.connection, token)
    async with Client(connection) as client:
        found = await informers(client, ("knative-serving", "default"))
    places = {each.resource: each.selection.namespace for each in found}
    assert places[SERVINGS] == "knative-serving"
    assert places[EVENTINGS] == ""

    namespaces = ("knative-serving",)
    async with (
        dashboards.running(connection, namespaces=namespaces) as running,
        running.visitor() as visitor,
    ):
        page = await text(visitor, "/")
        door = running.dashboard.door
        await until(lambda: "system:serviceaccount:default:ivy" in door.owner, "ivy is known")

    assert "knative-serving/cluster-001" in page
    assert "The dashboard may not list knativeeventings" in page


async def test_add_ons_are_shown_by_cluster_to_those_who_may_list_them(
    running: Running, hub: RealHub
):
    """The state of each and what a rollout waits for; others read why there are none."""
    await hub.install_addon("hello", "cluster-000", "cluster-001")
    await is_watched(running, CLUSTER_ADDONS, Key("", "hello"))
    for cluster in ("cluster-000", "cluster-001"):
        await is_watched(running, ADDONS, Key(cluster, "hello"))
    addons, fleet = (
        rule(each, "list", group="*")
        for each in ("managedclusteraddons", "clustermanagementaddons")
    )
    tokens = {
        "all": await hub.account("addons-all", addons, fleet),
        "none": await hub.account("addons-none"),
        "own": await hub.account("addons-own", fleet),
    }
    await hub.account("addons-own", addons, inside="cluster-000")
    shown: dict[str, list[bool]] = {}
    for name, token in tokens.items():
        async with running.visitor(key=False) as visitor:
            assert (await login(visitor, token))[0] == 200
            page = await text(visitor, "/addons")
            shown[name] = [f'id="a:cluster-00{number}"' in page for number in (0, 1)]
            assert ("waits for canaries" in page) is (name != "none")
            assert ("ProbeUnavailable" in page) is (name == "all")
            assert ("You may not list managedclusteraddons" in page) is (name != "all")

    assert shown == {"all": [True, True], "own": [True, False], "none": [False, False]}


async def test_works_are_shown_to_those_who_may_list_them(running: Running, hub: RealHub):
    """Of a cluster's namespace, or of all; others read why there are none."""
    one = await hub.send("cluster-000", work("web", config_map("seen")))
    other = await hub.send("cluster-001", work("web", config_map("seen")))
    for each in (one, other):
        await is_watched(running, WORKS, each)
    clusters, works = (
        rule(each, "list", group="*") for each in ("managedclusters", "manifestworks")
    )
    tokens = {
        "all": await hub.account("works-all", clusters, works),
        "none": await hub.account("works-none", clusters),
        "own": await hub.account("works-own", clusters),
    }
    await hub.account("works-own", works, inside="cluster-000")
    shown: dict[str, list[bool]] = {}
    for name, token in tokens.items():
        async with running.visitor(key=False) as visitor:
            assert (await login(visitor, token))[0] == 200
            pages = [await text(visitor, f"/cluster/{key.namespace}") for key in (one, other)]
            shown[name] = ["/work/" in page for page in pages]
            for key, is_shown in zip((one, other), shown[name], strict=True):
                page = await text(visitor, f"/work/{key}", 200 if is_shown else 404)
                assert ("ConfigMap default/seen" in page) is is_shown
            assert ("You may not list manifestworks" in pages[1]) is not shown[name][1]
            # The overview is not about works, and complains of none.
            assert "manifestworks" not in await text(visitor, "/")

    assert shown == {"all": [True, True], "own": [True, False], "none": [False, False]}
