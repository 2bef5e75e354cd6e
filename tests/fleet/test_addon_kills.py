"""Hub and agent are killed while an add-on is installed, changed and removed: all of it converges.

They are killed as soon as something chosen at random has happened, so that each phase is hit.
"""

import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import Struct

from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import DEFAULT_NAMESPACE
from knfleet.api.core import CONFIG_MAPS, CRDS, ROLE_BINDINGS, SECRETS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed import hubs
from testbed.agent_process import Agent, Scene, bootstrap_token, prepare_spoke
from testbed.clusters import Lend
from testbed.hub_process import HubProcess, kubeconfig
from testbed.waiting import until
from tests.support import addons

pytestmark = [pytest.mark.xdist_group("agent"), pytest.mark.full]
SEED = 20
ROUNDS = 4
KEY = Key("c1", "killed")
SECRET = "killed-hub-kubeconfig"
Moment = Callable[[], Awaitable[bool]]


class Site(Struct):
    """A hub and a cluster, both with their processes, and who kills them."""

    scene: Scene
    process: HubProcess
    chance: random.Random

    async def found(self, client: Client, resource: Resource, name: str, space: str) -> Object:
        """An object; empty when it is not there."""
        try:
            return await client.get(resource, name, space)
        except NotFound:
            return {}

    async def text(self) -> str:
        """What the add-on wrote on the cluster; empty when it is not there."""
        found = await self.found(self.scene.spoke, CONFIG_MAPS, "greeting", DEFAULT_NAMESPACE)
        return found["data"]["text"] if found else ""

    async def delivered(self) -> str:
        """What the work has for the cluster; empty when there is none."""
        found = await self.found(self.scene.hub, WORKS, "addon-killed-deploy-0", "c1")
        texts = [
            each["data"]["text"]
            for each in found.get("spec", {}).get("workload", {}).get("manifests", [])
            if each["kind"] == "ConfigMap"
        ]
        return texts[0] if texts else ""

    async def addon(self) -> Object:
        """The ManagedClusterAddOn; empty when it is not there."""
        return await self.found(self.scene.hub, ADDONS, "killed", "c1")

    async def has_secret(self) -> bool:
        """Whether the agent of the add-on has credentials."""
        found = await self.found(self.scene.spoke, SECRETS, SECRET, DEFAULT_NAMESPACE)
        return bool(found)

    async def kill(self, *moments: Moment) -> None:
        """Kill hub, agent or both as soon as one of the moments has come, and start them again."""
        moment = self.chance.choice(moments)
        await until(moment, "the moment of the kill")
        victims = self.chance.choice([("hub",), ("agent",), ("hub", "agent")])
        if "hub" in victims:
            await self.process.kill()
        if "agent" in victims:
            await self.scene.agent.end(signal.SIGKILL)
        if "hub" in victims:
            await self.process.start(SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)
        if "agent" in victims:
            await self.scene.agent.start()


@pytest.fixture
async def site(lend: Lend, small_root: Path, tmp_path: Path) -> AsyncIterator[Site]:
    """Both processes run, and the cluster is accepted."""
    hub_lent, spoke_lent = await lend(2)
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
        scene = Scene(hub, hub_lent, spoke, agent, stack)
        await scene.joined()
        yield Site(scene, process, random.Random(SEED))


def config(text: str) -> Object:
    """The configuration of the add-on."""
    variables = [{"name": "TEXT", "value": text}]
    return addons.deployment_config("killed", customizedVariables=variables)


async def test_an_add_on_survives_kills_of_hub_and_agent_and_leaves_nothing(site: Site):
    hub = site.scene.hub
    registration: list[Object] = [{"type": "KubeClient", "kubeClient": {"hubPermissions": []}}]
    greeting = addons.config_map("greeting", text="{{TEXT}}")
    made = addons.template("killed", greeting, registration=registration)
    await hub.create(ADDON_TEMPLATES, made)

    async def is_there() -> bool:
        return bool(await site.addon())

    async def is_leaving() -> bool:
        found = await site.addon()
        return not found or "deletionTimestamp" in found["metadata"]

    for round_ in range(ROUNDS):
        old, new = f"old{round_}", f"new{round_}"

        async def is_delivered(text: str) -> bool:
            return await site.delivered() == text

        async def is_applied(text: str) -> bool:
            return await site.text() == text

        await hub.apply(CONFIGS, config(old))
        await hub.create(CLUSTER_ADDONS, addons.cluster_addon("killed", default_config="killed"))
        await hub.create(ADDONS, addons.addon("killed", "c1"), "c1")
        await site.kill(
            is_there,
            lambda text=old: is_delivered(text),
            lambda text=old: is_applied(text),
            site.has_secret,
        )
        await addons.is_said(hub, KEY, "Available", "True")
        await until(lambda text=old: is_applied(text), "the add-on is installed")
        await until(site.has_secret, "its agent has credentials")

        await hub.patch(CONFIGS, Key("default", "killed"), {"spec": config(new)["spec"]})
        await site.kill(is_there, lambda text=new: is_delivered(text))
        await until(lambda text=new: is_applied(text), "the configuration is applied")
        await addons.is_said(hub, KEY, "Progressing", "False", "Completed")

        await hub.delete(CLUSTER_ADDONS, Key("", "killed"))
        await site.kill(is_leaving, lambda: is_delivered(""), lambda: is_applied(""))
        await check_gone(site)


async def check_gone(site: Site) -> None:
    """Return when nothing of the add-on is left, on hub and cluster."""
    hub, spoke = site.scene.hub, site.scene.spoke
    await addons.is_gone(hub, ADDONS, KEY)
    await addons.is_gone(hub, WORKS, Key("c1", "addon-killed-deploy-0"))
    await addons.is_gone(spoke, CONFIG_MAPS, Key(DEFAULT_NAMESPACE, "greeting"))
    await addons.is_gone(spoke, SECRETS, Key(DEFAULT_NAMESPACE, SECRET))

    async def is_clean() -> bool:
        applied = (await spoke.list(APPLIED_WORKS, metadata_only=True)).items
        bindings = (await hub.list(ROLE_BINDINGS, "c1", metadata_only=True)).items
        return not [each for each in applied if "killed" in each["metadata"]["name"]] and not [
            each for each in bindings if ":killed:" in each["metadata"]["name"]
        ]

    await until(is_clean, "nothing of the add-on is left")
