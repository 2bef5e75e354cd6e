"""Removing Knative from spokes: always to the end, or with words about what is in the way."""

import asyncio
import signal

import pytest

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key
from testbed.waiting import until
from tests.support.fleets import ANCHOR, HEALTHY, Fleet, is_gone

UNHEALTHY = HEALTHY | {"status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
LOST = "RemoteClientCreationFailed"


async def installed(fleet: Fleet) -> None:
    """Serving on the first spoke, ready."""
    await fleet.start()
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")


async def removed(fleet: Fleet) -> None:
    """Everything is gone."""
    await fleet.hub.gone(SERVINGS)
    await fleet.one.bare()


async def test_a_removal_goes_on_after_the_operator_was_down_or_killed(fleet: Fleet) -> None:
    """Whatever it had done by then."""
    await installed(fleet)
    await fleet.operator.stop()
    await fleet.hub.delete(SERVINGS)
    await fleet.start()
    await until(lambda: has_begun(fleet), "the removal has begun")
    await fleet.operator.kill()
    await fleet.start()

    await removed(fleet)


async def has_begun(fleet: Fleet) -> bool:
    """Whether something is gone already, or all is."""
    return not await fleet.one.exists(DEPLOYMENTS, "controller")


@pytest.mark.full
async def test_a_profile_that_is_unhealthy_or_gone_does_not_stop_a_removal(fleet: Fleet) -> None:
    """The way to the cluster is known and works; that is enough."""
    await installed(fleet)
    await fleet.profile("spoke1", conditions=[UNHEALTHY])
    await fleet.lost(reason="ClusterProfileNotReady")
    await fleet.hub.delete(SERVINGS)
    await removed(fleet)

    await fleet.profile("spoke1")
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await fleet.drop_profile("spoke1")
    await fleet.lost(reason="ClusterProfileNotFound")
    await fleet.hub.delete(SERVINGS)
    await removed(fleet)


@pytest.mark.full
async def test_a_removal_waits_for_a_profile_that_nobody_remembers(fleet: Fleet) -> None:
    """The condition says what to do; done, it goes on by itself."""
    await installed(fleet)
    await fleet.operator.kill()
    await fleet.drop_profile("spoke1")
    await fleet.hub.delete(SERVINGS)
    await fleet.start()

    message = await fleet.lost("create the ClusterProfile", reason="ClusterProfileNotFound")

    assert "kubectl annotate knativeserving -n knative-serving knative" in message
    assert await fleet.one.exists(DEPLOYMENTS, "controller")
    await fleet.profile("spoke1")
    await removed(fleet)


@pytest.mark.full
async def test_a_frozen_spoke_is_waited_for_and_cleaned_when_it_thaws(fleet: Fleet) -> None:
    """It says since when it waits, and that a wrong annotation is wrong."""
    await installed(fleet)
    fleet.one.signal(signal.SIGSTOP)
    await fleet.lost("does not answer", reason=LOST)
    assert (await fleet.conditions())["DeploymentsAvailable"] == "True"
    await fleet.annotate(lost="forget")
    await fleet.hub.tells("SettingWithoutEffect", "on-lost-target", "'forget'")
    await fleet.hub.delete(SERVINGS)
    await fleet.lost("waits since", "on-lost-target=orphan", "'forget'", reason=LOST)

    fleet.one.signal(signal.SIGCONT)

    await removed(fleet)


async def test_an_orphan_leaves_a_tombstone_from_which_a_returning_spoke_is_cleaned(
    fleet: Fleet,
) -> None:
    """Nobody has to remember anything, and no custom resource has to be there."""
    await installed(fleet)
    fleet.one.signal(signal.SIGSTOP)
    await fleet.lost("does not answer", reason=LOST)
    await fleet.hub.delete(SERVINGS)
    await fleet.lost("waits since", reason=LOST)
    await fleet.annotate(lost="orphan")
    await fleet.hub.gone(SERVINGS)
    (stone,) = await fleet.stones()
    assert stone["data"]["anchor"] == f"knative-serving/{ANCHOR}"
    assert stone["data"]["profile"] == "fleet/spoke1"
    await fleet.hub.tells("Orphaned", "fleet/spoke1", stone["metadata"]["name"])
    await fleet.operator.kill()
    await fleet.start()

    fleet.one.signal(signal.SIGCONT)

    await until(lambda: has_no_stones(fleet), "the tombstone is gone")
    await fleet.one.bare()


@pytest.mark.full
async def test_a_tombstone_is_no_harm_to_who_takes_the_place(fleet: Fleet) -> None:
    """A custom resource of the same name has what is left, with the very pods."""
    await installed(fleet)
    pods = await fleet.one.pods()
    fleet.one.signal(signal.SIGSTOP)
    await fleet.lost("does not answer", reason=LOST)
    await fleet.annotate(lost="orphan")
    await fleet.hub.delete(SERVINGS)
    await fleet.hub.gone(SERVINGS)
    await fleet.deploy()
    fleet.one.signal(signal.SIGCONT)

    await fleet.hub.ready(SERVINGS, "1.23.0")

    await until(lambda: has_no_stones(fleet), "the tombstone is gone")
    assert await fleet.one.pods() == pods


async def has_no_stones(fleet: Fleet) -> bool:
    """Whether there is no tombstone."""
    return not await fleet.stones()


async def test_another_cluster_at_the_same_address_is_never_written_to(fleet: Fleet) -> None:
    """Neither to install nor to remove; both uids are told, and what to do."""
    await installed(fleet)
    await fleet.operator.kill()
    await fleet.annotate(uid="another")
    await fleet.start()
    await fleet.lost("another", "target-uid", "leads to another cluster", reason=LOST)
    await fleet.hub.delete(SERVINGS)
    await fleet.lost("waits since", reason=LOST)
    assert not await is_gone(fleet.one.client, CONFIG_MAPS, Key("knative-serving", ANCHOR))

    await fleet.annotate(uid=None)

    await removed(fleet)


@pytest.mark.full
async def test_other_spokes_notice_nothing(fleet: Fleet) -> None:
    """While one spoke is frozen, another is installed on, changed and cleaned as ever."""
    await installed(fleet)
    fleet.one.signal(signal.SIGSTOP)

    async with asyncio.timeout(60):
        await fleet.deploy("other", on="spoke2")
        await fleet.hub.ready(SERVINGS, "1.23.0", "other")
        await fleet.hub.change(SERVINGS, "other", config={"network": {"a": "b"}})
        await until(lambda: has_key(fleet), "the change arrives")
        await fleet.hub.delete(SERVINGS, "other")
        await fleet.hub.gone(SERVINGS, "other")
    await fleet.two.bare()
    fleet.one.signal(signal.SIGCONT)
    await fleet.hub.ready(SERVINGS, "1.23.0")


async def has_key(fleet: Fleet) -> bool:
    """Whether a change of the custom resource is on the second spoke."""
    found = await fleet.two.client.get(CONFIG_MAPS, "config-network", "knative-serving")
    return found["data"].get("a") == "b"
