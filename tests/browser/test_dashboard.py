"""The dashboard in a real browser, on a real API server; the test is the operator."""

from pathlib import Path

import axe_core_python
import pytest
from playwright.async_api import Page, expect

from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key
from knfleet.api.work.manifestwork import WORKS
from tests.browser.conftest import NARROW, WIDE, Open, picture
from tests.support import dashboards
from tests.support.dashboards import RealHub, Running
from tests.support.hub_works import config_map, reported, work

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("browser")]
"""All tests look at one hub, one after the other."""
AXE = Path(axe_core_python.__file__).parent / "axe.min.js"
ONE = Key("knative-serving", "cluster-001")
CR = f"/cr/knativeserving/{ONE.namespace}/{ONE.name}"
OWN = "/cr/knativeserving/knative-serving/own"
PATHS = {
    "fleet": "/",
    "versions": "/versions",
    "addons": "/addons",
    "cluster": "/cluster/cluster-001",
    "install": CR,
    "work": "/work/cluster-003/shown",
    "objects": f"{OWN}/objects?object=ConfigMap/knative-serving/config-network",
}


async def enter(page: Page, running: Running) -> None:
    """Come in by the address that was printed."""
    await page.goto(running.dashboard.url)
    await page.wait_for_url(f"{running.base}/")
    await expect(page.locator("#live")).to_have_text("live")


async def test_from_the_fleet_to_an_installation_to_its_objects(
    running: Running, real_hub: RealHub, open_page: Open
):
    """By clicks: overview, chain, objects, and the difference of one of them to desired."""
    await real_hub.say(SERVINGS, Key("knative-serving", "own"), dashboards.waiting(2, 5))
    async with open_page() as page:
        await enter(page, running)
        await expect(page.locator("#counts")).to_contain_text("4 clusters")
        await expect(page.locator("#tiles > li")).to_have_count(4)
        await page.get_by_role("link", name="knative-serving/own").click()
        await expect(page.locator("#chain .chain > li")).to_have_count(4)
        await expect(page.locator("#chain .open h3")).to_contain_text("readiness")
        await expect(page.locator("#head")).to_contain_text("2 of 5 workloads ready")
        await picture(page, "install-waiting")
        await page.get_by_role("link", name="Objects and differences").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Objects of own")
        await expect(page.locator(".counts")).to_contain_text("missing")
        await picture(page, "objects")
        await page.get_by_role("link", name="ConfigMap config-network").click()
        await expect(page.locator("#diff")).to_contain_text("+ 1.23.0")
        await picture(page, "objects-difference")
    await real_hub.say(SERVINGS, Key("knative-serving", "own"), dashboards.ready("1.23.0"))


async def test_works_of_a_cluster_are_followed_manifest_by_manifest(
    running: Running, real_hub: RealHub, open_page: Open
):
    """What an agent reports is on the screen at once, on the cluster's page and on the work's."""
    made = work("web", config_map("good"), config_map("bad"))
    async with open_page() as page:
        await enter(page, running)
        await page.goto(f"{running.base}/cluster/cluster-002")
        await expect(page.locator("#live")).to_have_text("live")
        await expect(page.locator("#work-notes")).to_contain_text("There are no works")
        await page.evaluate("window.same = true")
        key = await real_hub.send("cluster-002", made)
        row = page.locator(f'[id="w:{key}"]')
        await expect(row).to_contain_text("the agent has not reported yet")
        await real_hub.say(WORKS, key, reported(made, {"bad": "namespace is terminating"}))
        await expect(row).to_contain_text("AppliedManifestWorkFailed")
        await expect(row.locator("li")).to_contain_text("ConfigMap default/bad")
        await picture(page, "cluster-works")
        await row.get_by_role("link", name="web").click()
        await page.wait_for_url(f"**/work/{key}")
        first = page.locator("#manifests > tr").first
        await expect(first).to_contain_text("namespace is terminating")
        await expect(page.locator("#manifests > tr")).to_have_count(2)
        await expect(page.locator("#live")).to_have_text("live")
        await picture(page, "work-failing")
        await real_hub.say(WORKS, key, reported(made, ReadyReplicas=3))
        await expect(page.locator("#manifests")).to_contain_text("ReadyReplicas: 3")
        await expect(page.locator("#manifests")).not_to_contain_text("terminating")
        await expect(page.locator("#head")).to_contain_text("ResourcesAvailable")
        await picture(page, "work")


