"""Keeps one tunnel to the hub open, and connects its streams to targets of this cluster.

The agent opens the connection and the hub opens the streams. When the certificate or the hub's
address changes, a new connection is made first, and the old one ends with its last stream.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from knfleet.agent.tunnel.backoff import ReconnectPolicy
from knfleet.agent.tunnel.dial import TunnelEndpoint, agent_context, authority, dial
from knfleet.agent.tunnel.tunnel_targets import TargetAddress, TunnelTargets
from knfleet.kube.errors import KubeError
from knfleet.runtime.logs import log
from knfleet.runtime.mux.frames import GoAwayCode, ResetCode
from knfleet.runtime.mux.session import MuxLimits, MuxSession
from knfleet.runtime.mux.splice import Splice
from knfleet.runtime.mux.stream import MuxStream

TARGET_SECONDS = 8.0
"""How long a target may take to accept; less than the hub waits for the answer."""
DIALS = 128
"""How many targets may be dialled at once."""


class TunnelConfig(Struct, frozen=True):
    """All that a connection needs. Never printed."""

    endpoint: TunnelEndpoint
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"TunnelConfig({self.endpoint!r})"


def needs_connection(old: TunnelConfig | None, new: TunnelConfig | None) -> bool:
    """Whether a change calls for another connection: other CAs alone count for the next one."""
    if old is None or new is None:
        return old != new
    return old != replace(new, endpoint=replace(new.endpoint, authorities=old.endpoint.authorities))


def cause(error: Exception) -> str:
    """Why a connection failed, without the numbers and addresses that the system adds."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        number = error.errno or 0
        if number > 0:
            return os.strerror(number)
    return str(error) or type(error).__name__


class TunnelState(Struct, frozen=True):
    """Whether the tunnel is open, for status and logs."""

    is_open: bool
    reason: str = ""


class HubTunnel:
    """One connection; the owner of its session."""

    def __init__(self, client: "TunnelClient") -> None:
        self.client = client
        self.session = MuxSession(self, opens=False, limits=client.limits)
        self.is_useless = asyncio.Event()
        """Set when another connection is needed."""
        self.code: int | None = None
        self.reason = ""

    def connected(self, session: MuxSession) -> None:
        """Nothing is sent but the greeting."""

    def greeted(self, session: MuxSession, hello: bytes) -> None:
        """The hub has verified the certificate."""
        self.client.opened(self)

    def requested(self, stream: MuxStream) -> None:
        """The hub wants a stream."""
        self.client.request(self, stream)

    def draining(self, session: MuxSession, code: int, reason: str) -> None:
        """The hub opens no more streams here."""
        self.code, self.reason = code, reason
        self.is_useless.set()

    def ended(self, session: MuxSession, reason: str) -> None:
        """The connection is over."""
        self.reason = self.reason or reason
        self.is_useless.set()


