"""Fixtures for tests in a browser: Chromium of the system, a real hub, and a dashboard of it.

Playwright drives the browser; it brings none itself and must not download one.
"""

import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from knfleet.api.knative.resources import SERVINGS
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.web.server.settings import WebSettings
from testbed import small_release
from testbed.clusters import Pool
from testbed.fakes.sockets import free_port
from testbed.waiting import PATIENCE_SECONDS
from tests.support import dashboards
from tests.support.dashboards import RealHub, Running
from tests.support.hub_works import config_map, reported, work

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE, NARROW = (1280, 900), (400, 800)
PATIENCE_MILLISECONDS = PATIENCE_SECONDS * 1000

expect.set_options(timeout=PATIENCE_MILLISECONDS)

Open = Callable[..., AbstractAsyncContextManager[Page]]


def chromium() -> str:
    """The browser of the system; `make test` sees to it that there is one."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail("there is no chromium on the PATH; run `make chromium`")
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A browser without a window."""
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=chromium(), args=[*as_root, "--disable-dev-shm-usage"]
        )
        yield launched
        await launched.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real_hub(pool: Pool) -> AsyncIterator[RealHub]:
    """A real hub with four clusters, for all tests of a module."""
    (lent,) = await pool.lend(1)
    async with Client(lent.connection) as client:
        hub = RealHub(client, lent.connection)
        await hub.prepare(4)
        own = dashboards.installation(SERVINGS, "own", "knative-serving", version="1.23.0")
        own["spec"]["ingress"] = {}
        await hub.write(SERVINGS, own)
        shown = work("shown", config_map("good"), config_map("bad"))
        key = await hub.send("cluster-003", shown)
        await hub.say(WORKS, key, reported(shown, {"bad": "it is refused"}, Ready=1))
        await hub.install_addon("hello", "cluster-001", "cluster-002")
        yield hub


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    """The release files of a small Knative."""
    root = small_release.write(tmp_path_factory.mktemp("small"))
    return Releases(root, cache=ParsedCache(tmp_path_factory.mktemp("cache")))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(real_hub: RealHub, releases: Releases) -> AsyncIterator[Running]:
    """A dashboard of the real hub, in which something can be done."""
    settings = WebSettings(port=free_port(), actions=True)
    async with dashboards.running(real_hub.connection, settings, releases=releases) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(real_hub: RealHub) -> AsyncIterator[Running]:
    """A dashboard of the real hub, to which people log in."""
    settings = WebSettings(port=free_port(), login=True)
    async with dashboards.running(real_hub.connection, settings) as running:
        yield running


@pytest.fixture
def open_page(browser: Browser) -> Open:
    """Opens a page that must not complain about anything."""

    @asynccontextmanager
    async def open_page(
        size: tuple[int, int] = WIDE, *, scheme: str = "light", bypass_csp: bool = False
    ) -> AsyncGenerator[Page]:
        complaints: list[str] = []

        def hear(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                complaints.append(f"{message.type}: {message.text}")

        context = await browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if scheme == "dark" else "light",
            bypass_csp=bypass_csp,
        )
        try:
            page = await context.new_page()
            page.set_default_timeout(PATIENCE_MILLISECONDS)
            page.on("console", hear)
            page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
            yield page
        finally:
            await context.close()
        assert complaints == []

    return open_page


async def picture(page: Page, name: str) -> None:
    """Keep what the page looks like."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
