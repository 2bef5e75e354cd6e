"""Works and the agent as a process: applied through the hub's rights, and safe from kill -9."""

import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from knfleet.api.core import CONFIG_MAPS, CRDS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key
from knfleet.api.operator import CLUSTER_MANAGERS
from knfleet.api.work.manifestwork import WORK_FINALIZER, WORKS
from knfleet.install.deployments import HubInstall, cluster_manager
from knfleet.kube.client.verbs import Client
from testbed import hubs
from testbed.agent_process import Agent, bootstrap_token, prepare_spoke
from testbed.clusters import Lend
from testbed.fakes.ways import Way
from testbed.waiting import until
from tests.support.pairs import accepted
from tests.support.works import CLUSTER, conditions, config_map, work


class Fleet:
    """A hub, and the agent of one cluster as a process."""

    def __init__(self, hub: Client, spoke: Client, agent: Agent, way: Way) -> None:
        self.hub = hub
        self.spoke = spoke
        self.agent = agent
        self.way = way

    async def data(self, name: str) -> dict[str, str] | None:
        """The data of a ConfigMap on the spoke."""
        found = (
            await self.spoke.list(CONFIG_MAPS, "default", fields=f"metadata.name={name}")
        ).items
        return found[0].get("data") or {} if found else None

    async def works(self, name: str) -> list[dict[str, object]]:
        """A work, if it is there."""
        return (await self.hub.list(WORKS, CLUSTER, fields=f"metadata.name={name}")).items

    async def is_held(self, name: str) -> bool:
        """Whether the agent has begun with a work."""
        found = await self.hub.get(WORKS, name, CLUSTER)
        return WORK_FINALIZER in (found["metadata"].get("finalizers") or ())

    async def is_applied(self, name: str) -> bool:
        """Whether the newest generation of a work is applied."""
        found = await self.hub.get(WORKS, name, CLUSTER)
        applied = conditions(found).get("Applied", {})
        return applied.get("status") == "True" and (
            applied["observedGeneration"] == found["metadata"]["generation"]
        )

    async def has(self, name: str, data: dict[str, str] | None) -> bool:
        """Whether a ConfigMap on the spoke has some data, or is gone."""
        return await self.data(name) == data

    async def is_gone(self, name: str) -> bool:
        """Whether a work is gone."""
        return not await self.works(name)

    async def kill_when(self, *moments: Callable[[], Awaitable[bool]]) -> None:
        """Kill the agent at one of some moments, and start it again."""
        moment = random.choice(moments)
        await until(moment, "the moment has come")
        await self.agent.end(signal.SIGKILL)
        await self.agent.start()


@pytest.fixture
async def fleet(lend: Lend, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A hub with one cluster that has joined."""
    hub_lent, spoke_lent = await lend(2, definitions=True)
    endpoint = hub_lent.connection.endpoint
    async with (
        Client(hub_lent.connection) as hub,
        Client(spoke_lent.connection) as spoke,
        Way(endpoint.server) as way,
    ):
        await hubs.install(hub_lent.connection)
        await hub.apply(CLUSTER_MANAGERS, cluster_manager(HubInstall(image="")))
        for each in spoke_definitions():
            await spoke.apply(CRDS, each)
            await hubs.established(spoke, each["metadata"]["name"])
        await prepare_spoke(spoke)
        agent = Agent(spoke_lent, tmp_path, CLUSTER)
        agent.point_to(replace(endpoint, server=way.url), await bootstrap_token(hub))
        async with hubs.running(hub_lent.connection):
            await agent.start()
            try:
                await accepted(hub)
                yield Fleet(hub, spoke, agent, way)
            finally:
                await agent.end()


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.full)])
async def test_an_agent_that_is_killed_at_any_moment_loses_nothing_and_leaves_nothing(
    fleet: Fleet, rounds: int
):
    """Each round kills it while it applies, while it changes, and while it deletes."""
    for number in range(rounds):
        name = f"round{number}"
        first = [config_map(name, a="1"), config_map(f"{name}-b", a="1")]
        await fleet.hub.create(WORKS, work(name, *first))
        await fleet.kill_when(
            lambda name=name: fleet.is_held(name),
            lambda name=name: fleet.has(name, {"a": "1"}),
            lambda name=name: fleet.is_applied(name),
        )
        changed = {"spec": {"workload": {"manifests": [config_map(name, a="2")]}}}
        await fleet.hub.patch(WORKS, Key(CLUSTER, name), changed)
        await fleet.kill_when(
            lambda name=name: fleet.has(name, {"a": "2"}),
            lambda name=name: fleet.has(f"{name}-b", None),
        )
        await until(lambda name=name: fleet.is_applied(name), "the change is applied")
        await until(lambda name=name: fleet.has(f"{name}-b", None), "the rest is gone")
        await fleet.hub.delete(WORKS, Key(CLUSTER, name))
        await fleet.kill_when(lambda name=name: fleet.has(name, None))
        await until(lambda name=name: fleet.is_gone(name), "the work is gone")
        assert await fleet.data(name) is None


async def test_works_outlast_a_hub_that_is_away(fleet: Fleet):
    """Objects stay and are repaired; what was changed and deleted meanwhile follows afterwards."""
    await fleet.hub.create(WORKS, work("kept", config_map("kept", a="1")))
    await fleet.hub.create(WORKS, work("dropped", config_map("dropped", a="1")))
    for name in ("kept", "dropped"):
        await until(lambda name=name: fleet.is_applied(name), f"{name} is applied")

    fleet.way.refusing = True
    await fleet.way.cut()
    changed = {"spec": {"workload": {"manifests": [config_map("kept", a="2")]}}}
    await fleet.hub.patch(WORKS, Key(CLUSTER, "kept"), changed)
    await fleet.hub.delete(WORKS, Key(CLUSTER, "dropped"))
    await fleet.spoke.delete(CONFIG_MAPS, Key("default", "kept"))
    await until(lambda: fleet.has("kept", {"a": "1"}), "the object is repaired without the hub")
    await fleet.agent.end(signal.SIGKILL)
    await fleet.agent.start()
    assert await fleet.data("dropped") == {"a": "1"}

    fleet.way.refusing = False

    await until(lambda: fleet.has("kept", {"a": "2"}), "the change is applied")
    await until(lambda: fleet.is_applied("kept"), "the change is reported")
    await until(lambda: fleet.is_gone("dropped"), "the work is gone")
    assert await fleet.data("dropped") is None
