"""Where an API server's connections into its cluster go on this machine.

An API server whose egress selector says `proxyProtocol: HTTPConnect` sends `CONNECT host:port` to a
Unix socket instead of dialling the addresses of Services, pods and nodes. Here each such request is
resolved by a function of the caller: to a loopback address, to a TLS server inside this process, or
to a refusal that says why. Nothing but loopback addresses is ever dialled.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import cast

import structlog
from msgspec import Struct

HEAD_LIMIT_BYTES = 8192
DIAL_SECONDS = 3.0
HANDSHAKE_SECONDS = 10.0

log = structlog.get_logger()


class Dial(Struct, frozen=True):
    """Connect to a loopback address."""

    host: str
    port: int


class Serve(Struct, frozen=True):
    """Speak TLS here, and hand the connection to a protocol of this process."""

    context: ssl.SSLContext
    protocol: Callable[[], asyncio.Protocol]


class Refuse(Struct, frozen=True):
    """Do not connect; the sentence appears in the API server's error."""

    why: str


Way = Dial | Serve | Refuse
Route = Callable[[str, int], Awaitable[Way]]


class BadConnect(Exception):
    """Not a CONNECT request that we understand."""


class NotLoopback(Exception):
    """An address that is never dialled."""


def parse_connect(head: bytes) -> tuple[str, int]:
    """Host and port of a CONNECT request; raises `BadConnect` for anything else."""
    line = head.partition(b"\r\n")[0].decode("latin-1")
    parts = line.split(" ")
    if len(parts) != 3 or parts[0] != "CONNECT" or not parts[2].startswith("HTTP/1."):
        raise BadConnect("only CONNECT host:port HTTP/1.1 is understood here")
    host, colon, port = parts[1].rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadConnect(f"{parts[1]!r} is not host:port")
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise BadConnect(f"{parts[1]!r} has no host")
    return host, int(port)


def answer(code: int, reason: str) -> bytes:
    """The head of an HTTP answer without a body; the reason fits on its line."""
    printable = "".join(each if " " <= each <= "~" else " " for each in reason)[:500]
    length = "" if code == 200 else "Content-Length: 0\r\nConnection: close\r\n"
    return f"HTTP/1.1 {code} {printable}\r\n{length}\r\n".encode("ascii")


class SplicedSide(asyncio.Protocol):
    """One side of a spliced connection: what it receives goes to the other side."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: SplicedSide | None = None
        self.finished = False

    def join(self, peer: "SplicedSide") -> None:
        """From now on the two sides are one connection."""
        self.peer, peer.peer = peer, self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        """This side is slow: the other one must not be read for a while."""
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """This side caught up."""
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def eof_received(self) -> bool:
        """This side says no more; it may still listen, unless the other one is done too."""
        self.finished = True
        peer = self.peer
        if peer is None or peer.transport is None or peer.finished:
            return False
        if peer.transport.can_write_eof():
            peer.transport.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """This side is gone, and so is the connection."""
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()
        self.transport = self.peer = None


class ApiServerSide(SplicedSide):
    """The API server's side: first the request, then the connection that it asked for."""

    def __init__(self, egress: "Egress") -> None:
        super().__init__()
        self.egress = egress
        self.head = b""
        self.asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The API server wants something."""
        super().connection_made(transport)
        self.egress.gates.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The API server went away."""
        self.egress.gates.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Collect the request; afterwards pass data on."""
        if self.asked:
            super().data_received(data)
            return
        self.head += data
        if b"\r\n\r\n" in self.head:
            self.asked = True
            if self.transport is not None:
                self.transport.pause_reading()
            self.egress.open(self)
        elif len(self.head) > HEAD_LIMIT_BYTES:
            self.refuse(431, "the request is too long")

    def accept(self) -> None:
        """Tell the API server that the connection is there."""
        if self.transport is not None:
            self.transport.write(answer(200, "Connection established"))
            self.transport.resume_reading()

    def refuse(self, code: int, why: str) -> None:
        """Tell the API server why there is no connection."""
        # A TLS handshake that failed has closed the connection already.
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(answer(code, why))
            self.transport.close()


class EarlyData(asyncio.Protocol):
    """Keeps what comes right behind a TLS handshake until the real protocol is there."""

    def __init__(self) -> None:
        self.received = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side did not wait."""
        self.lost = True

    def hand_over(self, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        """Let another protocol go on from here."""
        if self.lost:
            return
        protocol.connection_made(transport)
        transport.set_protocol(protocol)
        if self.received:
            protocol.data_received(self.received)


class Egress:
    """The server on the Unix socket."""

    def __init__(self, socket: Path, route: Route) -> None:
        self.socket = socket
        self.route = route
        self.gates: set[ApiServerSide] = set()
        self.group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Serve until cancelled; an old socket file is replaced."""
        loop = asyncio.get_running_loop()
        self.socket.unlink(missing_ok=True)
        server = await loop.create_unix_server(lambda: ApiServerSide(self), str(self.socket))
        self.socket.chmod(0o600)
        try:
            async with asyncio.TaskGroup() as self.group:
                await asyncio.get_running_loop().create_future()
        finally:
            server.close()
            for gate in list(self.gates):
                if gate.transport is not None:
                    gate.transport.abort()
            self.socket.unlink(missing_ok=True)

    def open(self, gate: ApiServerSide) -> None:
        """Begin to make the connection that a gate asked for."""
        if self.group is not None:
            self.group.create_task(self.connect(gate))

    async def connect(self, gate: ApiServerSide) -> None:
        """Make the connection that a gate asked for, or refuse it."""
        head, _, rest = gate.head.partition(b"\r\n\r\n")
        gate.head = b""
        try:
            host, port = parse_connect(head + b"\r\n")
        except BadConnect as error:
            gate.refuse(400, str(error))
            return
        try:
            match await self.route(host, port):
                case Dial() as way:
                    await self.dial(gate, way, rest)
                case Serve() as way:
                    await self.serve(gate, way)
                case Refuse(why):
                    log.info("refused", to=f"{host}:{port}", why=why)
                    gate.refuse(503, why)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            log.info("not connected", to=f"{host}:{port}", error=repr(error))
            gate.refuse(502, f"{host}:{port}: connection refused: {type(error).__name__}")

    async def dial(self, gate: ApiServerSide, way: Dial, rest: bytes) -> None:
        """Splice a gate to a loopback address."""
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                far = await self.far_side(way)
        except NotLoopback as error:
            gate.refuse(503, str(error))
            return
        if gate.transport is None:
            if far.transport is not None:
                far.transport.abort()
            return
        gate.join(far)
        if rest and far.transport is not None:
            far.transport.write(rest)
        gate.accept()

    async def far_side(self, way: Dial) -> SplicedSide:
        """A connection to an address, ready to be spliced to a gate; raises `NotLoopback`."""
        if not ip_address(way.host).is_loopback:
            raise NotLoopback(f"{way.host} is not a loopback address")
        loop = asyncio.get_running_loop()
        _, far = await loop.create_connection(SplicedSide, way.host, way.port)
        return far

    async def serve(self, gate: ApiServerSide, way: Serve) -> None:
        """Turn a gate's connection into one of a protocol of this process."""
        if gate.transport is None:
            return
        loop = asyncio.get_running_loop()
        early = EarlyData()
        gate.accept()
        secured = await loop.start_tls(
            gate.transport,
            early,
            way.context,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
        )
        self.gates.discard(gate)
        if secured is not None:
            early.hand_over(secured, way.protocol())
