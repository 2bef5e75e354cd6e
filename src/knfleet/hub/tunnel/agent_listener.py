"""Accepts the connections of agents: TLS with their registration certificates.

What the listener trusts and shows may change at any time; connections that are open stay, and are
looked at again by the registry.
"""

import asyncio
import socket
import ssl
from functools import partial

from msgspec import Struct

from knfleet.hub.certificates.port_certificates import PortCertificates
from knfleet.hub.tunnel.agent_identity import AgentIdentity, IdentityError, agent_identity
from knfleet.hub.tunnel.tunnel_registry import AgentTunnel, TunnelRegistry
from knfleet.kube.auth.tls import load_pair
from knfleet.runtime.http.connection_limits import (
    AcceptedConnection,
    ConnectionAdmission,
    ConnectionLimits,
    PendingTask,
)
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.http.listening_sockets import ListeningSockets
from knfleet.runtime.logs import log
from knfleet.runtime.mux.protocol_name import ALPN
from knfleet.runtime.mux.session import MuxLimits, MuxSession


class ListenerLimits(Struct, frozen=True):
    """What agents may take of a hub."""

    connections: int = 4096
    handshakes: int = 256
    """Connections that have not shown a certificate yet; the oldest makes room for a new one."""
    handshake_seconds: float = 10.0


def agent_context(serving: PortCertificates, client_authorities: bytes) -> ssl.SSLContext:
    """The TLS context for agents; raises `ValueError` or `CredentialError` for bad PEM."""
    context = server_context(serving)
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=client_authorities.decode("ascii"))
    except ssl.SSLError as error:
        raise ValueError(f"the client CA of the hub is not PEM: {error}") from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols([ALPN])
    return context


def server_context(serving: PortCertificates) -> ssl.SSLContext:
    """A TLS context for a port of the tunnel."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would carry an identity that nobody verified again.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    load_pair(context, serving.certificate, serving.key)
    return context


def peer_identity(session: MuxSession) -> AgentIdentity:
    """Who is at the other end of a TLS connection; raises `IdentityError`."""
    transport = session.transport
    assert transport is not None
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if tls is None or tls.selected_alpn_protocol() != ALPN:
        raise IdentityError(f"the peer does not speak {ALPN}")
    return agent_identity(transport.get_extra_info("peercert") or {})


class AgentListener:
    """The port that agents connect to."""

    def __init__(
        self,
        registry: TunnelRegistry,
        address: ListenAddress,
        *,
        limits: ListenerLimits | None = None,
        mux: MuxLimits | None = None,
    ) -> None:
        self.registry = registry
        self.address = address
        self.limits = limits or ListenerLimits()
        self.mux = mux or MuxLimits()
        self.context: ssl.SSLContext | None = None
        """Connections are closed until it is set."""
        self.listening = ListeningSockets("tunnel not accepted")
        waiting = self.limits.handshakes
        self.admission = ConnectionAdmission(
            ConnectionLimits(waiting, waiting, header_seconds=self.limits.handshake_seconds)
        )
        """Those that shake hands."""

    async def open(self) -> int:
        """Take the address; the port. Raises `OSError`."""
        _, port = await self.listening.open(self.address.host, self.address.port)
        return port

    async def run(self) -> None:
        """Accept agents until cancelled."""
        if not self.listening.sockets:
            await self.open()
        try:
            await self.listening.run(self.accept)
        finally:
            self.registry.abort()

    def accept(self, accepted: socket.socket, address: str, group: asyncio.TaskGroup) -> None:
        """Accept one connection, if there is room for it."""
        if problem := self.overload():
            log.warning("tunnel not accepted", error=problem, address=address)
            accepted.close()
            return
        pending = PendingTask()
        guest = self.admission.admit(address, pending.end)
        if guest is None:
            accepted.close()
            return
        pending.task = group.create_task(self.shake_hands(accepted))
        pending.task.add_done_callback(partial(self.leave, guest))

    def overload(self) -> str:
        """Why no connection can be accepted now; empty when one can."""
        if self.context is None:
            return "the hub has no certificates yet"
        if len(self.registry.connections) >= self.limits.connections:
            return f"{self.limits.connections} connections"
        return ""

    def leave(self, guest: AcceptedConnection, _task: asyncio.Task[None]) -> None:
        """A handshake is over."""
        self.admission.leave(guest)

    async def shake_hands(self, accepted: socket.socket) -> None:
        """The TLS handshake; what follows is the session's."""
        tunnel = AgentTunnel(self.registry, self.mux)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: tunnel.session,
                accepted,
                ssl=self.context,
                ssl_handshake_timeout=self.limits.handshake_seconds,
            )
        except (OSError, ssl.SSLError) as error:
            log.info("TLS handshake failed", error=str(error) or type(error).__name__)
        finally:
            if tunnel.session.transport is None:
                accepted.close()
