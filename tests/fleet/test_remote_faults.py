"""What befalls spokes, plugins and the hub: it is told, over by itself, and others are well."""

import asyncio
import os
import signal

import pytest

from knfleet.api.core import CONFIG_MAPS, EVENTS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.dev import processes
from knfleet.kube.errors import KubeError
from testbed.clusters import Pool
from testbed.operators import Hub
from testbed.waiting import until
from tests.support.fleets import Fleet, SpokeCluster

LOST = "RemoteClientCreationFailed"


async def both(fleet: Fleet) -> None:
    """Serving on both spokes, ready."""
    await fleet.start()
    await fleet.deploy()
    await fleet.deploy("other", on="spoke2")
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await fleet.hub.ready(SERVINGS, "1.23.0", "other")


async def other_is_well(fleet: Fleet) -> None:
    """The other spoke never was in trouble."""
    found = await fleet.hub.get(SERVINGS, "other")
    ready = [each for each in found["status"]["conditions"] if each["type"] == "Ready"]
    assert [each["status"] for each in ready] == ["True"]
    warnings = await fleet.hub.client.list(
        EVENTS, "knative-serving", fields="involvedObject.name=other,type=Warning"
    )
    assert [each["message"] for each in warnings.items] == []


async def kill(hub: Hub) -> None:
    """Kill an API server, and wait until it is over."""
    known = processes.recorded(hub.lent.folder)[f"{hub.lent.name}.kube-apiserver"]
    os.kill(known.pid, signal.SIGKILL)
    await until(lambda: known.live() is None, "it is dead")
    processes.reap(known.pid)


async def restart(fleet: Fleet, pool: Pool) -> None:
    """Start everything again that does not run."""
    await pool.ground.up(len(fleet.spokes))


async def test_a_frozen_spoke_is_told_in_time_and_comes_back_by_itself(fleet: Fleet) -> None:
    """Within fifteen seconds; what else was known of it stays said."""
    await both(fleet)
    fleet.one.signal(signal.SIGSTOP)

    await fleet.lost("does not answer", reason=LOST)

    found = await fleet.conditions()
    assert (found["Ready"], found["InstallSucceeded"], found["DeploymentsAvailable"]) == (
        "False",
        "True",
        "True",
    )
    fleet.one.signal(signal.SIGCONT)
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await other_is_well(fleet)


@pytest.mark.full
async def test_a_spoke_that_is_killed_and_started_again_is_found_again(
    fleet: Fleet, pool: Pool
) -> None:
    """And what was changed meanwhile is brought there."""
    await both(fleet)
    await kill(fleet.one)
    await fleet.lost(reason=LOST)
    await fleet.hub.change(SERVINGS, config={"network": {"a": "b"}})

    await restart(fleet, pool)

    await fleet.hub.ready(SERVINGS, "1.23.0")
    await until(lambda: has_key(fleet.one), "the change arrives")
    await other_is_well(fleet)


async def has_key(spoke: SpokeCluster) -> bool:
    """Whether a change of the custom resource is there."""
    try:
        found = await spoke.client.get(CONFIG_MAPS, "config-network", "knative-serving")
    except KubeError:
        return False
    return found["data"].get("a") == "b"


async def test_a_revoked_token_is_told_and_a_new_one_is_fetched(fleet: Fleet) -> None:
    """Without a restart."""
    await both(fleet)
    await fleet.one.revoke_token()
    await fleet.lost("does not accept the credentials", reason=LOST)

    await fleet.one.enter()

    await fleet.hub.ready(SERVINGS, "1.23.0")
    await other_is_well(fleet)


@pytest.mark.full
async def test_a_plugin_that_hangs_for_one_spoke_holds_nobody_else(fleet: Fleet) -> None:
    """Neither another spoke nor the hub itself."""
    fleet.one.spoil("sleep 60")
    await fleet.start()
    await fleet.deploy()

    async with asyncio.timeout(60):
        await fleet.deploy("other", on="spoke2")
        await fleet.hub.ready(SERVINGS, "1.23.0", "other")
    await fleet.lost("plugin", reason="AccessProviderFailed")
    fleet.one.mend()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await other_is_well(fleet)


@pytest.mark.full
async def test_a_hub_that_restarts_costs_nothing(fleet: Fleet, pool: Pool) -> None:
    """The operator waits for it, and spokes stay as they are."""
    await both(fleet)
    pods = await fleet.one.pods()
    await kill(fleet.hub)
    await restart(fleet, pool)
    await until(lambda: answers(fleet.hub), "the hub is back")

    await fleet.hub.change(SERVINGS, config={"network": {"a": "b"}})

    await until(lambda: has_key(fleet.one), "the change arrives")
    await fleet.hub.ready(SERVINGS, "1.23.0")
    assert await fleet.one.pods() == pods
    await other_is_well(fleet)


async def answers(hub: Hub) -> bool:
    """Whether custom resources can be read."""
    try:
        await hub.get(SERVINGS)
    except KubeError:
        return False
    return True


@pytest.mark.full
async def test_heartbeats_of_profiles_make_no_pass(fleet: Fleet) -> None:
    """A fleet manager may write its profiles as often as it likes."""
    await both(fleet)
    await until(lambda: is_quiet(fleet), "the operator is quiet")
    before = await fleet.operator.passes()

    for number in range(5):
        beat: Object = {"metadata": {"annotations": {"example.com/beat": str(number)}}}
        await fleet.hub.client.patch(PROFILES, Key("fleet", "spoke1"), beat)
    # A change that counts comes after them, so they have been seen when it is.
    marked: Object = {"metadata": {"annotations": {"example.com/seen": "yes"}}}
    await fleet.hub.client.patch(SERVINGS, Key("knative-serving", "other"), marked)
    await until(lambda: made_pass(fleet, before), "a pass is made")

    assert await fleet.operator.passes() == before + 1


async def made_pass(fleet: Fleet, before: float) -> bool:
    """Whether a pass was made."""
    return await fleet.operator.passes() > before


async def is_quiet(fleet: Fleet) -> bool:
    """Whether no pass is under way."""
    before = await fleet.operator.passes()
    for _ in range(10):
        if await fleet.operator.passes() != before:
            return False
    return True