async def test_add_ons_are_shown_as_they_change(
    running: Running, real_hub: RealHub, open_page: Open
):
    """The state of a cell and the progress of a rollout follow without reloading."""
    async with open_page() as page:
        await enter(page, running)
        await page.get_by_role("link", name="Add-ons").click()
        await expect(page.locator("#addon-names")).to_contain_text("hello")
        await expect(page.locator("#rollouts")).to_contain_text("waits for canaries")
        broken = page.locator("#matrix > tr").first
        await expect(broken).to_contain_text("cluster-002")
        await expect(broken).to_contain_text("ProbeUnavailable")
        await expect(page.locator("#live")).to_have_text("live")
        await picture(page, "addons")

        said = dashboards.condition("Available", "True", "ProbeAvailable", "it runs")
        await real_hub.say(ADDONS, Key("cluster-002", "hello"), {"conditions": [said]})
        done = dashboards.condition("Progressing", "False", "Completed", "2/2 completed")
        progression = {"namespace": "default", "name": "all", "conditions": [done]}
        status = {"installProgressions": [progression]}
        await real_hub.say(CLUSTER_ADDONS, Key("", "hello"), status)
        await expect(page.locator("#matrix")).not_to_contain_text("ProbeUnavailable")
        await expect(page.locator("#rollouts")).to_contain_text("2/2 completed")


async def test_an_upgrade_is_a_click(running: Running, real_hub: RealHub, open_page: Open):
    """The browser's own headers pass, the version is asked for, and the Event is on the page."""
    key = Key("knative-serving", "cluster-003")
    async with open_page() as page:
        await enter(page, running)
        await page.goto(f"{running.base}/cr/knativeserving/{key}")
        await page.get_by_label("Upgrade to").select_option("1.23.0")
        await page.get_by_role("button", name="Upgrade").click()
        await expect(page.locator(".said")).to_contain_text("Done")
        await expect(page.locator("#events")).to_contain_text("UpgradeRequested")
        await expect(page.locator("#head")).to_contain_text("1.23.0 wanted")
        await picture(page, "install-upgrade")

    wanted = await real_hub.client.get(SERVINGS, key.name, key.namespace)
    assert wanted["spec"]["version"] == "1.23.0"


async def test_people_log_in_and_leave(guarded: Running, real_hub: RealHub, open_page: Open):
    """With a token; a wrong one is told, and after leaving nothing is shown."""
    rules = {"apiGroups": ["operator.knative.dev"], "resources": ["*"], "verbs": ["list"]}
    token = await real_hub.account("viewer", rules)
    async with open_page() as page:
        await page.goto(guarded.base)
        await page.get_by_label("Token").fill(token)
        await page.get_by_role("button", name="Log in").click()
        await expect(page.locator(".user")).to_have_text("system:serviceaccount:default:viewer")
        await expect(page.locator("#notes")).to_contain_text("You may not list managedclusters")
        await expect(page.locator("#live")).to_have_text("live")
        await picture(page, "fleet-of-a-viewer")
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        await picture(page, "login")


async def test_a_status_change_is_on_the_screen_at_once(
    running: Running, real_hub: RealHub, open_page: Open
):
    """Progress moves, the row goes to the top, counts are told; nothing is reloaded."""
    async with open_page() as page:
        await enter(page, running)
        await page.evaluate("window.same = true")
        row = page.locator(f'[id="i:KnativeServing/{ONE}"]')
        await real_hub.say(SERVINGS, ONE, dashboards.waiting(1, 4))
        await expect(row.locator("progress")).to_have_attribute("value", "1")
        await real_hub.say(SERVINGS, ONE, dashboards.waiting(3, 4))
        await expect(row.locator("progress")).to_have_attribute("value", "3")
        await real_hub.say(SERVINGS, ONE, dashboards.lost("connection refused"))
        first = page.locator("#installs > tr").first
        await expect(first).to_contain_text("connection refused")
        await expect(page.locator("#counts")).to_contain_text("1 failed")
        await picture(page, "fleet-broken")
        await real_hub.say(SERVINGS, ONE, dashboards.ready("1.22.1"))
        await expect(row).to_contain_text("ready")
        await expect(page.locator("#counts")).not_to_contain_text("failed")

        assert await page.evaluate("window.same")


async def test_the_chain_of_an_open_installation_follows(
    running: Running, real_hub: RealHub, open_page: Open
):
    """The failing link opens where it fails, and closes when it holds."""
    async with open_page() as page:
        await enter(page, running)
        await page.goto(running.base + CR)
        await expect(page.locator("#live")).to_have_text("live")
        await real_hub.say(SERVINGS, ONE, dashboards.lost("no route to host"))
        failing = page.locator("#chain .open")
        await expect(failing.locator("h3")).to_contain_text("target")
        await expect(failing).to_contain_text("no route to host")
        await picture(page, "install-lost")
        await real_hub.say(SERVINGS, ONE, dashboards.ready("1.22.1"))
        await expect(failing).to_have_count(0)


