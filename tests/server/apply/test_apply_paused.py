"""Removals while the controllers of the cluster are frozen."""

import pytest

from knfleet.api.core import DEPLOYMENTS, PODS, REPLICA_SETS
from knfleet.api.meta import Key, Object
from testbed.clusters import Lent
from testbed.waiting import until
from tests.server.apply.conftest import Bench
from tests.support.objects import deployment
from tests.support.paused import controllers_stand_still


@pytest.fixture
async def pod(bench: Bench) -> Key:
    """The one pod of a Deployment that is installed."""
    assert (await bench.engine().apply([deployment("w")])).settled
    found: list[Object] = []

    async def there() -> bool:
        found[:] = (await bench.client.list(PODS, "home")).items
        return bool(found) and found[0].get("status", {}).get("phase") == "Running"

    await until(there, "there is a pod")
    return Key.of(found[0])


async def left(bench: Bench) -> list[str]:
    """What is there of the Deployment and of all that it owns."""
    lists = [await bench.client.list(each, "home") for each in (DEPLOYMENTS, REPLICA_SETS, PODS)]
    return [each["metadata"]["name"] for found in lists for each in found.items]


async def test_a_removal_does_not_wait_for_the_garbage_collector(
    bench: Bench, lent: Lent, pod: Key
) -> None:
    """Our own objects are gone; the pod goes when the cluster's controllers see to it."""
    with controllers_stand_still(lent):
        changes = await bench.engine().uninstall()

        assert changes.settled
        assert [ref.kind for ref in changes.deleted] == ["Deployment"]
        assert not await bench.exists(DEPLOYMENTS, "w")
        assert pod.name in await left(bench)

    async def nothing_left() -> bool:
        return await left(bench) == []

    await until(nothing_left, "the pod is collected")
