"""A configuration change of an add-on on hundreds of clusters, whose agents the test plays.

The figures are printed; asserted are processor seconds of the hub, and that each of its writes
changes something.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import NAMESPACES
from knfleet.api.meta import Key, Object
from knfleet.api.operator import CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.api.work.manifestwork import WORKS
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.addon.spec_hash import spec_hash
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from testbed import hubs, small_release
from testbed.clusters import Lent
from testbed.hub_process import HubProcess, kubeconfig
from testbed.waiting import until
from tests.support import addons
from tests.support.registration import accept, managed_cluster

pytestmark = pytest.mark.soak
COUNT = 300
NAMES = [f"c{number:03}" for number in range(COUNT)]
HUB_SECONDS = 10.0
"""Of a processor, for the whole rollout."""


def config(text: str) -> Object:
    """The configuration that is rolled out."""
    variables = [{"name": "TEXT", "value": text}]
    return addons.deployment_config("many", customizedVariables=variables)


class Agents:
    """The agents of all clusters: they report on each work as soon as it changes."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.works = Informer(client, WORKS)
        self.pending: asyncio.Queue[Key] = asyncio.Queue()
        self.works.on_change(self.by_work)

    def by_work(self, change: StoreChange) -> None:
        """Report on a work whose spec changed."""
        old, new = (each and each["metadata"]["generation"] for each in (change.old, change.new))
        if new is not None and old != new:
            self.pending.put_nowait(change.key)

    async def run(self) -> None:
        """Report, a few at a time."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.works.run())
            for _ in range(8):
                group.create_task(self.report())

    async def report(self) -> None:
        """Report on works, one after another."""
        while True:
            await addons.report(self.client, await self.pending.get())


def writes(process: HubProcess) -> list[Object]:
    """What the hub wrote, as it logs it."""
    lines = (each for each in process.said().splitlines() if each.startswith("{"))
    found = [msgspec.json.decode(each, type=dict[str, Any]) for each in lines]
    return [each for each in found if each.get("event") == "wrote"]


def needless(written: list[Object], since: int) -> list[Object]:
    """Writes from some moment on after which an object has the version that it had before."""
    versions: dict[str, str] = {}
    found: list[Object] = []
    for number, each in enumerate(written):
        is_same = versions.get(each.get("uid", "")) == each.get("version")
        if is_same and number >= since:
            found.append(each)
        versions[each.get("uid", "")] = each.get("version", "")
    return found


async def is_complete(fleet: Client) -> bool:
    """Whether all clusters have the configuration as it is now."""
    wanted = spec_hash(await fleet.get(CONFIGS, "many", "default"))
    found = await fleet.get(CLUSTER_ADDONS, "many")
    for each in items(found, "status", "installProgressions"):
        (said,), (reference,) = items(each, "conditions"), items(each, "configReferences")
        applied = part(reference, "lastAppliedConfig").get("specHash")
        return applied == wanted and said["message"].startswith(f"{COUNT}/{COUNT} completed")
    return False


def strategy(concurrency: str) -> Object:
    """The placement of the install strategy."""
    return {
        "name": "many",
        "namespace": "default",
        "configs": [{**addons.DEPLOY_TYPE, "name": "many", "namespace": "default"}],
        "rolloutStrategy": {"type": "Progressive", "progressive": {"maxConcurrency": concurrency}},
    }


async def prepare(fleet: Client) -> None:
    """Clusters, a template, a configuration, and a Placement that selects all clusters."""
    few = asyncio.Semaphore(16)

    async def join(name: str) -> None:
        async with few:
            await fleet.create(CLUSTERS, managed_cluster(name))
            await accept(fleet, name)

    await asyncio.gather(*map(join, NAMES))

    async def have_namespaces() -> bool:
        found = {each["metadata"]["name"] for each in (await fleet.list(NAMESPACES)).items}
        return found >= set(NAMES)

    await until(have_namespaces, "all clusters are accepted", seconds=300)
    texts = addons.config_map("a", text="{{TEXT}}")
    await fleet.create(ADDON_TEMPLATES, addons.template("many", texts))
    await fleet.create(CONFIGS, config("old"), "default")
    await addons.select(fleet, "many", ("", NAMES))


async def test_a_configuration_reaches_many_clusters_without_needless_work(
    lent: Lent, tmp_path: Path
):
    await hubs.install(lent.connection)
    account = await hubs.as_account(lent.connection, CLUSTER_MANAGER)
    releases = tmp_path / "releases"
    releases.mkdir()
    files = small_release.write(releases)
    process = HubProcess(kubeconfig(tmp_path, account), files, tmp_path / "hub.log")
    await process.start(SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)
    assert process.process is not None
    hub = psutil.Process(process.process.pid)
    async with Client(lent.connection) as fleet:
        agents = Agents(fleet)
        playing = asyncio.create_task(agents.run())
        try:
            await prepare(fleet)
            await fleet.create(CLUSTER_ADDONS, addons.cluster_addon("many", strategy("100%")))
            await until(lambda: is_complete(fleet), "the add-on is installed", seconds=300)
            placements = [strategy("25%")]
            spec = {"installStrategy": {"type": "Placements", "placements": placements}}
            await fleet.patch(CLUSTER_ADDONS, Key("", "many"), {"spec": spec})

            used, before = sum(hub.cpu_times()[:2]), len(writes(process))
            await fleet.patch(CONFIGS, Key("default", "many"), {"spec": config("new")["spec"]})
            await until(lambda: is_complete(fleet), "the rollout is complete", seconds=300)
            seconds = sum(hub.cpu_times()[:2]) - used
            written = writes(process)
            count = len(written) - before
            print(f"{COUNT} clusters: hub {seconds:.1f} s of a processor, {count} writes")
        finally:
            playing.cancel()
            await process.kill()
    assert seconds <= HUB_SECONDS
    assert needless(written, before) == []