async def test_the_keyboard_does_everything(running: Running, open_page: Open):
    """Slash to search, arrows to move, Enter to open, Escape to go back."""
    async with open_page() as page:
        await enter(page, running)
        await page.keyboard.press("/")
        await page.keyboard.type("serving cluster-002")
        await expect(page.locator("#found")).to_contain_text("1 clusters and 1 installations")
        await expect(page.locator("#tiles > li")).to_have_count(1)
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/cr/knativeserving/knative-serving/cluster-002")
        await page.keyboard.press("Escape")
        await page.wait_for_url("**/?q=serving+cluster-002")


async def test_a_search_stays_live(running: Running, real_hub: RealHub, open_page: Open):
    """What is found changes like everything else."""
    async with open_page() as page:
        await enter(page, running)
        await page.get_by_role("searchbox").fill("cluster-001")
        await expect(page.locator("#installs > tr")).to_have_count(2)
        await real_hub.say(SERVINGS, ONE, dashboards.waiting(2, 3))
        await expect(page.locator("#installs progress")).to_have_attribute("value", "2")


async def test_light_and_dark_can_be_chosen(running: Running, open_page: Open):
    """The system decides until somebody does, and the choice lasts."""

    async def background(page: Page) -> str:
        return await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")

    async with open_page(scheme="dark") as page:
        await enter(page, running)
        dark = await background(page)
        await picture(page, "fleet-dark")
        await page.get_by_role("button", name="Light").click()
        light = await background(page)
        await page.reload()

        assert (dark, light) == ("rgb(17, 24, 31)", "rgb(255, 255, 255)")
        assert await background(page) == light


@pytest.mark.full
async def test_a_narrow_screen_needs_no_scrolling_sideways(
    running: Running, real_hub: RealHub, open_page: Open
):
    """Everything is readable at 400 pixels."""
    await real_hub.say(SERVINGS, ONE, dashboards.lost("dial tcp 10.0.0.1:6443: no route to host"))
    widths: dict[str, int] = {}
    async with open_page(NARROW) as page:
        await enter(page, running)
        for name, path in PATHS.items():
            await page.goto(running.base + path)
            widths[name] = await page.evaluate("document.documentElement.scrollWidth")
            await picture(page, f"{name}-narrow")

    assert widths == dict.fromkeys(PATHS, NARROW[0])


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.full)])
async def test_everybody_can_use_it(
    running: Running, real_hub: RealHub, open_page: Open, scheme: str
):
    """axe finds nothing: landmarks, labels, contrast, names, order of headings."""
    await real_hub.say(SERVINGS, ONE, dashboards.waiting(2, 5))
    async with open_page(WIDE, scheme=scheme, bypass_csp=True) as page:
        await enter(page, running)
        for name, path in PATHS.items():
            await page.goto(running.base + path)
            await picture(page, f"{name}-{scheme}")
            await page.add_script_tag(path=AXE)
            found = await page.evaluate("axe.run()")
            violations = [
                (each["id"], [node["target"] for node in each["nodes"]][:3])
                for each in found["violations"]
            ]

            assert (name, violations) == (name, [])


async def test_without_scripts_everything_can_be_read(running: Running, open_page: Open):
    """Pages are whole as they come; search and parts of lists are links and forms."""
    async with open_page() as page:
        assert page.context.browser is not None
        context = await page.context.browser.new_context(java_script_enabled=False)
        try:
            bare = await context.new_page()
            await bare.goto(running.dashboard.url)
            await bare.wait_for_url(f"{running.base}/")
            await bare.get_by_role("searchbox").fill("cluster-003")
            await bare.get_by_role("button", name="Search").click()
            await expect(bare.locator("#installs > tr")).to_have_count(2)
        finally:
            await context.close()


async def test_when_the_server_is_away_the_page_says_so(
    running: Running, real_hub: RealHub, open_page: Open
):
    """It connects again by itself, and is current then."""
    async with open_page() as page:
        await enter(page, running)
        live = running.dashboard.site.live
        for channel in list(live.channels.values()):
            channel.end()
        live.ending.set()
        await expect(page.locator("#live")).to_have_text("not connected")
        live.ending.clear()
        await real_hub.say(SERVINGS, ONE, dashboards.waiting(1, 2))
        await expect(page.locator("#live")).to_have_text("live")
        await expect(page.locator("#installs progress")).to_have_attribute("value", "1")
