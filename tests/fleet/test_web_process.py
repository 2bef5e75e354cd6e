"""The dashboard as a process: beside a hub, and inside one with the rights that `init` gives."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.dev.node.annotations import HOLD
from knfleet.kube.client.verbs import Client
from testbed import hubs
from testbed.clusters import Lend, Lent
from testbed.fakes.sockets import free_port
from testbed.hub_process import HubProcess, kubeconfig
from testbed.operators import Hub, Operator
from testbed.waiting import until
from tests.support.dashboards import RealHub
from tests.support.fleets import Fleet

CR = "/cr/knativeserving/knative-serving/knative"
ADMIN: Object = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
BROWSER = {"Sec-Fetch-Site": "same-origin"}


@asynccontextmanager
async def visitor(base: str) -> AsyncGenerator[aiohttp.ClientSession]:
    """Somebody with a browser's cookies."""
    async with aiohttp.ClientSession(base, cookie_jar=aiohttp.CookieJar(unsafe=True)) as visitor:
        yield visitor


async def text(visitor: aiohttp.ClientSession, path: str) -> str:
    """A page."""
    async with visitor.get(path) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


@asynccontextmanager
async def web(lent: Lent, *flags: str) -> AsyncGenerator[str]:
    """`knfleet web`; the address that it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knfleet", "web", "--kubeconfig", str(lent.kubeconfig)),
        *("--address", f"127.0.0.1:{free_port()}", *flags),
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
    )
    assert process.stdout is not None
    try:
        yield (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
        await process.stdout.read()


@pytest.mark.full
async def test_the_objects_of_an_installation_are_listed_with_their_differences(
    lend: Lend, small_root: Path, tmp_path: Path
):
    """On a hub with an operator that installed them: as desired, and one that somebody changed."""
    (lent,) = await lend(1, definitions=True)
    async with Client(lent.connection) as client:
        hub = Hub(lent, client)
        await hub.prepare()
        operator = Operator(lent.kubeconfig, small_root, tmp_path / "operator.log")
        await operator.start()
        try:
            await hub.create(SERVINGS, version="1.23.0", ingress={})
            await hub.ready(SERVINGS, "1.23.0")
        finally:
            await operator.stop()
        key = Key("knative-serving", "config-network")
        await client.patch(CONFIG_MAPS, key, {"data": {"version": "theirs"}})

        async with web(lent, "--releases", str(small_root)) as url:
            base, enter, key_part = url.partition("/enter")
            async with visitor(base) as browser:
                await text(browser, enter + key_part)
                page = await text(browser, f"{CR}/objects")
                diff = await text(browser, f"{CR}/objects?object=ConfigMap/{key}")

    assert "<b>1</b> differs" in page
    assert "as desired" in page
    assert "data.version" in page
    assert "- theirs" in diff
    assert "+ 1.23.0" in diff


@pytest.mark.full
async def test_a_pod_that_is_not_ready_on_a_spoke_is_named(fleet: Fleet):
    """The failing link of the chain is opened on the spoke: workload, replica set, pod."""
    await fleet.start()
    await fleet.deploy(workloads=[{"name": "controller", "annotations": {HOLD: "true"}}])
    await fleet.hub.says(SERVINGS, "DeploymentsAvailable", "Waiting on deployments: controller;")
    flags = ("--clusterprofile-provider-file", str(fleet.providers))
    async with web(fleet.hub.lent, *flags) as url:
        base, enter, key_part = url.partition("/enter")
        async with visitor(base) as browser:
            await text(browser, enter + key_part)
            page = await text(browser, CR)

    (pod,) = [name for name in await fleet.one.pods() if name.startswith("controller-")]
    assert "<b>Deployment knative-serving/controller</b>" in page
    assert f"<b>Pod knative-serving/{pod}</b>" in page
    assert "ContainersNotReady" in page


async def test_a_hub_has_a_dashboard_with_logins(lend: Lend, small_root: Path, tmp_path: Path):
    """It shows what the hub's controllers see anyway, to those who may see it, live."""
    (lent,) = await lend(1, definitions=True)
    async with Client(lent.connection) as client:
        await hubs.install(lent.connection)
        serving = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "knative-serving"}}
        await client.apply(NAMESPACES, serving)
        token = await RealHub(client, lent.connection).account("viewer-of-all", ADMIN)
        account = await hubs.as_account(lent.connection, CLUSTER_MANAGER)
        process = HubProcess(kubeconfig(tmp_path, account), small_root, tmp_path / "hub.log")
        port = free_port()
        await process.start(
            "--disable-ha",
            *("--web", f"127.0.0.1:{port}", "--web-actions"),
            SYSTEM_NAMESPACE=OPERATOR_NAMESPACE,
        )
        try:
            async with visitor(f"http://127.0.0.1:{port}") as browser:
                await until(lambda: answers(browser), "the dashboard answers")
                assert "Log in" in await text(browser, "/")
                form = {"token": token}
                async with browser.post("/login", data=form, headers=BROWSER) as answer:
                    assert "system:serviceaccount:default:viewer-of-all" in await answer.text()

                async def notes() -> str:
                    found = re.search(r'class="notes">(.*?)</ul>', await text(browser, "/"))
                    assert found is not None
                    return found[1]

                async def knows_all() -> bool:
                    return not await notes()

                try:
                    await until(knows_all, "everything is watched")
                except AssertionError as error:
                    raise AssertionError(f"{error}; it says {await notes()}") from None
                async with browser.get("/live?at=/&rev=old") as stream:
                    await stream.content.readuntil(b"\n\n")
                    await Hub(lent, client).create(SERVINGS, version="1.23.0", ingress={})
                    told = b""
                    async with asyncio.timeout(60):
                        while b"KnativeServing/knative-serving/knative" not in told:
                            told = await stream.content.readuntil(b"\n\n")
                assert "1.23.0" in await text(browser, "/versions")
        finally:
            assert await process.stop() == 0
    assert token not in process.said()


async def answers(browser: aiohttp.ClientSession) -> bool:
    """Whether a server is there."""
    try:
        async with browser.get("/login"):
            return True
    except aiohttp.ClientError:
        return False
