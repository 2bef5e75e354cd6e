"""The port of consumers: an HTTP proxy that leads into the tunnels.

Nothing of what passes is looked at: consumers speak TLS with the spoke's own API server. Every
stream is logged once when it ends, without credentials.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Protocol, cast

from msgspec import Struct

from knfleet.hub.tunnel.front.connect_request import HEAD_LIMIT, ConnectRequest, Refusal, parse
from knfleet.hub.tunnel.tunnel_registry import TunnelRegistry
from knfleet.runtime.http.connection_limits import (
    AcceptedConnection,
    ConnectionAdmission,
    ConnectionLimits,
    PendingTask,
)
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.http.listening_sockets import ListeningSockets
from knfleet.runtime.logs import log
from knfleet.runtime.mux.frames import ResetCode
from knfleet.runtime.mux.splice import Splice, SpliceSide
from knfleet.runtime.mux.stream import StreamReset

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
STATUSES = {
    ResetCode.REFUSED: (HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable"),
    ResetCode.NOT_ALLOWED: (HTTPStatus.FORBIDDEN, "Forbidden"),
    ResetCode.UNREACHABLE: (HTTPStatus.BAD_GATEWAY, "ServiceUnavailable"),
    ResetCode.TIMEOUT: (HTTPStatus.GATEWAY_TIMEOUT, "Timeout"),
}


class FrontLimits(Struct, frozen=True):
    """What consumers may take of a hub."""

    connections: int = 8192
    """When there are so many, the one that has waited longest makes room for a new one."""
    per_address: int = 4096
    head_seconds: float = 10.0
    """How long a request may take to arrive."""
    authorization_seconds: float = 10.0
    streams_per_user: int = 128
    """To one cluster: its tunnel has four times as many."""
    idle_seconds: float = 4 * 3600.0
    """After so long without a byte a stream ends."""


class Authorizer(Protocol):
    """Decides who may open streams."""

    async def authorize(self, request: ConnectRequest) -> str:
        """Who asks, for the log; raises `Refusal`."""
        ...


Connect = Callable[[ConnectRequest, SpliceSide], Awaitable[None]]
"""Connects one side of a splice with a target in a cluster; raises `Refusal`."""


Forward = Callable[[ConnectRequest, SpliceSide], Awaitable[bool]]
"""Connects through another replica, if one has the tunnel; raises `Refusal`."""


class TunnelRoutes:
    """Finds the tunnel of a cluster."""

    def __init__(self, registry: TunnelRegistry, forward: Forward | None = None) -> None:
        self.registry = registry
        self.forward = forward

    async def connect(self, request: ConnectRequest, side: SpliceSide) -> None:
        """Open a stream to a target in a cluster; raises `Refusal`."""
        tunnel = self.registry.get(request.cluster)
        if tunnel is None:
            if request.is_forwarded or self.forward is None:
                raise self.missing(request.cluster)
            if not await self.forward(request, side):
                raise self.missing(request.cluster)
            return
        try:
            await tunnel.session.connect(request.target, lambda: side)
        except StreamReset as error:
            status, reason = STATUSES.get(
                cast("ResetCode", error.code), (HTTPStatus.BAD_GATEWAY, "ServiceUnavailable")
            )
            raise Refusal(status, f"cluster {request.cluster}: {error}", reason) from None

    def missing(self, cluster: str) -> Refusal:
        """Why there is no tunnel."""
        if self.registry.cluster(cluster) is None:
            status, message = (
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"ManagedCluster {cluster} does not exist",
            )
        else:
            status, message = (
                HTTPStatus.BAD_GATEWAY,
                f"the agent of cluster {cluster} has no tunnel open",
            )
        return Refusal(status, message, "ServiceUnavailable")


class FrontConnection(asyncio.Protocol):
    """One consumer, until it is connected."""

    def __init__(self, front: "TunnelFront", guest: AcceptedConnection) -> None:
        self.front = front
        self.guest = guest
        self.transport: asyncio.Transport | None = None
        self.head = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.splice: Splice | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.description: dict[str, str] = {}
        self.counted: tuple[str, str] | None = None
        """Cluster and user that it counts for."""
        self.began = asyncio.get_running_loop().time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self.front.connections.add(self)
        self.timer = asyncio.get_running_loop().call_later(
            self.front.limits.head_seconds, self.transport.abort
        )

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.head += data
        end = self.head.find(b"\r\n\r\n")
        if self.task is not None or (end < 0 and len(self.head) <= HEAD_LIMIT):
            return
        if self.timer is not None:
            self.timer.cancel()
        self.transport.pause_reading()
        self.task = asyncio.ensure_future(self.serve(end))

    async def serve(self, end: int) -> None:
        """Answer the request whose head ends there."""
        assert self.transport is not None
        splice = Splice(idle_seconds=self.front.limits.idle_seconds, ended=self.log_end)
        try:
            request = self.request(end)
            self.description = {"cluster": request.cluster, "target": request.target}
            async with asyncio.timeout(self.front.limits.authorization_seconds):
                user = await self.front.authorizer.authorize(request)
            self.description["user"] = user
            self.front.count(self, request.cluster, user)
            self.front.admission.begin(self.guest)
            await self.front.connect(request, splice.right)
        except TimeoutError:
            splice.stop()
            self.refuse(
                Refusal(HTTPStatus.GATEWAY_TIMEOUT, "authorization took too long", "Timeout")
            )
        except Refusal as refusal:
            splice.stop()
            self.refuse(refusal)
        except asyncio.CancelledError:
            splice.stop()
            raise
        except Exception:  # noqa: BLE001  whatever it is, the consumer must not wait for ever
            splice.stop()
            log.exception("stream not opened", **self.description)
            self.abort()
        else:
            self.join(splice, bytes(self.head[end + 4 :]))

    def request(self, end: int) -> ConnectRequest:
        """What is asked for; raises `Refusal`."""
        if not 0 <= end <= HEAD_LIMIT:
            raise Refusal(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the request has more than {HEAD_LIMIT} bytes",
                "RequestEntityTooLarge",
            )
        return parse(bytes(self.head[:end]))

    def join(self, splice: Splice, rest: bytes) -> None:
        """The stream is open: from now on bytes only pass."""
        assert self.transport is not None
        if self.transport.is_closing():
            splice.abort()
            splice.stop()
            return
        self.splice = splice
        self.head.clear()
        self.transport.write(ESTABLISHED)
        self.transport.set_protocol(splice.left)
        splice.left.connection_made(self.transport)
        if rest:
            splice.left.data_received(rest)
        self.transport.resume_reading()

    def refuse(self, refusal: Refusal) -> None:
        """Answer that there is no stream."""
        log.info(
            "stream refused", status=refusal.status.value, reason=str(refusal), **self.description
        )
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(refusal.answer())
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The consumer went before it was connected."""
        if self.timer is not None:
            self.timer.cancel()
        if self.task is not None:
            self.task.cancel()
        self.front.leave(self)

    def log_end(self) -> None:
        """A stream that was open is over."""
        self.front.leave(self)
        if self.splice is not None:
            log.info(
                "stream closed",
                seconds=round(asyncio.get_running_loop().time() - self.began, 1),
                received=self.splice.left.received,
                sent=self.splice.right.received,
                **self.description,
            )

    def abort(self) -> None:
        """End it at once."""
        if self.splice is not None:
            self.splice.abort()
        elif self.transport is not None:
            self.transport.abort()


