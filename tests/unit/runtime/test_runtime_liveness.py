"""The small server that says nothing but that a process is alive."""

import asyncio
from contextlib import suppress

import pytest

from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.http.liveness import LONGEST_HEAD, LivenessServer, answer
from testbed.fakes.sockets import free_port
from testbed.waiting import PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("line", "status", "body"),
    [
        ("GET /healthz HTTP/1.1", "200", "ok"),
        ("GET /readyz?verbose HTTP/1.1", "200", "ok"),
        ("HEAD /healthz HTTP/1.1", "200", ""),
        ("GET /metrics HTTP/1.1", "404", "not here"),
        ("POST /healthz HTTP/1.1", "405", "GET alone"),
        ("nonsense", "405", "GET alone"),
    ],
)
def test_only_the_two_questions_are_answered(line: str, status: str, body: str):
    head, _, said = answer(f"{line}\r\nHost: x\r\n\r\n".encode()).partition(b"\r\n\r\n")

    assert head.split(b" ")[1].decode() == status
    assert said.decode() == body


async def test_it_answers_over_the_network_also_after_somebody_who_talks_too_much():
    liveness = LivenessServer(ListenAddress("127.0.0.1", free_port()))
    running = asyncio.create_task(liveness.run())
    try:
        await asyncio.wait_for(liveness.listening.wait(), PATIENCE_SECONDS)
        assert await asked(liveness, b"x" * (3 * LONGEST_HEAD)) == b""
        assert (await asked(liveness, b"GET /healthz HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nok")
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def asked(liveness: LivenessServer, words: bytes) -> bytes:
    """What is answered to something."""
    assert liveness.address is not None
    reader, writer = await asyncio.open_connection(*liveness.address)
    try:
        writer.write(words)
        with suppress(ConnectionError):
            return await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
        return b""
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
