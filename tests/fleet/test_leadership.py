"""A hub that does not answer for longer than the Lease holds: who led stops, and goes on later."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.apply.well_known import PART_OF
from knfleet.dev import processes
from testbed.operators import Operator
from testbed.waiting import until
from tests.support.fleets import FLEET, Fleet, SpokeCluster

QUICK = {"lease-duration": "4s", "renew-deadline": "3s", "retry-period": "400ms"}
LOST = "leadership lost; everything is stopped"


@pytest.fixture
async def other(fleet: Fleet, small_root: Path, tmp_path: Path) -> AsyncIterator[Operator]:
    """A second operator, not started yet."""
    made = Operator(fleet.hub.lent.kubeconfig, small_root, tmp_path / "other.log")
    yield made
    await made.kill()


@pytest.mark.parametrize("flags", [(), pytest.param(("--share-spokes",), marks=pytest.mark.full)])
async def test_operators_outlive_a_hub_that_is_away_longer_than_the_lease(
    fleet: Fleet, other: Operator, flags: tuple[str, ...]
) -> None:
    """Meanwhile nothing of one that led runs; then the same processes go on."""
    settings: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "config-leader-election", "namespace": FLEET},
        "data": QUICK,
    }
    await fleet.hub.client.apply(CONFIG_MAPS, settings)
    provided = f"--clusterprofile-provider-file={fleet.providers}"
    await fleet.start(provided, *flags)
    await until(lambda: '"leading"' in fleet.operator.said(), "it leads")
    await other.start(provided, *flags, SYSTEM_NAMESPACE=FLEET)
    await until(lambda: '"following"' in other.said(), "the other one follows")
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    pids = pid(fleet.operator), pid(other)

    server = processes.recorded(fleet.hub.lent.folder)["hub.kube-apiserver"]
    os.kill(server.pid, signal.SIGSTOP)
    try:
        await until(lambda: LOST in fleet.operator.said() or has_ended(fleet.operator), "it stops")
        assert not has_ended(fleet.operator), fleet.operator.said()
        # With shared spokes it may be the other one that works there, until it stops as well.
        for each in (fleet.operator, other):
            await until(lambda at=each: not is_connected(at, fleet.one), "nobody is on the spoke")
        lacking = await damage(fleet.one)
        assert await fleet.operator.fetch("/healthz") == "ok"
        assert not await fleet.one.exists(CONFIG_MAPS, lacking)
    finally:
        os.kill(server.pid, signal.SIGCONT)

    await until(lambda: fleet.one.exists(CONFIG_MAPS, lacking), "the damage is repaired")
    await fleet.hub.change(SERVINGS, config={"logging": {"again": "yes"}})
    await fleet.hub.ready(SERVINGS, "1.23.0")
    assert (pid(fleet.operator), pid(other)) == pids
    assert not has_ended(fleet.operator)
    assert not has_ended(other)


def pid(operator: Operator) -> int:
    """The process that an operator is."""
    assert operator.process is not None
    return operator.process.pid


def has_ended(operator: Operator) -> bool:
    """Whether it runs no more."""
    return operator.process is None or operator.process.returncode is not None


def is_connected(operator: Operator, spoke: SpokeCluster) -> bool:
    """Whether an operator has a connection to a spoke's API server."""
    port = urlsplit(spoke.lent.connection.endpoint.server).port
    found = psutil.Process(pid(operator)).net_connections("tcp")
    return any(each.raddr and each.raddr.port == port for each in found)


async def damage(spoke: SpokeCluster) -> str:
    """Delete something of ours on a spoke; its name."""
    found = await spoke.client.list(CONFIG_MAPS, "knative-serving", labels=PART_OF)
    name = next(each["metadata"]["name"] for each in found.items)
    await spoke.client.delete(CONFIG_MAPS, Key("knative-serving", name))
    return name