class TunnelClient:
    """Keeps a tunnel open while it is configured."""

    def __init__(
        self,
        targets: TunnelTargets,
        *,
        limits: MuxLimits | None = None,
        policy: ReconnectPolicy | None = None,
        report: Callable[[TunnelState], None] | None = None,
    ) -> None:
        self.targets = targets
        self.limits = limits or MuxLimits()
        self.policy = policy or ReconnectPolicy()
        self.report = report
        self.config: TunnelConfig | None = None
        self.config_changed = asyncio.Event()
        self.current: HubTunnel | None = None
        self.failures = 0
        self.dials: set[asyncio.Task[None]] = set()
        self.state = TunnelState(is_open=False)

    def configure(self, config: TunnelConfig | None) -> None:
        """Connect so from now on; None: not at all."""
        old, self.config = self.config, config
        if needs_connection(old, config) or (config != old and not self.state.is_open):
            self.failures = 0
            self.config_changed.set()

    async def run(self) -> None:
        """Keep the tunnel open until cancelled."""
        try:
            while True:
                self.config_changed.clear()
                config = self.config
                if config is None:
                    self.retire(self.current)
                    await self.config_changed.wait()
                    continue
                delay = await self.hold(config)
                await self.pause(delay)
        finally:
            for task in self.dials:
                task.cancel()
            if self.current is not None:
                self.current.session.abort("the agent stops")

    async def pause(self, seconds: float) -> None:
        """Wait before the next attempt, unless the configuration changes."""
        try:
            async with asyncio.timeout(seconds):
                await self.config_changed.wait()
        except TimeoutError:
            return

    async def hold(self, config: TunnelConfig) -> float:
        """Connect, and stay until another connection is needed; how long to wait before it."""
        older, tunnel = self.current, HubTunnel(self)
        try:
            endpoint = config.endpoint
            context = agent_context(endpoint.authorities, config.certificate, config.key)
            await dial(endpoint, context, lambda: tunnel.session)
        except (OSError, ssl.SSLError, TimeoutError, KubeError) as error:
            return self.failed(f"cannot connect to {authority(config.endpoint)}: {cause(error)}")
        self.current = tunnel
        changing = asyncio.ensure_future(self.config_changed.wait())
        ending = asyncio.ensure_future(tunnel.is_useless.wait())
        try:
            await asyncio.wait([changing, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            changing.cancel()
            ending.cancel()
            self.retire(older)
        if not tunnel.is_useless.is_set():
            # The next connection takes over; until then this one stays.
            return 0.0
        self.current = None
        return self.lost(tunnel)

    def opened(self, tunnel: HubTunnel) -> None:
        """The hub answers."""
        self.failures = 0
        self.say(TunnelState(is_open=True))

    def failed(self, reason: str) -> float:
        """No connection; how long to wait."""
        delay = self.policy.delay(self.failures)
        self.failures += 1
        self.say(TunnelState(is_open=False, reason=reason))
        return delay

    def lost(self, tunnel: HubTunnel) -> float:
        """The connection is of no use any more; how long to wait."""
        self.say(TunnelState(is_open=False, reason=tunnel.reason))
        if tunnel.code == GoAwayCode.REPLACED:
            return self.policy.replaced_seconds
        if tunnel.code == GoAwayCode.DENIED:
            return self.policy.denied_seconds
        delay = self.policy.delay(self.failures)
        self.failures += 1
        return delay

    def say(self, state: TunnelState) -> None:
        """Log and report a state that is new."""
        if state == self.state:
            return
        self.state = state
        if state.is_open:
            log.info("tunnel open")
        else:
            log.warning("no tunnel to the hub", reason=state.reason)
        if self.report is not None:
            self.report(state)

    def retire(self, tunnel: HubTunnel | None) -> None:
        """Let a connection that was replaced end with its last stream."""
        if tunnel is not None:
            tunnel.session.drain(GoAwayCode.REPLACED, "the agent has a newer connection")
            if tunnel is self.current:
                self.current = None

    def request(self, tunnel: HubTunnel, stream: MuxStream) -> None:
        """Connect a stream to its target, if that is allowed."""
        address = self.targets.find(stream.target)
        if address is None:
            log.warning("tunnel target not allowed", target=stream.target)
            stream.refuse(ResetCode.NOT_ALLOWED, f"{stream.target} is not allowed by the agent")
        elif len(self.dials) >= DIALS:
            stream.refuse(ResetCode.REFUSED, f"the agent opens {DIALS} connections already")
        else:
            task = asyncio.ensure_future(self.connect(tunnel, stream, address))
            self.dials.add(task)
            task.add_done_callback(self.dials.discard)

    async def connect(self, tunnel: HubTunnel, stream: MuxStream, address: TargetAddress) -> None:
        """Connect a stream to an address."""
        splice = Splice()
        try:
            async with asyncio.timeout(TARGET_SECONDS):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: splice.right, address.host, address.port
                )
        except TimeoutError:
            stream.refuse(ResetCode.TIMEOUT, f"{address} did not answer")
            return
        except OSError as error:
            stream.refuse(ResetCode.UNREACHABLE, f"{address}: {cause(error)}")
            return
        if stream.is_over:
            transport.abort()
            return
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        tunnel.session.accept(stream, splice.left)
