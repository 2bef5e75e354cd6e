"""The cheap way to ask a server again and again: what it understands, and what it leaves alone."""

import asyncio
import sys
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.kube.auth.credentials import Credential
from knfleet.kube.client.probe import ANSWER_LIMIT_BYTES, ApiProber, ProbeConnection, ProbeResult
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.errors import RequestTimeout
from testbed.fakes.clients import SECRET, Certificates, Heard, client_for
from testbed.fakes.server import Behaviour, Server, answer, drop, silence, status, stream

PATH = "/api/v1/namespaces/kube-system"
BODY = b'{"metadata": {"uid": "u"}}'
SECONDS = 5.0
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    b"5\r\n%b\r\n%x;a=b\r\n%b\r\n0\r\n\r\n" % (BODY[:5], len(BODY) - 5, BODY[5:])
)


@asynccontextmanager
async def a_pulse(
    *script: Behaviour, heard: Heard | None = None
) -> AsyncGenerator[tuple[ApiProber, Server, Client], None]:
    """A server that follows a script, and a connection to it that is open."""
    options = ClientOptions() if heard is None else ClientOptions(observe=heard)
    async with Server(*script) as server, client_for(server.url, options=options) as client:
        pulse = ApiProber(client.transport, PATH)
        await pulse.open(SECONDS)
        try:
            yield pulse, server, client
        finally:
            pulse.close()


class Wire(asyncio.Transport):
    """Takes whatever is written."""

    def write(self, data: object) -> None:
        """Take it."""

    def is_closing(self) -> bool:
        """Never."""
        return False

    def abort(self) -> None:
        """End, at no cost."""


async def outcome(*parts: bytes) -> ProbeResult | None:
    """What a question is answered with when this is received."""
    line = ProbeConnection()
    line.connection_made(Wire())
    asking = asyncio.create_task(line.send(b"", SECONDS))
    await asyncio.sleep(0)
    for part in parts:
        line.data_received(part)
    if not asking.done() and line.transport is not None:
        await asyncio.sleep(0)
        line.close()
    return await asking


@pytest.mark.parametrize("text", [PLAIN, CHUNKED])
@given(cut=st.integers(0, len(CHUNKED)))
def test_an_answer_is_understood_when_all_of_it_is_there(text: bytes, cut: int):
    """Wherever it is cut, the first part alone is no answer."""
    expected = ProbeResult(200, BODY, is_last=False)

    assert asyncio.run(outcome(text[:cut], text[cut:])) == expected
    if cut < len(text):
        assert asyncio.run(outcome(text[:cut])) is None


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN,
        PLAIN + PLAIN,
        b"x" * 300_000,
    ],
)
async def test_what_is_not_understood_is_said_to_be_so(text: bytes):
    """Nothing is guessed."""
    assert await outcome(text) is None


@pytest.mark.parametrize("size", [b"-2", b"-1", b"+5", b"0x5", b"1_0", b" 5", b"f" * 17])
async def test_a_chunk_has_a_size_that_chunks_have(size: bytes):
    """A negative one was read for ever: each round kept a copy of all that was received."""
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    tracemalloc.start()
    try:
        answered = await outcome(head + (size + b"\r\n") * 20_000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert answered is None
    assert most < 16 * ANSWER_LIMIT_BYTES


async def test_what_was_received_is_looked_at_once():
    """Chunks of one byte, received byte by byte, are no more work than as many bytes at once."""
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    text = head + b"1\r\nx\r\n" * (ANSWER_LIMIT_BYTES // 6)
    parts = [text[at : at + 1] for at in range(len(text))]
    calls = 0

    def count(_frame: object, event: str, _what: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        answered = await outcome(*parts)
    finally:
        sys.setprofile(None)

    assert answered is None
    assert calls < 16 * len(text)


@pytest.mark.parametrize("behaviour", [answer(BODY), stream(BODY[:7], BODY[7:])])
async def test_one_connection_serves_all_questions(behaviour: Behaviour):
    """Each is one that any client could have asked, and is counted as such."""
    heard = Heard()
    async with a_pulse(behaviour, heard=heard) as (pulse, server, _):
        for _ in range(3):
            assert await pulse.probe(SECONDS) == BODY
            await pulse.open(SECONDS)

        asked = server.requests[-1]
        assert (server.connections, asked.method, asked.path) == (1, "GET", PATH)
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        assert asked.headers["host"] == f"127.0.0.1:{server.port}"
        assert heard.requests == [("get", 200)] * 3


@pytest.mark.parametrize(
    "behaviour",
    [
        status(401, "Unauthorized"),
        status(429, "TooManyRequests"),
        drop,
        answer(BODY, headers={"Content-Encoding": "gzip"}),
    ],
)
async def test_anything_but_a_good_answer_is_left_to_others(behaviour: Behaviour):
    """The connection is given up, and after a few times not made again."""
    heard = Heard()
    async with a_pulse(behaviour, heard=heard) as (pulse, server, _):
        for _ in range(6):
            assert await pulse.probe(SECONDS) is None
            assert pulse.line is None
            await pulse.open(SECONDS)

        assert server.connections == 3
        assert heard.requests == []


async def test_no_answer_in_time_is_an_error():
    """As with any other request; the connection is of no use any more."""
    heard = Heard()
    async with a_pulse(silence, heard=heard) as (pulse, _, _):
        with pytest.raises(RequestTimeout, match=rf"GET {PATH}: 0.01 s passed"):
            await pulse.probe(0.01)

        assert pulse.line is None
        assert heard.requests == [("get", 0)]


async def test_an_answer_that_came_while_the_loop_was_busy_is_in_time():
    """Timers come before sockets: the time is over when the loop looks, but the answer is here."""
    line, loop = ProbeConnection(), asyncio.get_running_loop()
    line.connection_made(Wire())
    over = loop.create_future()
    asking = asyncio.create_task(line.send(b"", 0))
    await asyncio.sleep(0)
    loop.call_later(0, over.set_result, None)
    await over

    line.data_received(PLAIN)

    assert await asking == ProbeResult(200, BODY, is_last=False)


async def test_another_certificate_needs_another_connection():
    """A token is sent with each request, a certificate belongs to the connection."""
    certificates = Certificates(Credential(client_certificate=b"one", client_key=b"1"))
    async with (
        Server(answer(BODY)) as server,
        client_for(server.url, credentials=certificates) as client,
    ):
        pulse = ApiProber(client.transport, PATH)
        await pulse.open(SECONDS)
        before = await pulse.probe(SECONDS)
        certificates.credential = Credential(client_certificate=b"two", client_key=b"2")
        client.transport.login.renew()
        await client.transport.login.current()

        assert before == BODY
        assert await pulse.probe(SECONDS) is None
