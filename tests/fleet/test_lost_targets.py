"""Custom resources whose target is lost, by policy: it stays away, returns, or is another one.

What `wait` does, and `orphan` with a target that returns, is in `test_remote_removal.py`.
"""

import signal

import pytest

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key
from testbed.waiting import until
from tests.support.fleets import ANCHOR, Fleet, is_gone

LOST = "RemoteClientCreationFailed"


async def installed_and_frozen(fleet: Fleet) -> None:
    """Serving on a spoke that does not answer any more."""
    await fleet.start()
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    fleet.one.signal(signal.SIGSTOP)
    await fleet.lost("does not answer", reason=LOST)


async def has_no_stones(fleet: Fleet) -> bool:
    """Whether there is no tombstone."""
    return not await fleet.stones()


@pytest.mark.full
async def test_a_deferred_removal_ends_without_the_target_and_cleans_one_that_returns(
    fleet: Fleet,
) -> None:
    """First it waits, and says until when; when time is up, a tombstone takes over."""
    await installed_and_frozen(fleet)
    await fleet.annotate(lost="defer")
    await fleet.hub.delete(SERVINGS)
    await fleet.lost("goes without it", "a tombstone remembers", reason=LOST)
    assert await fleet.stones() == []

    await fleet.annotate(grace="1s")

    await fleet.hub.gone(SERVINGS)
    (stone,) = await fleet.stones()
    assert stone["data"]["profile"] == "fleet/spoke1"
    fleet.one.signal(signal.SIGCONT)
    await until(lambda: has_no_stones(fleet), "the tombstone is gone")
    await fleet.one.bare()


@pytest.mark.full
async def test_a_target_that_returns_in_time_is_cleaned_as_ever(fleet: Fleet) -> None:
    """Nothing has to be remembered."""
    await installed_and_frozen(fleet)
    await fleet.annotate(lost="defer")
    await fleet.hub.delete(SERVINGS)
    await fleet.lost("goes without it", reason=LOST)

    fleet.one.signal(signal.SIGCONT)

    await fleet.hub.gone(SERVINGS)
    await fleet.one.bare()
    assert await fleet.stones() == []


@pytest.mark.full
async def test_by_force_nothing_is_remembered_and_a_target_that_returns_keeps_all(
    fleet: Fleet,
) -> None:
    """An Event says what may be left."""
    await installed_and_frozen(fleet)
    await fleet.annotate(lost="force")

    await fleet.hub.delete(SERVINGS)

    await fleet.hub.gone(SERVINGS)
    await fleet.hub.tells("Abandoned", "fleet/spoke1", "by hand")
    assert await fleet.stones() == []
    fleet.one.signal(signal.SIGCONT)
    assert await fleet.one.exists(DEPLOYMENTS, "controller")


@pytest.mark.full
async def test_by_force_a_removal_that_cannot_end_ends(fleet: Fleet) -> None:
    """The target answers, and an object of the installation is held by a finalizer."""
    await fleet.start()
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    key = Key("knative-serving", "config-features")
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    await fleet.one.client.patch(CONFIG_MAPS, key, held)
    await fleet.annotate(lost="force")

    await fleet.hub.delete(SERVINGS)

    await fleet.hub.gone(SERVINGS)
    await fleet.hub.tells("Abandoned", "example.com/held")
    await fleet.one.client.patch(CONFIG_MAPS, key, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    ("policy", "stones"),
    [
        ("orphan", 1),
        ("defer", 1),
        ("force", 0),
    ],
)
@pytest.mark.full
async def test_another_cluster_in_its_place_is_never_touched(
    fleet: Fleet, policy: str, stones: int
) -> None:
    """The custom resource goes all the same, and so does one that is made for the new cluster."""
    await fleet.start()
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await fleet.operator.kill()
    await fleet.annotate(uid="another", lost=policy, grace="0s")
    await fleet.start()
    await fleet.lost("leads to another cluster", reason=LOST)

    await fleet.hub.delete(SERVINGS)

    await fleet.hub.gone(SERVINGS)
    left = await fleet.stones()
    assert [each["data"]["targetUid"] for each in left] == ["another"] * stones
    assert not await is_gone(fleet.one.client, CONFIG_MAPS, Key("knative-serving", ANCHOR))
    assert await fleet.one.exists(DEPLOYMENTS, "controller")
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await fleet.hub.delete(SERVINGS)
    await fleet.hub.gone(SERVINGS)
    await fleet.one.bare()