class TunnelFront:
    """Serves consumers."""

    def __init__(
        self,
        connect: Connect,
        authorizer: Authorizer,
        address: ListenAddress,
        limits: FrontLimits | None = None,
    ) -> None:
        self.connect = connect
        self.authorizer = authorizer
        self.address = address
        self.limits = limits or FrontLimits()
        self.context: ssl.SSLContext | None = None
        """Connections are closed until it is set."""
        self.connections: set[FrontConnection] = set()
        self.streams: Counter[tuple[str, str]] = Counter()
        """How many there are by cluster and user."""
        self.admission = ConnectionAdmission(
            ConnectionLimits(
                self.limits.connections, self.limits.per_address, self.limits.head_seconds
            )
        )
        self.listening = ListeningSockets("stream not accepted")

    async def open(self) -> int:
        """Take the address; the port. Raises `OSError`."""
        _, port = await self.listening.open(self.address.host, self.address.port)
        return port

    async def run(self) -> None:
        """Serve until cancelled."""
        if not self.listening.sockets:
            await self.open()
        try:
            await self.listening.run(self.accept)
        finally:
            for each in list(self.connections):
                each.abort()

    def accept(self, accepted: socket.socket, address: str, group: asyncio.TaskGroup) -> None:
        """Accept one consumer, if there is room for it."""
        pending = PendingTask()
        problem = "no certificate yet"
        guest = None
        if self.context is not None:
            problem = "full"
            guest = self.admission.admit(address, pending.end)
        if guest is None:
            log.warning("stream not accepted", error=problem)
            accepted.close()
            return
        pending.task = group.create_task(self.shake_hands(accepted, guest))

    def count(self, connection: FrontConnection, cluster: str, user: str) -> None:
        """Count a stream of a user to a cluster; raises `Refusal` when there are too many."""
        key = (cluster, user)
        if self.streams[key] >= self.limits.streams_per_user:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{user} has {self.streams[key]} streams to cluster {cluster} already;"
                " close some, or wait until they end",
                "ServiceUnavailable",
            )
        self.streams[key] += 1
        connection.counted = key

    def leave(self, connection: FrontConnection) -> None:
        """A connection is over."""
        key, connection.counted = connection.counted, None
        if key is not None:
            self.streams[key] -= 1
            if not self.streams[key]:
                del self.streams[key]
        self.connections.discard(connection)
        self.admission.leave(connection.guest)

    async def shake_hands(self, accepted: socket.socket, guest: AcceptedConnection) -> None:
        """The TLS handshake with a consumer."""
        made = FrontConnection(self, guest)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: made,
                accepted,
                ssl=self.context,
                ssl_handshake_timeout=self.limits.head_seconds,
            )
        except OSError as error:
            log.debug("TLS handshake failed", error=str(error) or type(error).__name__)
        finally:
            if made.transport is None:
                self.admission.leave(guest)
                accepted.close()
            else:
                guest.close = made.abort
