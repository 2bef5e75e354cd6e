"""What tests against a real API server share."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from knfleet.kube.client import Client
from knfleet.kube.endpoint import Connection
from tests.server.controlplane import control_plane


@pytest.fixture(scope="session")
def hub_connection(tmp_path_factory: pytest.TempPathFactory) -> Generator[Connection, None, None]:
    """A clean real cluster, with all rights."""
    folder: Path = tmp_path_factory.mktemp("hub")
    with control_plane(folder) as connection:
        yield connection


@pytest.fixture
async def hub(hub_connection: Connection) -> AsyncGenerator[Client, None]:
    """A client for the real cluster."""
    async with Client(hub_connection) as client:
        yield client
