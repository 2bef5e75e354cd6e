"""A gRPC server under agents that take all they can: others are served, and memory is bounded."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from msgspec import Struct

from knfleet.agent.grpc.event_channel import EventChannel, GrpcIdentity, credentials
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.meta import Key
from knfleet.api.work.manifestwork import WORKS
from knfleet.cloudevents.cloud_event import Subscription, subscription_bytes
from knfleet.cloudevents.event_types import BUNDLES, HUB_SOURCE
from knfleet.cloudevents.protobuf_messages import SUBSCRIBE
from knfleet.hub.grpc.event_service import ServiceLimits
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import NotFound
from testbed import grpc_servers, hubs
from testbed.grpc_servers import RunningServer
from testbed.waiting import until
from tests.support.grpc_calls import (
    CertificateMaker,
    accepted_cluster,
    calling,
    subscription_refusal,
)
from tests.support.grpc_works import work

pytestmark = pytest.mark.full
STREAMS = 8
FLOOD = 2000
CHANGES = 300
"""So often is a work changed that a slow reader does not read."""


class Flooded(Struct, frozen=True):
    """A gRPC server, and the agents of two clusters."""

    hub: Client
    server: RunningServer
    one: GrpcIdentity
    other: GrpcIdentity

    @property
    def open_streams(self) -> int:
        """The subscriptions to works of c1 that the server keeps."""
        return len(self.server.server.broker.subscriptions.get(("c1", BUNDLES), ()))


@pytest.fixture
async def flooded(
    fleet: Client, fleet_connection: Connection, tmp_path: Path
) -> AsyncIterator[Flooded]:
    """Everything that runs; two clusters are accepted."""
    limits = ServiceLimits(streams_per_caller=STREAMS)
    async with (
        hubs.running(fleet_connection),
        grpc_servers.running(fleet_connection, tmp_path, limits=limits) as server,
    ):
        for name in ("c1", "c2"):
            try:
                await fleet.get(CLUSTERS, name)
            except NotFound:
                await accepted_cluster(fleet, name)
        maker = await CertificateMaker.of(fleet)
        made = Flooded(fleet, server, maker.identity("c1"), maker.identity("c2"))
        async with calling(server, made.one) as one, calling(server, made.other, "c2") as other:
            for agent in (one, other):
                await until(lambda each=agent: may_follow(each), "an agent has rights")
        yield made


async def may_follow(agent: EventChannel) -> bool:
    """Whether the rights of an agent are in effect."""
    return await subscription_refusal(agent, BUNDLES) == ""


@asynccontextmanager
async def raw(scene: Flooded) -> AsyncGenerator[Any]:
    """A channel of the agent of c1 that follows no rules."""
    secured = credentials(scene.server.ca, scene.one)
    channel = grpc.aio.secure_channel(scene.server.url, secured)
    try:
        yield channel
    finally:
        await channel.close()


async def test_thousands_of_streams_of_one_agent_take_nothing_from_another(flooded: Flooded):
    request = subscription_bytes(Subscription(HUB_SOURCE, "c1", str(BUNDLES)))
    async with raw(flooded) as channel, calling(flooded.server, flooded.other, "c2") as other:
        calls = [channel.unary_stream(SUBSCRIBE)(request) for _ in range(FLOOD)]

        async def is_answered() -> bool:
            return flooded.open_streams > 0

        await until(is_answered, "some streams are served")
        assert await subscription_refusal(other, BUNDLES) == ""
        assert flooded.open_streams <= STREAMS
        for each in calls:
            each.cancel()

        async def is_empty() -> bool:
            return flooded.open_streams == 0

        await until(is_empty, "the server forgets streams that ended")
    assert await subscription_refused_for(flooded) == ""


async def subscription_refused_for(flooded: Flooded) -> str:
    """Why the flooding agent is refused once it behaves; empty when it is not."""
    why = ""

    async def is_served() -> bool:
        nonlocal why
        async with calling(flooded.server, flooded.one) as agent:
            why = await subscription_refusal(agent, BUNDLES)
        return not why

    await until(is_served, "an agent that behaves again is served")
    return why


async def test_a_slow_reader_is_kept_one_state_for_each_work(flooded: Flooded):
    """What it did not read is not queued: the server keeps the names of what changed."""
    await flooded.hub.create(WORKS, work("w1"))
    request = subscription_bytes(Subscription(HUB_SOURCE, "c1", str(BUNDLES)))
    key = Key("c1", "w1")
    async with raw(flooded) as channel, calling(flooded.server, flooded.other, "c2") as other:
        slow = channel.unary_stream(SUBSCRIBE)(request)
        await slow.initial_metadata()
        for number in range(CHANGES):
            text = "x" * 4096 + str(number)
            await flooded.hub.patch(WORKS, key, {"spec": work("w1", text)["spec"]})
        assert await subscription_refusal(other, BUNDLES) == ""

        broker = flooded.server.server.broker
        (kept,) = broker.subscriptions[("c1", BUNDLES)]
        assert len(kept.pending) <= 1
        slow.cancel()
    await flooded.hub.delete(WORKS, key)
