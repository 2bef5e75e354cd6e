"""What strangers may have the gRPC server keep for them."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from knfleet.hub.grpc.tls_relay import TlsRelay, server_context
from knfleet.kube.auth.tls import load_pair, readable
from knfleet.runtime.http.listen_address import ListenAddress
from testbed.fakes.certificates import Authority
from testbed.fakes.sockets import free_port
from testbed.waiting import until
from tests.unit.tunnel.waits import echo_server

SENT = b"\0" * 15_000


class RelayScene:
    """A relay in front of a server that sends back what it gets."""

    def __init__(self, target_port: int) -> None:
        self.servers, self.clients = Authority("servers"), Authority("clients")
        self.port = free_port()
        self.relay = TlsRelay(ListenAddress("127.0.0.1", self.port), target_port)
        self.relay.anonymous.limit = 20_000
        pair = self.servers.server("localhost")
        with readable(pair.certificate + b"\n" + pair.key) as path:
            self.relay.use(server_context(str(path), self.clients.pem.decode()))

    async def connect(
        self, *, known: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client, with a certificate or without."""
        context = ssl.create_default_context(cadata=self.servers.pem.decode())
        context.set_alpn_protocols(["h2"])
        if known:
            pair = self.clients.client("agent", "agents")
            load_pair(context, pair.certificate, pair.key)
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname="localhost"
        )


@pytest.fixture
async def scene() -> AsyncIterator[RelayScene]:
    async with echo_server() as url:
        made = RelayScene(int(url.rpartition(":")[2]))
        task = asyncio.ensure_future(made.relay.run())
        await made.relay.listening.wait()
        yield made
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def passes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether what is sent arrives."""
    try:
        writer.write(SENT)
        return await reader.readexactly(len(SENT)) == SENT
    except (ConnectionError, asyncio.IncompleteReadError):
        return False


async def test_strangers_together_have_a_limit_that_agents_do_not_notice(scene: RelayScene):
    """Each alone is within its own."""
    first = await scene.connect()
    assert await passes(*first)
    second = await scene.connect()
    assert not await passes(*second)
    agent = await scene.connect(known=True)
    for _ in range(3):
        assert await passes(*agent)

    first[1].close()
    await until(lambda: scene.relay.anonymous.held == 0, "nothing is counted any more")
    third = await scene.connect()
    assert await passes(*third)
    for _, writer in (second, third, agent):
        writer.close()
