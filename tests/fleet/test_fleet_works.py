"""Works from the command line to a cluster and back, with the processes of hub and agent."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import Struct

from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CLEANUP_PRIORITY,
    CLUSTERS,
    ManagedCluster,
)
from knfleet.api.conditions import is_true
from knfleet.api.core import CONFIG_MAPS, CRDS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key, Object
from knfleet.api.operator import CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.api.schema import decode
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.yaml import dump_all
from knfleet.workflows.accept_clusters import accept
from testbed import hubs
from testbed.agent_process import Agent, bootstrap_token, prepare_spoke
from testbed.clusters import Lend, Lent
from testbed.hub_process import HubProcess, kubeconfig
from testbed.waiting import until
from tests.support.commands import done, type_in
from tests.support.hub_works import config_map, work

pytest.importorskip("knfleet.agent.work.controller", reason="the agent does not apply works yet")
pytestmark = pytest.mark.xdist_group("agent")
THINGS = "things.example.com"


class Site(Struct):
    """A hub and a cluster, both with their processes."""

    hub_lent: Lent
    hub: Client
    spoke: Client
    folder: Path

    async def type(self, *arguments: str) -> str:
        """Run a command against the hub that must succeed."""
        return await done(self.hub_lent.kubeconfig, *arguments)

    def written(self, *manifests: Object) -> str:
        """A file with objects."""
        path = self.folder / "objects.yaml"
        path.write_text(dump_all(list(manifests)))
        return str(path)

    async def is_ready(self, name: str) -> bool:
        """Whether a work is applied and available, as `get works` prints it."""
        lines = (await self.type("get", "works", name, "--cluster", "c1")).splitlines()
        return lines[1].split()[3:5] == ["True", "True"]

    async def maps(self) -> set[str]:
        """The ConfigMaps of ours on the cluster."""
        found = await self.spoke.list(CONFIG_MAPS, "default", metadata_only=True)
        return {each["metadata"]["name"] for each in found.items} - {"kube-root-ca.crt"}


@pytest.fixture
async def site(lend: Lend, small_root: Path, tmp_path: Path) -> AsyncIterator[Site]:
    """Both processes run, and the cluster is accepted."""
    hub_lent, spoke_lent = await lend(2, definitions=True)
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(Client(hub_lent.connection))
        spoke = await stack.enter_async_context(Client(spoke_lent.connection))
        await hubs.install(hub_lent.connection)
        await prepare_spoke(spoke)
        for each in spoke_definitions():
            await spoke.apply(CRDS, each)
        account = await hubs.as_account(hub_lent.connection, CLUSTER_MANAGER)
        process = HubProcess(kubeconfig(tmp_path, account), small_root, tmp_path / "hub.log")
        agent = Agent(spoke_lent, tmp_path)
        agent.point_to(hub_lent.connection.endpoint, await bootstrap_token(hub))
        stack.push_async_callback(process.kill)
        stack.push_async_callback(agent.end, signal.SIGKILL)
        await process.start(SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)
        await agent.start()

        async def is_asked() -> bool:
            return bool((await hub.list(CLUSTERS, fields="metadata.name=c1")).items)

        await until(is_asked, "the cluster asks to join")
        await accept(hub, "c1")

        async def is_available() -> bool:
            found = decode(await hub.get(CLUSTERS, "c1"), ManagedCluster)
            return is_true(found.status.conditions, AVAILABLE)

        await until(is_available, "the cluster is available")
        yield Site(hub_lent, hub, spoke, tmp_path)


def thing(name: str) -> Object:
    """An object of a kind that comes with a work."""
    return {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": name, "namespace": "default"},
    }


def definition() -> Object:
    """The CRD of things."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": THINGS},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Thing", "plural": "things"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


async def test_works_go_from_the_command_line_to_a_cluster_and_leave_with_it(site: Site):
    """Created, changed, completed, and last deleted with their cluster by their priority."""
    file = site.written(config_map("a"), config_map("b"))
    create = ("create", "work", "web", "-f", file, "--clusters", "c1")
    await site.type(*create)
    await until(lambda: site.is_ready("web"), "the work is applied and available")
    assert await site.maps() == {"a", "b"}
    assert "✓ ConfigMap default/a" in await site.type("work", "status", "web", "--cluster", "c1")

    site.written(config_map("a", more="yes"))
    plan = await type_in(
        site.hub_lent.kubeconfig, "work", "plan", "web", "-f", file, "--clusters", "c1"
    )
    assert plan.code == 2, plan.out
    assert "DELETE  ConfigMap default/b" in plan.out
    await site.type(*create, "--overwrite")

    async def is_changed() -> bool:
        return await site.maps() == {"a"}

    await until(is_changed, "what the file no longer has is gone from the cluster")

    rule = {"condition": "Complete", "type": "CEL", "celExpressions": ["has(object.data)"]}
    named = {"group": "", "resource": "configmaps", "namespace": "default", "name": "done"}
    done_work = work(
        "once",
        config_map("done", now="yes"),
        deleteOption={"ttlSecondsAfterFinished": 1},
        manifestConfigs=[{"resourceIdentifier": named, "conditionRules": [rule]}],
    )
    await site.hub.create(WORKS, done_work, "c1")

    async def is_over() -> bool:
        listed = (await site.hub.list(WORKS, "c1")).items
        return "once" not in {each["metadata"]["name"] for each in listed}

    await until(is_over, "the completed work is deleted")
    await until(is_changed, "and so is what it applied")


@pytest.mark.full
async def test_works_leave_with_their_cluster_in_the_order_of_their_priority(site: Site):
    """The object of a kind goes before the kind; nothing is left on the cluster or the hub."""
    kinds = work("kinds", definition(), annotations={CLEANUP_PRIORITY: "100"})
    objects = work("objects", thing("t"))
    plain = work("plain", config_map("p"), annotations={CLEANUP_PRIORITY: "10"})
    for each in (kinds, objects, plain):
        await site.hub.create(WORKS, each, "c1")
    for name in ("kinds", "objects", "plain"):
        await until(lambda name=name: site.is_ready(name), f"{name} is applied")
    order: list[str] = []
    informer = Informer(site.hub, WORKS, "c1")

    def note(change: StoreChange) -> None:
        if change.type == "deleted":
            order.append(change.key.name)

    informer.on_change(note)
    async with AsyncExitStack() as stack:
        running = asyncio.ensure_future(informer.run())
        stack.callback(running.cancel)
        await informer.synced.wait()
        assert "c1 is detached" in await site.type("detach", "c1")
        await until(lambda: len(order) == 3, "all works are gone")

    assert order == ["objects", "plain", "kinds"]
    assert await site.maps() == set()
    assert (await site.spoke.list(APPLIED_WORKS)).items == []
    assert not (await site.hub.list(CLUSTERS, fields="metadata.name=c1")).items
    assert Key("c1", "kinds") not in {Key.of(each) for each in (await site.hub.list(WORKS)).items}
