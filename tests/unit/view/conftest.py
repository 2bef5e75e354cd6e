"""Fixtures for tests of what people see: a fake fleet, and a client of its hub."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Endpoint
from testbed.fakes.clients import client_for
from testbed.fakes.fleet import Fleet, a_fleet


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fake hub without spokes."""
    async with a_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
async def hub(fleet: Fleet) -> AsyncIterator[Client]:
    """A client of the fake hub."""
    endpoint = Endpoint(fleet.servers.url("hub"), ca=fleet.authority.pem)
    async with client_for(endpoint) as client:
        yield client
