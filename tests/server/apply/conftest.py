"""What tests of the apply engine share: a clean cluster, its clients, and sets to apply."""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import pytest

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.meta import ClusterName, Key, Object, Resource
from knfleet.apply.act.writer import Deadlines
from knfleet.apply.applyset import ApplySet
from knfleet.apply.engine import Engine
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError
from tests.support.objects import SET, namespace

QUICK = Deadlines(passing_seconds=10, established_seconds=20, webhook_seconds=20, gone_seconds=40)


class Requests:
    """Counts what a client asks of its server."""

    def __init__(self) -> None:
        self.verbs: Counter[str] = Counter()

    def request(self, cluster: ClusterName, verb: str, code: int, seconds: float) -> None:
        """One attempt ended."""
        self.verbs[verb] += 1

    def watch_restarted(
        self, cluster: ClusterName, resource: Resource, error: KubeError | None
    ) -> None:
        """Not counted."""

    def credential_refreshed(self, cluster: ClusterName) -> None:
        """Not counted."""

    @property
    def writes(self) -> int:
        """Requests that may change something."""
        reads = sum(self.verbs[verb] for verb in ("get", "list", "watch", "raw"))
        return sum(self.verbs.values()) - reads

    @property
    def total(self) -> int:
        """All requests."""
        return sum(self.verbs.values())


class Bench:
    """One cluster, and engines that work on it."""

    def __init__(self, client: Client, connection: Connection, requests: Requests) -> None:
        self.client = client
        self.connection = connection
        self.requests = requests

    def engine(self, applyset: ApplySet = SET, deadlines: Deadlines = QUICK) -> Engine:
        """A new engine, as after a restart of the process."""
        return Engine(self.client, applyset, deadlines=deadlines)

    async def get(self, resource: Resource, name: str, at: str = "home") -> Object:
        """An object as it is."""
        return await self.client.get(resource, name, at if resource.namespaced else "")

    async def exists(self, resource: Resource, name: str, at: str = "home") -> bool:
        """Whether there is an object."""
        found = await self.client.list(resource, at, fields=f"metadata.name={name}")
        return bool(found.items)

    async def wrote(self, work: Callable[[], Awaitable[object]]) -> int:
        """How many writes some work costs."""
        before = self.requests.writes
        await work()
        return self.requests.writes - before


@pytest.fixture
async def bench(hub_connection: Connection) -> AsyncGenerator[Bench, None]:
    """The cluster with the namespace in which sets have their parents."""
    requests = Requests()
    async with Client(hub_connection, ClientOptions(observe=requests)) as client:
        await client.create(NAMESPACES, namespace("home"))
        yield Bench(client, hub_connection, requests)


@pytest.fixture
async def stranger(hub_connection: Connection) -> AsyncIterator[Client]:
    """Somebody else with all rights, whose field manager is `stranger`."""
    async with Client(hub_connection, ClientOptions(manager="stranger")) as client:
        yield client


@pytest.fixture
async def go_operator(hub_connection: Connection) -> AsyncIterator[Client]:
    """A client that writes as the Go operator does."""
    async with Client(hub_connection, ClientOptions(manager="manifestival")) as client:
        yield client


def other_set(name: str) -> ApplySet:
    """Another set beside the usual one."""
    return ApplySet(CONFIG_MAPS, Key("home", name))
