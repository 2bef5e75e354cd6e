"""TLS in front of the gRPC server: a client certificate is verified if one is given.

The gRPC library either demands a client certificate or ignores it, but agents begin with a token.
So TLS ends here, and bytes are passed on to the gRPC server on this machine's own address; by the
port of that connection the server learns which certificate its client has. Connections are counted
from when they are accepted. Without a certificate, a connection that has not shown a valid token
may send little, and is the first to be closed when there are too many. What clients may have the
gRPC server keep of messages that are not complete is limited as well: for each agent by itself, and
for all others together.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, cast

import msgspec

from knfleet.hub.grpc.calls.caller import (
    Caller,
    PeerCertificate,
    certificate_end,
    certified,
)
from knfleet.hub.grpc.upload_meter import UploadMeter
from knfleet.runtime.http.connection_limits import (
    AcceptedConnection,
    ConnectionAdmission,
    ConnectionLimits,
)
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.http.listening_sockets import ListeningSockets
from knfleet.runtime.logs import log

LIMITS = ConnectionLimits(connections=20_000, per_address=10_000, header_seconds=10.0)
ANONYMOUS_BYTES = 256 * 1024
"""What a connection may send before a call on it was authenticated."""
ALL_ANONYMOUS_BYTES = 128 * 1024 * 1024
"""What all of them may send together: the gRPC server keeps it until a message is complete."""
ANONYMOUS_SECONDS = 30.0
"""How long it may take until then."""
BUFFER_BYTES = 256 * 1024
CALLER_BYTES = 32 * 1024 * 1024
"""How much an agent may have sent of messages that are not complete, on all its connections."""
CALLER_WAITING_BYTES = 16 * 1024 * 1024
"""How much it may have sent of complete messages whose tokens are not reviewed yet."""
STRANGER_WAITING_BYTES = 1024 * 1024
"""The same of a connection without a certificate, whose objects are small."""
PER_CALLER = 32
"""So many connections may an agent have; a new one takes the place of its oldest."""


class Peer:
    """A client of the server, as TLS knows it."""

    def __init__(self, caller: Caller | None) -> None:
        self.caller = caller
        """Who its certificate says it is."""
        self.authenticated = asyncio.Event()
        """Set when it is known who it is, by certificate or by token."""
        self.waiting = HeldBytes(STRANGER_WAITING_BYTES)
        """Complete messages whose tokens are not reviewed yet; an agent's connections share it."""


