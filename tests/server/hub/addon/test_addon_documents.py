"""Every manifest of the page about add-ons, applied as it is written, and what comes of it."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import DEFAULT_NAMESPACE
from knfleet.api.cluster.managedcluster import ACCEPTED, CLUSTERS
from knfleet.api.meta import Key, Object
from knfleet.hub.addon.spec_hash import spec_hash
from knfleet.hub.manager import HubManager
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.yaml import load_all
from testbed import hubs
from testbed.waiting import until
from tests.support import addons
from tests.support.registration import accept, is_said, managed_cluster

PAGE = Path(__file__).parents[4] / "docs" / "add-ons.md"
BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def blocks() -> list[list[Object]]:
    """The manifests of the page, by block."""
    return [load_all(text) for text in BLOCK.findall(PAGE.read_text())]


@pytest.fixture
async def running(fleet_connection: Connection) -> AsyncIterator[HubManager]:
    """A hub that runs."""
    async with hubs.running(fleet_connection) as manager:
        yield manager


async def apply(client: Client, manifests: list[Object]) -> None:
    """Do what `kubectl apply --server-side` does."""
    for manifest in manifests:
        resource = await client.discovery.resource(manifest["apiVersion"], manifest["kind"])
        await client.apply(resource, manifest)


async def configure(client: Client) -> None:
    """Make the configurations that the page speaks of."""
    namespace = "open-cluster-management"
    for name in ("default", "override", "cluster1"):
        manifest = addons.config_map("greeting", text=name)
        await client.create(
            ADDON_TEMPLATES, addons.template("helloworld", manifest, name=f"{name}-addon-template")
        )
        config = addons.thing(CONFIGS, f"{name}-deploy-config", {}, namespace)
        await client.create(CONFIGS, config, namespace)


async def test_the_manifests_of_the_page_do_what_it_says(fleet: Client, running: HubManager):
    await fleet.create(CLUSTERS, managed_cluster("cluster1"))
    await accept(fleet, "cluster1")
    await until(lambda: is_said(fleet, "cluster1", ACCEPTED, "True"), "cluster1 is accepted")
    await configure(fleet)

    for manifests in blocks():
        await apply(fleet, manifests)

    key = Key("cluster1", "helloworld")

    async def greets() -> bool:
        # The cluster has the default until the hub has seen the configuration of its own.
        work = await addons.work_of(fleet, "addon-helloworld-deploy-0", "cluster1")
        (greeting,) = work["spec"]["workload"]["manifests"]
        return greeting["data"] == {"text": "cluster1"}

    await until(greets, "the work is as the cluster's own configuration says")
    work = await addons.work_of(fleet, "addon-helloworld-deploy-0", "cluster1")
    await addons.report(fleet, Key.of(work))
    await addons.is_said(fleet, key, "Progressing", "False", "Completed")
    await addons.is_said(fleet, key, "Available", "True")
    found = await fleet.get(ADDONS, "helloworld", "cluster1")
    assert found["status"]["namespace"] == DEFAULT_NAMESPACE
    assert found["status"]["supportedConfigs"] == [addons.DEPLOY_TYPE, addons.TEMPLATE_TYPE]
    template = await fleet.get(ADDON_TEMPLATES, "cluster1-addon-template")
    desired = {
        "name": "cluster1-addon-template",
        "namespace": "open-cluster-management",
        "specHash": spec_hash(template),
    }
    assert found["status"]["configReferences"][1] == {
        **addons.TEMPLATE_TYPE,
        "name": "cluster1-addon-template",
        "namespace": "open-cluster-management",
        "desiredConfig": desired,
        "lastAppliedConfig": desired,
        "lastObservedGeneration": 1,
    }
    fleet_addon = await fleet.get(CLUSTER_ADDONS, "helloworld")
    defaults = fleet_addon["status"]["defaultconfigReferences"]
    assert [each["desiredConfig"]["name"] for each in defaults] == [
        "default-deploy-config",
        "default-addon-template",
    ]
    assert all(each["desiredConfig"]["specHash"] for each in defaults)
    (progression,) = fleet_addon["status"]["installProgressions"]
    assert (progression["namespace"], progression["name"]) == ("default", "placement-aws")
    await fleet.delete(CLUSTER_ADDONS, Key("", "helloworld"))
    await addons.is_gone(fleet, ADDONS, key)
