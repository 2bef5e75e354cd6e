"""Fixtures for tests of the dashboard: a fake hub with a fleet, and a dashboard of it."""

from collections.abc import AsyncIterator

import pytest
from msgspec import Struct

from knfleet.api.core import EVENTS
from knfleet.api.meta import HUB, Object, Resource
from knfleet.kube.auth.credentials import StaticCredential
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.web.server.authorization import KINDS
from knfleet.web.server.settings import WebSettings
from testbed.fakes.apiserver import ApiServers
from testbed.fakes.cluster import Cluster
from testbed.fakes.sockets import free_port
from tests.support import dashboards
from tests.support.dashboards import Running

CLUSTERS = 3


class FakeHub(Struct, frozen=True):
    """A fake hub, and how it is reached."""

    cluster: Cluster
    connection: Connection

    def put(self, resource: Resource, manifest: Object) -> Object:
        """Write an object."""
        return self.cluster.put(resource, manifest)


@pytest.fixture
async def fake_hub() -> AsyncIterator[FakeHub]:
    """A hub with three clusters, each with both components."""
    async with ApiServers() as servers:
        cluster = servers.add("hub", Cluster(*KINDS, EVENTS))
        connection = Connection(HUB, Endpoint(servers.url("hub")), StaticCredential())
        hub = FakeHub(cluster, connection)
        for resource, manifest in dashboards.fleet(CLUSTERS):
            hub.put(resource, manifest)
        yield hub


@pytest.fixture
async def running(fake_hub: FakeHub) -> AsyncIterator[Running]:
    """A dashboard of the fake hub."""
    async with dashboards.running(fake_hub.connection) as running:
        yield running


@pytest.fixture
async def acting(fake_hub: FakeHub) -> AsyncIterator[Running]:
    """A dashboard in which something can be done."""
    settings = WebSettings(port=free_port(), actions=True)
    async with dashboards.running(fake_hub.connection, settings) as running:
        yield running
