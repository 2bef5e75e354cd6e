"""A hub with everything that `init` gives it, shared by the tests of a module."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from knfleet.api.core import CRDS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from testbed import hubs
from testbed.clusters import Pool


@pytest.fixture(scope="module")
def fleet_connection(pool: Pool) -> Connection:
    """The administrator's connection to a hub on which everything is installed."""

    async def install() -> Connection:
        (lent,) = await pool.lend(1)
        async with Client(lent.connection) as client:
            await hubs.install(lent.connection)
            for each in spoke_definitions():
                await client.apply(CRDS, each)
                await hubs.established(client, each["metadata"]["name"])
        return lent.connection

    return asyncio.run(install())


@pytest.fixture
async def fleet(fleet_connection: Connection) -> AsyncIterator[Client]:
    """The administrator's client of such a hub."""
    async with Client(fleet_connection) as client:
        yield client


@pytest.fixture
async def bootstrap(fleet_connection: Connection) -> Connection:
    """The connection of one who may ask to join."""
    return await hubs.as_bootstrap(fleet_connection)
