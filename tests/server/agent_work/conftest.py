"""A hub that is its own spoke, with the CRDs of works."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from knfleet.api.core import CRDS
from knfleet.api.crds.fleet import hub_definitions, spoke_definitions
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from testbed import hubs
from testbed.clusters import Pool
from tests.support.works import WorkBench, prepare


@pytest.fixture(scope="module")
def works_connection(pool: Pool) -> Connection:
    """The administrator's connection to a cluster with the CRDs of works."""

    async def install() -> Connection:
        (lent,) = await pool.lend(1)
        async with Client(lent.connection) as client:
            for each in (*hub_definitions(), *spoke_definitions()):
                if each["spec"]["group"] == "work.open-cluster-management.io":
                    await client.apply(CRDS, each)
                    await hubs.established(client, each["metadata"]["name"])
            await prepare(client)
        return lent.connection

    return asyncio.run(install())


@pytest.fixture
async def bench(works_connection: Connection) -> AsyncIterator[WorkBench]:
    """Works on such a cluster."""
    async with Client(works_connection) as client:
        yield WorkBench(client, works_connection)
