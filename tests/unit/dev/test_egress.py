"""The way from an API server into its cluster: CONNECT requests on a Unix socket."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from knfleet.api.meta import Key
from knfleet.dev.egress import BadConnect, Dial, Egress, Refuse, Serve, Way, answer, parse_connect
from knfleet.dev.node.annotations import WebhookBehaviour
from knfleet.dev.node.serving_certificates import ServingCertificates, server_context
from knfleet.dev.webhook_answers import WebhookResponder
from testbed.fakes import certificates
from testbed.fakes.sockets import loopback_socket
from testbed.waiting import PATIENCE_SECONDS, until

MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"CONNECT 198.18.0.9:443 HTTP/1.1\r\nHost: x\r\n", ("198.18.0.9", 443)),
        (b"CONNECT hook.shop.svc:8443 HTTP/1.0\r\n", ("hook.shop.svc", 8443)),
        (b"CONNECT [::1]:80 HTTP/1.1\r\n", ("::1", 80)),
    ],
)
def test_a_connect_request_names_host_and_port(head: bytes, expected: tuple[str, int]) -> None:
    """In all forms that API servers use."""
    assert parse_connect(head) == expected


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n",
        b"CONNECT host HTTP/1.1\r\n",
        b"CONNECT host:http HTTP/1.1\r\n",
        b"CONNECT host:99999 HTTP/1.1\r\n",
        b"CONNECT :443 HTTP/1.1\r\n",
        b"CONNECT host:443\r\n",
        b"\x16\x03\x01\r\n",
        b"",
    ],
)
def test_anything_else_is_refused(head: bytes) -> None:
    """With a sentence, not with a traceback."""
    with pytest.raises(BadConnect):
        parse_connect(head)


def test_a_reason_fits_on_the_status_line() -> None:
    """Whatever is in it."""
    head = answer(503, "no\r\nSet-Cookie: x é")

    assert head.split(b"\r\n")[0] == b"HTTP/1.1 503 no  Set-Cookie: x  "


@asynccontextmanager
async def egress(folder: Path, way: Way) -> AsyncGenerator[Path]:
    """An egress server that sends everything one way."""

    async def route(host: str, port: int) -> Way:
        return way

    socket = folder / "egress"
    task = asyncio.create_task(Egress(socket, route).run())
    await until(socket.exists, "the socket is there")
    try:
        yield socket
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def connected(
    socket: Path, request: bytes = b"CONNECT a:1 HTTP/1.1\r\n\r\n"
) -> AsyncGenerator[tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that sent its request and read the head of the answer."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            writer.write(request)
            yield await reader.readuntil(b"\r\n\r\n"), reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def echo() -> AsyncGenerator[int]:
    """A server that reads to the end, and then sends everything back."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, sock=loopback_socket())
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_stream_is_spliced_both_ways_to_its_end(tmp_path: Path) -> None:
    """More than any buffer holds, and the other side still answers after the first has ended."""
    sent = bytes(range(256)) * (4 * MEGABYTE // 256)
    async with (
        echo() as port,
        egress(tmp_path, Dial("127.0.0.1", port)) as socket,
        connected(socket) as (head, reader, writer),
    ):
        writer.write(sent)
        writer.write_eof()
        received = await reader.read()

    assert head.startswith(b"HTTP/1.1 200 ")
    assert received == sent


async def test_only_loopback_is_dialled(tmp_path: Path) -> None:
    """Whatever the route says."""
    async with (
        egress(tmp_path, Dial("198.19.1.1", 80)) as socket,
        connected(socket) as (head, reader, _),
    ):
        assert await reader.read() == b""

    assert head.startswith(b"HTTP/1.1 503 198.19.1.1 is not a loopback address")


async def test_a_refusal_carries_its_reason(tmp_path: Path) -> None:
    """And ends the connection."""
    async with (
        egress(tmp_path, Refuse("no ready pod")) as socket,
        connected(socket) as (head, reader, _),
    ):
        assert await reader.read() == b""

    assert head.startswith(b"HTTP/1.1 503 no ready pod\r\n")


async def test_nobody_listening_is_a_refusal_too(tmp_path: Path) -> None:
    """The port was free a moment ago."""
    async with echo() as port:
        pass
    async with (
        egress(tmp_path, Dial("127.0.0.1", port)) as socket,
        connected(socket) as (head, _, _),
    ):
        assert head.startswith(b"HTTP/1.1 502 a:1: connection refused")


@pytest.mark.parametrize("request_", [b"GET / HTTP/1.1\r\n\r\n", b"x" * 9000])
async def test_nonsense_is_answered(tmp_path: Path, request_: bytes) -> None:
    """With a client error."""
    async with (
        egress(tmp_path, Refuse("")) as socket,
        connected(socket, request_) as (head, _, _),
    ):
        assert head.startswith(b"HTTP/1.1 4")


async def test_a_webhook_is_answered_in_this_process_over_tls(tmp_path: Path) -> None:
    """The certificate is for the Service's name, and signed by the development CA."""
    authority = certificates.Authority()
    (tmp_path / "ca.crt").write_bytes(authority.pair.certificate)
    (tmp_path / "ca.key").write_bytes(authority.pair.key)
    ours = ServingCertificates(tmp_path / "ca.crt", tmp_path / "ca.key")
    responder = WebhookResponder(lambda _: WebhookBehaviour())
    service = Key("shop", "hook")
    way = Serve(await ours.service_context(service), lambda: responder.protocol(service))
    body = b'{"kind": "AdmissionReview", "apiVersion": "v1", "request": {"uid": "u7"}}'
    post = b"POST / HTTP/1.1\r\nHost: hook\r\nContent-Length: %d\r\n\r\n" % len(body)
    trusting = ssl.create_default_context(cadata=authority.pem.decode())

    async with (
        egress(tmp_path, way) as socket,
        connected(socket) as (head, reader, writer),
    ):
        await writer.start_tls(trusting, server_hostname="hook.shop.svc")
        writer.write(post + body)
        answered = await reader.read()

    assert head.startswith(b"HTTP/1.1 200 ")
    assert b'"uid":"u7","allowed":true' in answered


async def test_a_client_that_leaves_during_the_handshake_harms_nobody(tmp_path: Path) -> None:
    """The next one is served as before."""
    pair = certificates.Authority().server("hook")
    context = server_context(pair.certificate + pair.key)
    way = Serve(context, asyncio.Protocol)
    async with egress(tmp_path, way) as socket:
        for _ in range(3):
            async with connected(socket) as (head, _, writer):
                writer.write(b"this is not TLS")
                assert head.startswith(b"HTTP/1.1 200 ")


async def secured(socket: Path, context: ssl.SSLContext) -> None:
    """Ask for a connection, and begin TLS on it."""
    async with connected(socket) as (head, _, writer):
        assert head.startswith(b"HTTP/1.1 200 ")
        await writer.start_tls(context, server_hostname="hook.shop.svc")


def test_a_client_that_does_not_trust_us_harms_nobody(tmp_path: Path) -> None:
    """On the loop that the node runs on, which does not forgive a write after the end."""

    async def distrust() -> None:
        pair = certificates.Authority().server("hook")
        way = Serve(server_context(pair.certificate + pair.key), asyncio.Protocol)
        stranger = ssl.create_default_context(cadata=certificates.Authority().pem.decode())
        async with egress(tmp_path, way) as socket:
            for _ in range(3):
                with pytest.raises(ssl.SSLCertVerificationError):
                    await secured(socket, stranger)

    uvloop.run(distrust())