class HeldBytes:
    """What some connections together have the server keep."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, count: int) -> bool:
        """Count more; whether that is still within the limit."""
        self.held += count
        return self.held <= self.limit

    def release(self, count: int) -> None:
        """A connection is known, or has ended."""
        self.held -= count


class CallerUse:
    """What one agent takes of the server."""

    def __init__(self, limit: int) -> None:
        self.held = HeldBytes(limit)
        self.waiting = HeldBytes(CALLER_WAITING_BYTES)
        self.connections: dict[RelayEnd, None] = {}
        """The oldest first."""

    def add(self, end: "RelayEnd") -> None:
        """A connection more; with too many the oldest ends."""
        self.connections[end] = None
        for each in list(self.connections)[:-PER_CALLER]:
            each.abort()


class TlsRelay:
    """Accepts TLS connections, and passes on what they carry."""

    def __init__(
        self, bind: ListenAddress, target_port: int, limits: ConnectionLimits = LIMITS
    ) -> None:
        self.bind = bind
        self.target_port = target_port
        self.limits = limits
        self.admission = ConnectionAdmission(limits)
        self.context: ssl.SSLContext | None = None
        """For new connections; None while there is no certificate."""
        self.ready = asyncio.Event()
        self.anonymous = HeldBytes(ALL_ANONYMOUS_BYTES)
        """What those have sent that have not shown who they are, or did so by a token."""
        self.caller_bytes = CALLER_BYTES
        self.callers: dict[str, CallerUse] = {}
        """Agents that are connected, by their names in certificates."""
        self.peers: dict[int, Peer] = {}
        """By the port of the connection to the gRPC server."""
        self.address: tuple[str, int] | None = None
        self.listening = asyncio.Event()

    def use(self, context: ssl.SSLContext) -> None:
        """Use other certificates for new connections."""
        self.context = context
        self.ready.set()

    def peer(self, name: str) -> Peer | None:
        """The client behind a connection, as the gRPC server names it: ipv4:127.0.0.1:port."""
        port = name.rpartition(":")[2]
        return self.peers.get(int(port)) if port.isdecimal() else None

    async def run(self) -> None:
        """Relay until cancelled."""
        await self.ready.wait()
        sockets = ListeningSockets()
        host, port = self.address = await sockets.open(self.bind.host, self.bind.port)
        self.listening.set()
        log.info("serving gRPC", host=host, port=port)
        await sockets.run(self.accept)

    def accept(self, accepted: socket.socket, address: str, group: asyncio.TaskGroup) -> None:
        """Take one connection, if there is room for it."""
        outer = RelayEnd(self.anonymous)
        outer.uploads = UploadMeter()
        guest = self.admission.admit(address, outer.end)
        if guest is None:
            accepted.close()
            return
        outer.task = group.create_task(self.serve(accepted, guest, outer))

    async def serve(
        self, accepted: socket.socket, guest: AcceptedConnection, outer: "RelayEnd"
    ) -> None:
        """Relay one connection to its end."""
        port = 0
        inner = RelayEnd(self.anonymous)
        try:
            with suppress(OSError, TimeoutError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer, ends = await self.connect(accepted, outer)
                with self.counted(outer, peer):
                    port = await self.reach(inner)
                    self.peers[port] = peer
                    await self.pass_on(outer, inner, peer, guest, ends)
        except Exception:  # noqa: BLE001  whatever one client sends, others go on
            log.exception("connection ended by an error")
        finally:
            self.peers.pop(port, None)
            self.admission.leave(guest)
            outer.abort()
            outer.trust()
            outer.release()
            inner.abort()
            if outer.transport is None:
                accepted.close()

    @contextmanager
    def counted(self, outer: "RelayEnd", peer: Peer) -> Generator[None]:
        """Count a connection for its caller."""
        if peer.caller is None:
            yield
            return
        user = peer.caller.user
        use = self.callers.setdefault(user, CallerUse(self.caller_bytes))
        outer.budget, peer.waiting = use.held, use.waiting
        use.add(outer)
        try:
            yield
        finally:
            del use.connections[outer]
            if not use.connections:
                self.callers.pop(user, None)

    async def connect(
        self, accepted: socket.socket, outer: "RelayEnd"
    ) -> tuple[Peer, float | None]:
        """Complete the TLS handshake; who the client is, and when its certificate ends."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(
            lambda: outer,
            accepted,
            ssl=self.context,
            ssl_handshake_timeout=self.limits.header_seconds,
        )
        shown: Any = transport.get_extra_info("peercert") or {}
        certificate = msgspec.convert(shown, PeerCertificate)
        return Peer(certified(certificate)), certificate_end(certificate)

    async def reach(self, inner: "RelayEnd") -> int:
        """Connect to the gRPC server; the port of this side."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: inner, "127.0.0.1", self.target_port)
        return int(transport.get_extra_info("sockname")[1])

    async def pass_on(
        self,
        outer: "RelayEnd",
        inner: "RelayEnd",
        peer: Peer,
        guest: AcceptedConnection,
        ends: float | None,
    ) -> None:
        """Pass bytes both ways until one side ends, or the client may not go on."""
        outer.allowance = ANONYMOUS_BYTES if ends is None else None
        outer.begin(inner)
        inner.begin(outer)
        if ends is None:
            await self.authenticate(outer, peer)
        self.admission.begin(guest)
        async with asyncio.timeout(None if ends is None else max(0.0, ends - time.time())):
            await first(outer.closed, inner.closed)

    async def authenticate(self, outer: "RelayEnd", peer: Peer) -> None:
        """Return when a call was authenticated, or the connection has ended till then."""
        async with asyncio.timeout(ANONYMOUS_SECONDS):
            await first(peer.authenticated, outer.closed)
        outer.trust()


class RelayEnd(asyncio.Protocol):
    """One side of a relayed connection."""

    def __init__(self, anonymous: HeldBytes) -> None:
        self.anonymous = anonymous
        self.budget = anonymous
        """What its incomplete messages count for."""
        self.uploads: UploadMeter | None = None
        """Of a side that sends to the gRPC server."""
        self.counted = 0
        """How much of what it sent counts as anonymous."""
        self.transport: asyncio.Transport | None = None
        self.other: RelayEnd | None = None
        self.early: list[bytes] = []
        """What came before the other side was there."""
        self.allowance: int | None = None
        """How much may still come; None: no limit."""
        self.closed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        """What relays the connection."""

    def end(self) -> None:
        """End the connection to make room for another."""
        if self.task is not None:
            self.task.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(BUFFER_BYTES)

    def begin(self, other: "RelayEnd") -> None:
        """Pass on what comes to another side."""
        self.other = other
        for data in self.early:
            self.data_received(data)
        self.early.clear()
        if self.transport is not None:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early.append(data)
            if self.transport is not None:
                self.transport.pause_reading()
            return
        if self.allowance is not None:
            self.allowance -= len(data)
            self.counted += len(data)
            if not self.anonymous.take(len(data)) or self.allowance < 0:
                self.abort()
                return
        if self.uploads is not None and not self.meter(self.uploads, data):
            log.warning("client has too many incomplete messages", bytes=self.budget.held)
            self.abort()
            return
        self.other.transport.write(data)

    def meter(self, uploads: UploadMeter, data: bytes) -> bool:
        """Count the messages that are not complete; whether they are within the limit."""
        change = uploads.feed(data)
        if change > 0:
            return self.budget.take(change)
        self.budget.release(-change)
        return True

    def release(self) -> None:
        """Nothing more is kept of what it sent."""
        if self.uploads is not None:
            self.budget.release(self.uploads.held)
            self.uploads = None

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def trust(self) -> None:
        """It is known who sends, or nothing more comes: what was sent is not counted any more."""
        self.allowance = None
        self.anonymous.release(self.counted)
        self.counted = 0

    def abort(self) -> None:
        """End it without another word."""
        if self.transport is not None:
            self.transport.abort()
        self.closed.set()

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def first(*events: asyncio.Event) -> None:
    """Return when one of some events is set."""
    tasks = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def server_context(certificate: str, bundle: str) -> ssl.SSLContext:
    """A context that shows a certificate, and verifies client certificates by a bundle of CAs.

    `certificate` is the name of a file with certificate and key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(certificate)
    context.load_verify_locations(cadata=bundle)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
