"""Events as a real API server takes them."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from knfleet.api.core import CONFIG_MAPS, EVENTS, NAMESPACES
from knfleet.api.meta import ClusterName, Key, Object
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.runtime.events.recorder import EventOptions, Events
from testbed.fakes.proxies import Wire
from testbed.waiting import PATIENCE_SECONDS


class Outcomes:
    """What became of Events."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.changed = asyncio.Event()

    def event(self, cluster: ClusterName, outcome: str) -> None:
        self.count[outcome] += 1
        self.changed.set()

    async def until(self, total: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.count.total() < total:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def recording(client: Client, waiting: int = 100) -> AsyncGenerator[tuple[Events, Outcomes]]:
    """A recorder that runs as long as the block."""
    outcomes = Outcomes()
    events = Events(client, "knfleet", EventOptions(waiting=waiting, observe=outcomes))
    task = asyncio.ensure_future(events.run())
    try:
        yield events, outcomes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def config_map(client: Client, name: str) -> Object:
    return await client.create(
        CONFIG_MAPS,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
        },
    )


async def about(client: Client, name: str, namespace: str = "default") -> list[Object]:
    listing = await client.list(EVENTS, namespace, fields=f"involvedObject.name={name}")
    return sorted(listing.items, key=lambda event: event["message"])


async def test_what_happens_again_is_counted_on_the_event_that_is_there(hub: Client):
    """Two messages, one of them three times: two Events."""
    manifest = await config_map(hub, "repeated")
    async with recording(hub) as (events, outcomes):
        for message in ("broken", "broken", "mended", "broken"):
            events.warning(manifest, "Changed", message)
        await outcomes.until(4)

    written = await about(hub, "repeated")
    assert [(event["message"], event["count"]) for event in written] == [
        ("broken", 3),
        ("mended", 1),
    ]
    assert written[0]["involvedObject"]["uid"] == manifest["metadata"]["uid"]
    assert written[0]["source"]["component"] == "knfleet"
    assert outcomes.count == {"written": 4}


async def test_an_event_that_expired_is_written_again(hub: Client):
    """Servers delete Events after an hour; the count goes on."""
    manifest = await config_map(hub, "expired")
    async with recording(hub) as (events, outcomes):
        events.normal(manifest, "Made", "made")
        await outcomes.until(1)
        (first,) = await about(hub, "expired")
        await hub.delete(EVENTS, Key.of(first))
        events.normal(manifest, "Made", "made")
        await outcomes.until(2)

    (again,) = await about(hub, "expired")
    assert again["count"] == 2


async def test_long_messages_and_cluster_scoped_objects_are_accepted(hub: Client):
    """Cut to what fits, and put where the server wants them."""
    manifest = await hub.get(NAMESPACES, "kube-system") | {"apiVersion": "v1", "kind": "Namespace"}
    async with recording(hub) as (events, outcomes):
        events.normal(manifest, "Told", "ü" * 5000)
        await outcomes.until(1)

    (event,) = await about(hub, "kube-system")
    assert len(event["message"].encode()) <= 1024
    assert outcomes.count == {"written": 1}


async def test_a_cluster_that_does_not_answer_costs_events_and_nothing_else(
    hub_connection: Connection, hub: Client
):
    """Recording returns at once; what does not fit is dropped, what fails is told."""
    manifest = await config_map(hub, "unheard")
    async with Wire(hub_connection.endpoint.server) as wire:
        wire.refusing = True
        endpoint = Endpoint(wire.url, ca=hub_connection.endpoint.ca)
        away = Connection(ClusterName("away"), endpoint, hub_connection.credentials)
        async with (
            Client(away, ClientOptions(attempts=1)) as client,
            recording(client, waiting=5) as (events, outcomes),
        ):
            for number in range(20):
                events.warning(manifest, f"Reason{number}", "lost")
            dropped = outcomes.count["dropped"]
            await outcomes.until(20)

    assert dropped == 15
    assert outcomes.count == {"dropped": 15, "failed": 5}


async def test_what_was_recorded_last_is_written_at_the_end(hub: Client):
    """A process that ends tells why."""
    manifest = await config_map(hub, "last")
    async with recording(hub) as (events, _):
        await asyncio.sleep(0)
        for number in range(5):
            events.normal(manifest, f"Reason{number}", "goodbye")

    assert len(await about(hub, "last")) == 5
