"""TLS in front of the gRPC server: a client certificate is verified if one is given.

The gRPC library either demands a client certificate or ignores it, but agents begin with a token.
So TLS ends here, and bytes are passed on to the gRPC server on this machine's own address; by the
port of that connection the server learns which certificate its client has. Connections are counted
from when they are accepted. Without a certificate, a connection that has not shown a valid token
may send little, and is the first to be closed when there are too many. What clients may have the
gRPC server keep of messages that are not complete is limited as well: for each agent by itself, and
for each connection that has shown a token, and all of these together.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from knfleet.hub.grpc.calls.caller import (
    Caller,
    PeerCertificate,
    certificate_end,
    certified,
)
from knfleet.hub.grpc.relay_end import CallerUse, HeldBytes, RelayEnd, StrangerUse
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
"""What all of them may send together: the gRPC server keeps it until a message is complete. Those
that have shown a token have as much again for messages that are not complete."""
ANONYMOUS_SECONDS = 30.0
"""How long it may take until then."""
CALLER_BYTES = 32 * 1024 * 1024
"""How much an agent may have sent of messages that are not complete, on all its connections."""
STRANGER_WAITING_BYTES = 1024 * 1024
"""How much a connection without a certificate may have sent of complete messages whose tokens are
not reviewed yet; its objects are small."""


class Peer:
    """A client of the server, as TLS knows it."""

    def __init__(self, caller: Caller | None) -> None:
        self.caller = caller
        """Who its certificate says it is."""
        self.authenticated = asyncio.Event()
        """Set when it is known who it is, by certificate or by token."""
        self.waiting = HeldBytes(STRANGER_WAITING_BYTES)
        """Complete messages whose tokens are not reviewed yet; an agent's connections share it."""


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
        """What those have sent that have not shown who they are."""
        self.strangers = StrangerUse(ALL_ANONYMOUS_BYTES)
        """Connections without a certificate."""
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
        self, accepted: socket.socket, guest: AcceptedConnection, outer: RelayEnd
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
            outer.release()
            outer.trust()
            inner.abort()
            if outer.transport is None:
                accepted.close()

    @contextmanager
    def counted(self, outer: RelayEnd, peer: Peer) -> Generator[None]:
        """Count a connection for its caller."""
        if peer.caller is None:
            use: CallerUse = self.strangers
        else:
            use = self.callers.setdefault(peer.caller.user, CallerUse(self.caller_bytes))
            peer.waiting = use.waiting
        outer.use = use
        use.add(outer)
        try:
            yield
        finally:
            del use.connections[outer]
            if peer.caller is not None and not use.connections:
                self.callers.pop(peer.caller.user, None)

    async def connect(self, accepted: socket.socket, outer: RelayEnd) -> tuple[Peer, float | None]:
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

    async def reach(self, inner: RelayEnd) -> int:
        """Connect to the gRPC server; the port of this side."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: inner, "127.0.0.1", self.target_port)
        return int(transport.get_extra_info("sockname")[1])

    async def pass_on(
        self,
        outer: RelayEnd,
        inner: RelayEnd,
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

    async def authenticate(self, outer: RelayEnd, peer: Peer) -> None:
        """Return when a call was authenticated, or the connection has ended till then."""
        async with asyncio.timeout(ANONYMOUS_SECONDS):
            await first(peer.authenticated, outer.closed)
        outer.trust()


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
