"""The dashboard of a large fleet: how large its first page is, how soon a change is shown, its CPU.

The dashboard is a process of its own; the hub is a fake one, and the pages are streams that this
process reads. Times are printed; what is asserted leaves room for a busy machine.
"""

import asyncio
import gzip
import os
import re
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest

from knfleet.api.core import EVENTS
from knfleet.api.knative.resources import SERVINGS
from knfleet.kube.yaml import dump_all
from knfleet.web.server.authorization import KINDS
from testbed.fakes.apiserver import ApiServers
from testbed.fakes.cluster import Cluster
from testbed.fakes.sockets import free_port
from testbed.waiting import PATIENCE_SECONDS, until
from tests.support import dashboards

pytestmark = pytest.mark.soak
CLUSTERS = 300
PAGES = 50
CHANGES = 20
FIRST_PAGE_BYTES = 150 * 1000


@asynccontextmanager
async def dashboard(server: str, folder: Path) -> AsyncGenerator[tuple[psutil.Process, str]]:
    """A dashboard of a hub; its process and its address."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "hub",
        "contexts": [{"name": "hub", "context": {"cluster": "hub"}}],
        "clusters": [{"name": "hub", "cluster": {"server": server}}],
    }
    kubeconfig, url_file = folder / "kubeconfig", folder / "url"
    kubeconfig.write_text(dump_all([config]))
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knfleet", "web", "--kubeconfig", str(kubeconfig)),
        *("--address", f"127.0.0.1:{free_port()}", "--url-file", str(url_file)),
        env=environment,
    )
    try:
        await until(url_file.exists, "the dashboard listens")
        yield psutil.Process(process.pid), url_file.read_text().strip()
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)


async def first_event(answer: aiohttp.ClientResponse) -> str:
    """The next change that a stream tells."""
    while True:
        line = await answer.content.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            return line.decode()


def cpu_seconds(process: psutil.Process) -> float:
    """What a process has used."""
    times = process.cpu_times()
    return times.user + times.system


async def test_three_hundred_clusters_on_fifty_pages(tmp_path: Path):
    """The first page stays small, and each change is drawn once and reaches every page soon."""
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(ApiServers())
        hub = servers.add("hub", Cluster(*KINDS, EVENTS))
        for resource, manifest in dashboards.fleet(CLUSTERS):
            hub.put(resource, manifest)
        process, url = await stack.enter_async_context(dashboard(servers.url("hub"), tmp_path))
        jar = aiohttp.CookieJar(unsafe=True)
        connector = aiohttp.TCPConnector(limit=0)
        visitor = await stack.enter_async_context(
            aiohttp.ClientSession(cookie_jar=jar, connector=connector)
        )
        async with visitor.get(url) as answer:
            assert answer.status == 200
        base = url.partition("/enter")[0]
        page, times = "", list[float]()
        for _ in range(5):
            begun = time.perf_counter()
            async with visitor.get(f"{base}/") as answer:
                page = await answer.text()
            times.append(time.perf_counter() - begun)
        assert f"<b>{CLUSTERS}</b> clusters" in page
        assert f"<b>{2 * CLUSTERS}</b> installations" in page
        size, packed = len(page.encode()), len(gzip.compress(page.encode()))

        found = re.search(r'data-rev="(\w+)"', page)
        assert found is not None
        streams = [
            await visitor.get(f"{base}/live?at=/&rev={found[1]}", timeout=aiohttp.ClientTimeout())
            for _ in range(PAGES)
        ]
        waits: list[float] = []
        used, since = cpu_seconds(process), time.perf_counter()
        for number in range(CHANGES):
            name = f"cluster-{number:03}"
            changed = dashboards.installation(SERVINGS, name, "knative-serving", at=name)
            changed["status"] = dashboards.waiting(1, 5)
            begun = time.perf_counter()
            hub.put(SERVINGS, changed)
            told = await asyncio.wait_for(asyncio.gather(*map(first_event, streams)), 60)
            waits.append(time.perf_counter() - begun)
            assert len(set(told)) == 1
            assert f"i:KnativeServing/knative-serving/{name}" in told[0]
            assert len(told[0]) < size / 4
        elapsed = time.perf_counter() - since
        share = (cpu_seconds(process) - used) / elapsed
        for stream in streams:
            stream.close()

    print(
        f"\nfirst page: {size / 1000:.0f} KB, {packed / 1000:.0f} KB as sent;"
        f" first {times[0] * 1000:.0f} ms, then {statistics.median(times[1:]) * 1000:.0f} ms"
        f"\na change on {PAGES} pages: median {statistics.median(waits) * 1000:.0f} ms,"
        f" longest {max(waits) * 1000:.0f} ms"
        f"\n{CHANGES / elapsed:.1f} changes a second on {PAGES} pages: {share:.1%} of a core"
    )
    assert size <= FIRST_PAGE_BYTES
