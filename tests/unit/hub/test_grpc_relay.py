"""What strangers may have the gRPC server keep for them."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from knfleet.hub.grpc.relay_end import PER_CALLER, SMALL_FRAMES
from knfleet.hub.grpc.tls_relay import TlsRelay, server_context
from knfleet.hub.grpc.upload_meter import (
    DATA,
    END_STREAM,
    HEADERS,
    PREFACE_BYTES,
    RST_STREAM,
    STREAM_BYTES,
    UploadMeter,
)
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
        self.relay.caller_bytes = 30_000
        pair = self.servers.server("localhost")
        with readable(pair.certificate + b"\n" + pair.key) as path:
            self.relay.use(server_context(str(path), self.clients.pem.decode()))

    def held(self, user: str) -> int:
        """How much of incomplete messages a caller has."""
        return self.relay.callers[user].held.held

    async def connect(
        self, *, known: bool = False, user: str = "agent"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client, with a certificate or without."""
        context = ssl.create_default_context(cadata=self.servers.pem.decode())
        context.set_alpn_protocols(["h2"])
        if known:
            pair = self.clients.client(user, "agents")
            load_pair(context, pair.certificate, pair.key)
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname="localhost"
        )

    async def stranger(self, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client without a certificate that sends something, and then shows a valid token."""
        before = set(self.relay.peers)
        reader, writer = await self.connect()
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        assert self.relay.anonymous.held == len(sent)
        ((port, peer),) = [each for each in self.relay.peers.items() if each[0] not in before]
        peer.authenticated.set()
        await until(
            lambda: self.relay.anonymous.held == 0 or port not in self.relay.peers,
            "the connection is not anonymous any more",
        )
        return reader, writer


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


def frame(payload: bytes, stream: int = 1, *, kind: int = DATA, flags: int = 0) -> bytes:
    """A frame of HTTP/2."""
    head = bytes([kind, flags]) + stream.to_bytes(4, "big")
    return len(payload).to_bytes(3, "big") + head + payload


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_messages_count_until_they_are_complete(size: int):
    """However the bytes are cut on their way."""
    meter = UploadMeter()
    sent = b"".join(
        [
            b"P" * PREFACE_BYTES,
            frame(b"headers", kind=HEADERS),
            frame(b"x" * 900),
            frame(b"x" * 100),
            frame(b"x" * 500, 3),
            frame(b""),
            frame(b"x" * 50, 5, flags=END_STREAM),
            frame(b"settings", 0, kind=4),
        ]
    )

    changes = [meter.feed(sent[at : at + size]) for at in range(0, len(sent), size)]

    assert sum(changes) == meter.held == 1500 + 2 * STREAM_BYTES
    meter.feed(frame(b"", 1, flags=END_STREAM) + frame(b"0000", 3, kind=RST_STREAM))
    assert (meter.held, meter.streams) == (0, {})


async def test_messages_that_never_end_cost_their_sender_the_connection(scene: RelayScene):
    """Those of all its connections count; messages that end do not, nor those of others."""
    other = await scene.connect(known=True, user="other")
    endless = [await scene.connect(known=True) for _ in range(2)]
    part = frame(b"x" * 10_000)
    whole = frame(b"x" * 10_000, 3, flags=END_STREAM)
    for _, writer in (*endless, other):
        writer.write(b"P" * PREFACE_BYTES + part)
    for reader, writer in (*endless, other):
        await reader.readexactly(PREFACE_BYTES + len(part))
        for _ in range(10):
            writer.write(whole)
            assert await reader.readexactly(len(whole)) == whole

    reader, writer = endless[0]
    writer.write(part)

    assert await reader.read(len(part)) == b""
    await until(lambda: scene.held("agent") < 12_000, "what it held is not counted any more")
    for still, wire in (endless[1], other):
        wire.write(whole)
        assert await still.readexactly(len(whole)) == whole
    for _, wire in (*endless, other):
        wire.close()


async def test_many_connections_of_one_agent_make_room_for_each_other(scene: RelayScene):
    """The oldest ends; those of others stay."""
    other = await scene.connect(known=True, user="other")
    assert await passes(*other)
    mine = [await scene.connect(known=True) for _ in range(PER_CALLER)]
    for each in mine:
        assert await passes(*each)

    newest = await scene.connect(known=True)

    assert await passes(*newest)
    assert await mine[0][0].read(1) == b""
    assert await passes(*mine[1])
    assert await passes(*other)
    for _, writer in (*mine, newest, other):
        writer.close()


async def test_connections_of_one_agent_share_what_may_wait_for_reviews(scene: RelayScene):
    """Each connection without a certificate has its own, which is less."""
    relay = scene.relay
    made = [await scene.connect(known=True), await scene.connect(known=True)]
    made += [await scene.connect(), await scene.connect()]
    await until(lambda: len(relay.peers) == len(made), "all connections are relayed")
    waiting = sorted((each.waiting for each in relay.peers.values()), key=lambda each: -each.limit)

    assert waiting[0] is waiting[1]
    assert len({id(each) for each in waiting}) == 3
    assert waiting[2].limit < waiting[0].limit
    for _, writer in made:
        writer.close()


PART = b"P" * PREFACE_BYTES + frame(b"x" * 10_000)
COUNTED = 10_000 + STREAM_BYTES


async def is_cut_off(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes
) -> bool:
    """Whether a connection ends when it sends something."""
    try:
        writer.write(sent)
        return len(await reader.read(len(sent))) == 0
    except ConnectionError:
        return True


@pytest.mark.parametrize("payload", [b"", b"x"], ids=["empty", "short"])
async def test_a_client_of_small_frames_alone_is_cut_off(scene: RelayScene, payload: bytes):
    """Each is looked at, and the gRPC server has nothing of it; as many as calls take may come."""
    busy, other = await scene.connect(known=True), await scene.connect(known=True, user="other")
    small = frame(payload, kind=0x20)
    some = b"P" * PREFACE_BYTES + small * 500
    for reader, writer in (busy, other):
        writer.write(some)
        assert await reader.readexactly(len(some)) == some

    busy[1].write(small * (4 * SMALL_FRAMES))

    assert not await comes(busy[0], 3 * SMALL_FRAMES * len(small))
    assert not await is_cut_off(*other, small)
    for _, writer in (busy, other):
        writer.close()


async def comes(reader: asyncio.StreamReader, size: int) -> bool:
    """Whether so much comes before the connection ends."""
    try:
        await reader.readexactly(size)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return True


async def test_bytes_count_once_whether_a_token_was_shown_or_not(scene: RelayScene):
    reader, writer = await scene.stranger(PART)

    assert scene.relay.strangers.held.held == COUNTED

    writer.close()
    await until(lambda: scene.relay.strangers.held.held == 0, "nothing is counted any more")
    assert scene.relay.anonymous.held == 0
    assert await reader.read(1) == b""


async def test_a_token_does_not_let_a_connection_keep_others_from_joining(scene: RelayScene):
    """Its incomplete messages have a limit of their own, and count for no one else."""
    scene.relay.strangers.each = 2 * COUNTED
    endless = await scene.stranger(PART)
    more = frame(b"x" * 9_000, 3)
    endless[1].write(more)
    assert await endless[0].readexactly(len(more)) == more

    joining = await scene.stranger(PART)

    assert await is_cut_off(*endless, frame(b"x" * 9_000, 5))
    await until(lambda: scene.relay.strangers.held.held == COUNTED, "what it held is forgotten")
    assert not await is_cut_off(*joining, frame(b"x" * 100, 3))
    joining[1].close()


async def test_connections_with_tokens_that_hold_most_make_room_for_others(scene: RelayScene):
    """When all together hold too much."""
    scene.relay.strangers.held.limit = 3 * COUNTED
    endless = await scene.stranger(PART)
    more = frame(b"x" * 15_000, 3)
    endless[1].write(more)
    assert await endless[0].readexactly(len(more)) == more

    joining = await scene.stranger(PART)

    assert await is_cut_off(*endless, frame(b"x" * 100, 5))
    assert not await is_cut_off(*joining, frame(b"x" * 100, 3))
    joining[1].close()


async def test_it_is_logged_when_clients_that_are_not_known_send_too_much(scene: RelayScene):
    with capture_logs() as logs:
        clients = [await scene.connect() for _ in range(2)]
        assert [await passes(*each) for each in clients] == [True, False]
    for _, writer in clients:
        writer.close()

    assert "clients that are not known have sent too much" in [each["event"] for each in logs]
