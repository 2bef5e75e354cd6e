"""What those who flood the ports of the tunnel take from others."""

import asyncio
import base64
import ssl
from contextlib import suppress
from typing import Any, cast

from knfleet.api.meta import Object
from knfleet.hub.informers import HubInformers
from knfleet.hub.tunnel.agent_listener import ListenerLimits
from knfleet.hub.tunnel.front.connect_request import ConnectRequest, Refusal
from knfleet.hub.tunnel.front.front_authorizer import REVIEWS_AT_ONCE, FrontAuthorizer
from knfleet.hub.tunnel.front.tunnel_front import FrontLimits
from knfleet.hub.tunnel.tunnel_registry import PER_CLUSTER
from knfleet.kube.auth.tls import load_pair
from knfleet.kube.client.verbs import Client
from knfleet.runtime.mux.protocol_name import ALPN
from knfleet.runtime.mux.session import MuxLimits
from testbed.fakes.tunnels import NAME, TunnelHub
from testbed.waiting import until
from tests.unit.tunnel.waits import opened


async def idle(port: int, count: int) -> list[asyncio.StreamWriter]:
    """Connections that say nothing."""
    made = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    return [writer for _, writer in made]


async def test_connections_that_say_nothing_keep_no_agent_out(api: str):
    hub = TunnelHub(listener=ListenerLimits(handshakes=4, handshake_seconds=600))
    hub.accept("c1")
    async with hub.running():
        strangers = await idle(hub.listener.address.port, 4)
        await until(lambda: len(hub.listener.admission.guests) == 4, "the hub waits for them")
        async with hub.agent("c1", api):
            await opened(hub)
        for each in strangers:
            each.close()


async def test_connections_that_say_nothing_keep_no_consumer_out(api: str):
    hub = TunnelHub(front=FrontLimits(connections=4, per_address=4, head_seconds=600))
    hub.accept("c1")
    async with hub.running(), hub.agent("c1", api):
        await opened(hub)
        strangers = await idle(hub.front.address.port, 4)
        await until(lambda: len(hub.front.admission.guests) == 4, "the front waits for them")

        head, _, writer = await hub.consumer("c1")

        assert b" 200 " in head
        for each in (*strangers, writer):
            each.close()
        await until(lambda: not hub.front.admission.guests, "all are forgotten")


async def test_streams_that_are_open_make_no_room(api: str):
    hub = TunnelHub(front=FrontLimits(connections=2, per_address=2))
    hub.accept("c1")
    async with hub.running(), hub.agent("c1", api):
        await opened(hub)
        streams = [await hub.consumer("c1") for _ in range(2)]
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await hub.consumer("c1")

        for _, reader, writer in streams:
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            writer.close()


async def test_one_consumer_does_not_take_all_streams_of_a_cluster(api: str):
    """The operator has its own beside those of a user, and those of other clusters."""
    hub = TunnelHub(front=FrontLimits(streams_per_user=2))
    hub.accept("c1")
    hub.accept("c2")
    async with hub.running(), hub.agent("c1", api), hub.agent("c2", api):
        await opened(hub)
        await until(lambda: hub.registry.get("c2") is not None, "the other tunnel is open")
        streams = [await hub.consumer("c1") for _ in range(2)]

        head, _, refused = await hub.consumer("c1")

        assert b" 503 any has 2 streams to cluster c1 already" in head
        refused.close()
        for cluster, user in (("c1", "operator"), ("c2", "any")):
            head, _, writer = await hub.consumer(cluster, user=user)
            assert b" 200 " in head
            writer.close()
        streams[0][2].close()

        async def is_free() -> bool:
            head, _, writer = await hub.consumer("c1")
            writer.close()
            return b" 200 " in head

        await until(is_free, "a stream that ended counts no more")
        streams[1][2].close()
        await until(lambda: not hub.front.streams, "all are forgotten")


async def test_an_agent_that_connects_again_and_again_takes_no_others_place(api: str):
    limits = ListenerLimits(connections=PER_CLUSTER + 2)
    hub = TunnelHub(listener=limits, mux=MuxLimits(open_seconds=600))
    hub.accept("greedy")
    hub.accept("c1")
    context = ssl.create_default_context(cadata=hub.serving.bundle.decode())
    pair = hub.certificate("greedy")
    load_pair(context, pair.certificate, pair.key)
    context.set_alpn_protocols([ALPN])
    port = hub.listener.address.port
    async with hub.running():
        greedy = [
            await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=NAME)
            for _ in range(PER_CLUSTER + 2)
        ]
        for reader, _ in greedy:
            # HELLO: the hub has seen the certificate.
            await reader.read(1)

        assert len(hub.registry.connections) == PER_CLUSTER
        async with hub.agent("c1", api):
            await opened(hub)
        for _, writer in greedy:
            writer.close()


class SlowReviews:
    """An API server that takes its time."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer = asyncio.Event()

    async def create(self, *_: Any) -> Object:
        """A review."""
        self.asked += 1
        await self.answer.wait()
        return {"status": {}}


async def test_tokens_of_strangers_are_reviewed_a_few_at_a_time():
    """The reviews go by the client that the hub itself lives by."""
    server = SlowReviews()
    authorizer = FrontAuthorizer(cast("Client", server), cast("HubInformers", None), lambda: None)

    async def ask(number: int) -> None:
        token = base64.b64encode(b"%d" % number).decode()
        with suppress(Refusal):
            await authorizer.authorize(ConnectRequest("c1", token, "a:1"))

    asking = [asyncio.ensure_future(ask(number)) for number in range(100)]
    await until(lambda: server.asked >= REVIEWS_AT_ONCE, "reviews are under way")
    assert server.asked == REVIEWS_AT_ONCE

    server.answer.set()
    await asyncio.gather(*asking)
    assert server.asked == 100
