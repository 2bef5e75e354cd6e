"""Two hubs on one spoke, and operators that are killed on the way."""

from pathlib import Path

import pytest

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.clusters.anchor import HUB_UID
from testbed.operators import Hub, Operator
from testbed.waiting import until
from tests.support.expected import members
from tests.support.fleets import ANCHOR, FLEET, Fleet


async def test_a_second_hub_is_refused_removes_nothing_and_may_take_over(
    fleet: Fleet, small_root: Path, tmp_path: Path
) -> None:
    """A dead hub's place is given up by hand; when it returns, it is the one that is refused."""
    await fleet.start()
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    pods = await fleet.one.pods()
    second = await another_hub(fleet)
    operator = Operator(second.hub.lent.kubeconfig, small_root, tmp_path / "second.log")
    second.operator = operator
    try:
        await second.start()
        await second.deploy()
        uid = (await fleet.hub.client.get(NAMESPACES, "kube-system"))["metadata"]["uid"]
        await second.hub.says(SERVINGS, "InstallSucceeded", "another hub", uid)
        await second.hub.delete(SERVINGS)
        await second.hub.gone(SERVINGS)
        assert await fleet.one.pods() == pods
        await fleet.hub.ready(SERVINGS, "1.23.0")

        await fleet.operator.kill()
        given_up: Object = {"metadata": {"annotations": {HUB_UID: None}}}
        await fleet.one.client.patch(CONFIG_MAPS, Key("knative-serving", ANCHOR), given_up)
        await second.deploy()
        await second.hub.ready(SERVINGS, "1.23.0")
        assert await fleet.one.pods() == pods
        await fleet.start()
        await fleet.hub.says(SERVINGS, "InstallSucceeded", "another hub")
        await fleet.hub.delete(SERVINGS)
        await fleet.hub.gone(SERVINGS)
        assert await fleet.one.pods() == pods
    finally:
        await operator.kill()


async def another_hub(fleet: Fleet) -> Fleet:
    """The second spoke as a hub of its own, with a profile for the first."""
    hub = Hub(fleet.two.lent, fleet.two.client)
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}}
    await hub.client.apply(NAMESPACES, namespace)
    await hub.prepare()
    second = Fleet(hub, [fleet.one], fleet.folder, fleet.operator.releases)
    await second.profile("spoke1")
    return second


@pytest.mark.full
async def test_an_operator_that_is_killed_again_and_again_gets_there(fleet: Fleet) -> None:
    """Installing and removing; nothing is lost from sight, nothing is left."""
    await fleet.deploy()
    for count in (1, 4, 8):
        await fleet.start()
        await until(lambda least=count: has_members(fleet, least), f"{count} objects are there")
        await fleet.operator.kill()
    await fleet.start()
    await fleet.hub.ready(SERVINGS, "1.23.0")

    await fleet.hub.delete(SERVINGS)
    for count in (10, 5, 1):
        await until(lambda most=count: has_fewer(fleet, most), f"{count} objects are left")
        await fleet.operator.kill()
        await fleet.start()

    await fleet.hub.gone(SERVINGS)
    await fleet.one.bare()


async def has_members(fleet: Fleet, count: int) -> bool:
    """Whether so many objects are installed."""
    return len(await members(fleet.one.client)) >= count


async def has_fewer(fleet: Fleet, count: int) -> bool:
    """Whether no more objects are left."""
    return len(await members(fleet.one.client)) <= count
