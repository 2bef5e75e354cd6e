"""A hub with everything that `init` gives it, shared by the tests of a module."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from testbed import hubs
from testbed.clusters import Lent, Pool

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each module on one worker, so that its hub is installed once."""
    for each in items:
        if each.path.parent == HERE:
            each.add_marker(pytest.mark.xdist_group(f"hub {each.path.stem}"))


@pytest.fixture(scope="session")
def hub_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """The control plane of this worker that is always a hub; its CRDs stay between modules."""
    pool = Pool(tmp_path_factory.mktemp("hubs") / "dev")
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def fleet_lent(hub_pool: Pool) -> Lent:
    """A cluster that is a hub: everything is installed on it but the hub's own pod."""
    return asyncio.run(hubs.lend_kept_hub(hub_pool))


@pytest.fixture(scope="module")
def fleet_connection(fleet_lent: Lent) -> Connection:
    """The administrator's connection to such a hub."""
    return fleet_lent.connection


@pytest.fixture
async def fleet(fleet_connection: Connection) -> AsyncIterator[Client]:
    """The administrator's client of such a hub."""
    async with Client(fleet_connection) as client:
        yield client


@pytest.fixture
async def bootstrap(fleet_connection: Connection) -> Connection:
    """The connection of one who may ask to join."""
    return await hubs.as_bootstrap(fleet_connection)
