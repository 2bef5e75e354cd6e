"""A clean real cluster with its node, and a client for it."""

from collections.abc import AsyncIterator

import pytest

from knfleet.kube.client.verbs import Client
from testbed.clusters import Lent
from tests.server.node.cluster import Cluster


@pytest.fixture
async def cluster(lent: Lent) -> AsyncIterator[Cluster]:
    """The cluster as tests use it."""
    async with Client(lent.connection) as client:
        yield Cluster(client, lent)
