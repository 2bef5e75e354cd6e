"""Workloads that wait for a garbage collector that is late: the real one, frozen."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from knfleet.api.core import DEPLOYMENTS, PODS, REPLICA_SETS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.engine import Engine
from knfleet.apply.writing import Deadlines
from knfleet.kube.client import Client
from knfleet.kube.endpoint import Connection
from testbed.clusters import Lent
from testbed.waiting import until
from tests.server.apply.conftest import Bench
from tests.server.apply.test_apply_rights import ALL, account
from tests.support.objects import SET, deployment
from tests.support.paused import controllers_stand_still

PATIENT = Deadlines(gone_seconds=1)
DUE = Deadlines(gone_seconds=20, collected_seconds=0)
SOON_DUE = Deadlines(gone_seconds=1, collected_seconds=0)
HELD: Object = {"metadata": {"finalizers": ["example.com/clean"]}}
FREE: Object = {"metadata": {"finalizers": None}}


class Deletions(Client):
    """A client that remembers what it was asked to delete."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.asked: list[Key] = []

    async def delete(self, resource: Resource, key: Key, **rest: Any) -> Object:
        """Delete an object."""
        self.asked.append(key)
        return await super().delete(resource, key, **rest)


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


@pytest.fixture
async def narrow(bench: Bench) -> AsyncGenerator[Client]:
    """A client of an account with all rights on Deployments, and none on what they own."""
    allowed: list[Object] = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ALL},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ALL},
    ]
    async with account(bench, "narrow", allowed) as client:
        yield client


async def left(bench: Bench) -> list[str]:
    """What is there of the Deployment and of all that it owns."""
    lists = [await bench.client.list(each, "home") for each in (DEPLOYMENTS, REPLICA_SETS, PODS)]
    return [each["metadata"]["name"] for found in lists for each in found.items]


async def test_what_the_garbage_collector_leaves_is_collected(
    bench: Bench, lent: Lent, pod: Key
) -> None:
    """First it has its time, and the change says whom it waits for; then all goes, pods first."""
    with controllers_stand_still(lent):
        (waits,) = (await bench.engine(deadlines=PATIENT).uninstall()).pending
        assert "foregroundDeletion: the cluster's garbage collector" in waits.message
        assert pod.name in await left(bench)

        changes = await bench.engine(deadlines=DUE).uninstall()
        assert changes.settled
        assert [ref.kind for ref in changes.deleted] == ["Deployment"]
        assert await left(bench) == []


async def test_a_workload_stays_while_its_pods_do(
    bench: Bench, stranger: Client, lent: Lent, pod: Key
) -> None:
    """The pod and what holds it are named."""
    await stranger.patch(PODS, pod, HELD)
    with controllers_stand_still(lent):
        assert (await bench.engine(deadlines=PATIENT).uninstall()).pending

        (waits,) = (await bench.engine(deadlines=SOON_DUE).uninstall()).pending
        expected = f"waits for its pods: {pod} (held by the finalizers example.com/clean)"
        assert expected in waits.message
        assert await bench.exists(DEPLOYMENTS, "w")

        await stranger.patch(PODS, pod, FREE)
        assert (await bench.engine(deadlines=DUE).uninstall()).settled
        assert await left(bench) == []


async def test_a_pod_whose_removal_was_begun_is_asked_to_go_again(
    bench: Bench, stranger: Client, lent: Lent, pod: Key
) -> None:
    """A server that was killed between marking a pod and removing it needs that to go on."""
    await stranger.patch(PODS, pod, HELD)
    await stranger.delete(PODS, pod, grace_seconds=0)
    with controllers_stand_still(lent):
        assert (await bench.engine(deadlines=PATIENT).uninstall()).pending
        async with Deletions(bench.connection) as client:
            assert (await Engine(client, SET, deadlines=SOON_DUE).uninstall()).pending
            assert pod in client.asked

    await stranger.patch(PODS, pod, FREE)
    assert (await bench.engine().uninstall()).settled


async def test_a_finalizer_of_somebody_else_is_never_taken_away(
    bench: Bench, stranger: Client, lent: Lent, pod: Key
) -> None:
    """However long it takes, and beside the one of the garbage collector."""
    await stranger.patch(DEPLOYMENTS, Key("home", "w"), HELD)
    with controllers_stand_still(lent):
        for _ in range(2):
            (waits,) = (await bench.engine(deadlines=SOON_DUE).uninstall()).pending
            assert "example.com/clean" in waits.message
        assert pod.name in await left(bench)

    await stranger.patch(DEPLOYMENTS, Key("home", "w"), FREE)
    assert (await bench.engine().uninstall()).settled


async def test_without_rights_on_pods_it_waits_for_the_cluster(
    bench: Bench, narrow: Client, lent: Lent, pod: Key
) -> None:
    """Nothing is touched, and nothing fails for it."""
    engine = Engine(narrow, SET, deadlines=SOON_DUE)
    with controllers_stand_still(lent):
        for _ in range(2):
            changes = await engine.uninstall()
            assert [each.ref.kind for each in changes.pending] == ["Deployment"]
            assert not changes.failures
        assert pod.name in await left(bench)

    async def gone() -> bool:
        return (await engine.uninstall()).settled and await left(bench) == []

    await until(gone, "the garbage collector has done it")
