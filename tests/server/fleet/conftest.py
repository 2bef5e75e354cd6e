"""A hub with the fleet's CRDs, shared by the tests of a module."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from knfleet.api.core import CRDS
from knfleet.api.crd import definitions
from knfleet.api.fleetcrds import hub_definitions, spoke_definitions
from knfleet.api.meta import Object
from knfleet.kube.client import Client
from knfleet.kube.endpoint import Connection
from tests.ground import Pool
from tests.waiting import until


@pytest.fixture(scope="module")
def fleet_connection(pool: Pool) -> Connection:
    """The administrator's connection to a hub that serves all kinds of the fleet."""

    async def install() -> Connection:
        (lent,) = await pool.lend(1)
        async with Client(lent.connection) as hub:
            wanted = [*definitions(), *hub_definitions(), *spoke_definitions()]
            await asyncio.gather(*(hub.apply(CRDS, each) for each in wanted))
            for each in wanted:
                await established(hub, each["metadata"]["name"])
        return lent.connection

    return asyncio.run(install())


@pytest.fixture
async def fleet(fleet_connection: Connection) -> AsyncIterator[Client]:
    """The administrator's client of a hub that serves all kinds of the fleet."""
    async with Client(fleet_connection) as hub:
        yield hub


async def established(hub: Client, name: str) -> None:
    """Return when the server serves a kind."""

    async def is_established() -> bool:
        crd: Object = await hub.get(CRDS, name)
        said: list[Object] = crd.get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in said)

    await until(is_established, f"{name} is served", seconds=30)
