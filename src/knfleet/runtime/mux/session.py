"""A connection with many streams, as an asyncio protocol for a socket or a TLS connection.

One side opens streams, the other accepts them. Streams take turns of one frame each, so that none
waits for another; control frames go first. Memory is bounded by the number of streams and their
windows. A peer that sends nothing, or reads nothing, for too long is taken for dead.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from msgspec import Struct

from knfleet.runtime.mux.frames import (
    DATA_LIMIT,
    WINDOW_INCREMENT,
    Frame,
    FrameReader,
    GoAwayCode,
    Kind,
    ProtocolError,
    ResetCode,
    encode,
    goaway,
    message_text,
    reset,
)
from knfleet.runtime.mux.stream import MuxStream, StreamReset

SEND_BUFFER = 4 * DATA_LIMIT
"""With so much in the socket's buffer, streams wait for their turns."""
CONTROL_BUFFER = 1024 * 1024
"""So much more may control frames take; a peer that does not even read these is cut off."""
GREATEST_STREAM = 2**32 - 1


class MuxLimits(Struct, frozen=True):
    """Limits of one connection."""

    streams: int = 512
    growth_bytes: int = 16 * 1024 * 1024
    """By how much the windows of all streams together may grow."""
    ping_seconds: float = 10.0
    dead_seconds: float = 30.0
    """After so long without a frame the peer is dead."""
    stalled_seconds: float = 60.0
    """After so long in which the peer read nothing that was sent, it is dead."""
    open_seconds: float = 10.0
    """How long the first frame of a peer, or the answer to an OPEN, may take."""


class SessionOwner(Protocol):
    """What is told of a connection."""

    def connected(self, session: "MuxSession") -> None:
        """There is a connection; nothing was received yet."""
        ...

    def greeted(self, session: "MuxSession", hello: bytes) -> None:
        """The peer's first frame came."""
        ...

    def requested(self, stream: MuxStream) -> None:
        """The peer wants a stream: `accept` or `refuse` it."""
        ...

    def draining(self, session: "MuxSession", code: int, reason: str) -> None:
        """The peer wants no new streams; the code may be one that `GoAwayCode` lacks."""
        ...

    def ended(self, session: "MuxSession", reason: str) -> None:
        """The connection is over."""
        ...


class MuxSession(asyncio.Protocol):
    """One side of a connection."""

    def __init__(
        self,
        owner: SessionOwner,
        *,
        opens: bool,
        hello: bytes = b"",
        limits: MuxLimits | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.owner = owner
        self.opens = opens
        self.hello = hello
        self.limits = limits or MuxLimits()
        self.own_loop = loop or asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.reader = FrameReader()
        self.streams: dict[int, MuxStream] = {}
        self.answers: dict[int, asyncio.Future[None]] = {}
        """Of streams that the peer has not accepted yet."""
        self.last_stream = 0
        self.turns: deque[MuxStream] = deque()
        self.growth_bytes = self.limits.growth_bytes
        self.blocked_since: float | None = None
        self.is_greeted = False
        self.drained_here = ""
        self.drained_by_peer = ""
        self.end_reason = ""
        self.is_over = False
        self.last_received = self.own_loop.time()
        self.pinged_at: float | None = None
        self.round_trip_seconds: float | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.bytes_received = 0
        self.bytes_sent = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """What calls protocols."""
        return self.own_loop

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=SEND_BUFFER)
        self.send(Frame(Kind.HELLO, 0, self.hello))
        self.timer = self.own_loop.call_later(self.limits.open_seconds, self.tick)
        self.owner.connected(self)

    def tick(self) -> None:
        """Look whether the peer is alive."""
        now = self.own_loop.time()
        silence = now - self.last_received
        if not self.is_greeted:
            self.abort(f"no greeting within {self.limits.open_seconds:.0f} s")
        elif silence >= self.limits.dead_seconds:
            self.abort(f"nothing received for {silence:.0f} s")
        elif (
            self.blocked_since is not None
            and now - self.blocked_since >= self.limits.stalled_seconds
        ):
            self.abort(f"the peer has read nothing for {now - self.blocked_since:.0f} s")
        else:
            if self.opens or silence >= self.limits.ping_seconds:
                self.ping()
            self.timer = self.own_loop.call_later(self.limits.ping_seconds, self.tick)

    def ping(self) -> None:
        """Measure the round-trip time; at most one measurement at a time."""
        if self.pinged_at is None and not self.is_over:
            self.pinged_at = self.own_loop.time()
            self.send(Frame(Kind.PING, 0, b"\0" * 8))

    def pause_writing(self) -> None:
        self.blocked_since = self.own_loop.time()

    def resume_writing(self) -> None:
        self.blocked_since = None
        self.take_turns()

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(self.end_reason or ("connection closed" if exc is None else describe(exc)))

    def abort(self, reason: str) -> None:
        """End the connection and all streams at once."""
        if self.is_over:
            return
        self.end_reason = reason
        transport = self.transport
        self.end(reason)
        if transport is not None:
            transport.abort()

    def end(self, reason: str) -> None:
        """End all streams, and report it once."""
        if self.is_over:
            return
        self.is_over = True
        self.end_reason = reason
        if self.timer is not None:
            self.timer.cancel()
        for stream in list(self.streams.values()):
            stream.lose(StreamReset(ResetCode.ABORTED, f"tunnel closed: {reason}"))
        for answer in self.answers.values():
            if not answer.done():
                answer.set_exception(StreamReset(ResetCode.ABORTED, f"tunnel closed: {reason}"))
        self.answers.clear()
        self.turns.clear()
        self.owner.ended(self, reason)

    def drain(self, code: GoAwayCode, reason: str) -> None:
        """Accept and open no new streams; the connection ends with the last one."""
        if not self.drained_here and not self.is_over:
            self.drained_here = reason or "draining"
            self.send(goaway(code, reason))
            self.end_if_drained()

    def end_streams(self, reason: str) -> None:
        """End all streams at once, with what is still to be sent to the peer before."""
        for stream in list(self.streams.values()):
            stream.fail(ResetCode.ABORTED, reason)
        for answer in self.answers.values():
            if not answer.done():
                answer.set_exception(StreamReset(ResetCode.ABORTED, reason))
        self.answers.clear()
        self.end_if_drained()

    def end_if_drained(self) -> None:
        """Close the connection when it is of no more use."""
        reason = self.drained_here or self.drained_by_peer
        if reason and not self.streams and not self.is_over:
            self.end_reason = reason
            transport = self.transport
            self.end(reason)
            if transport is not None:
                transport.close()

    # Sending

    def send(self, frame: Frame) -> None:
        """Send a control frame, before what streams have."""
        if self.is_over or self.transport is None:
            return
        self.transport.write(encode(frame))
        if (
            self.blocked_since is not None
            and self.transport.get_write_buffer_size() > SEND_BUFFER + DATA_LIMIT + CONTROL_BUFFER
        ):
            # Not from within: the caller may be in the middle of a stream.
            self.own_loop.call_soon(self.abort, "the peer does not read")

    def schedule(self, stream: MuxStream) -> None:
        """Let a stream send when it is its turn."""
        self.turns.append(stream)
        self.take_turns()

    def take_turns(self) -> None:
        """Send a frame of each stream in turn, as long as the socket takes them."""
        while self.turns and self.blocked_since is None and not self.is_over:
            stream = self.turns.popleft()
            if not stream.has_something_to_send:
                stream.is_scheduled = False
                continue
            frame = stream.next_frame()
            if stream.has_something_to_send:
                self.turns.append(stream)
            else:
                stream.is_scheduled = False
            assert self.transport is not None
            self.bytes_sent += len(frame.payload)
            self.transport.write(encode(frame))
            stream.after_turn()

    # Streams

    def request(self, target: str) -> tuple[MuxStream, "asyncio.Future[None]"]:
        """Ask the peer for a stream; the future says whether it accepts. Raises `StreamReset`."""
        if self.is_over or self.drained_here or self.drained_by_peer:
            raise StreamReset(ResetCode.REFUSED, "the tunnel is closing")
        if len(self.streams) >= self.limits.streams:
            raise StreamReset(
                ResetCode.REFUSED, f"the tunnel has its {self.limits.streams} streams already"
            )
        if self.last_stream >= GREATEST_STREAM:
            self.drain(GoAwayCode.STOPPING, "out of stream numbers")
            raise StreamReset(ResetCode.REFUSED, "the tunnel is closing")
        self.last_stream += 1
        number = self.last_stream
        stream = self.streams[number] = MuxStream(self, number, target)
        answer = self.answers[number] = self.own_loop.create_future()
        self.send(Frame(Kind.OPEN, number, target.encode()))
        return stream, answer

    async def connect(self, target: str, protocol: Callable[[], asyncio.Protocol]) -> MuxStream:
        """Open a stream to a target of the peer; raises `StreamReset`."""
        stream, answer = self.request(target)
        try:
            async with asyncio.timeout(self.limits.open_seconds):
                await answer
        except TimeoutError:
            stream.refuse(ResetCode.TIMEOUT)
            raise StreamReset(
                ResetCode.TIMEOUT,
                f"{target} was not connected within {self.limits.open_seconds:.0f} s",
            ) from None
        except asyncio.CancelledError:
            stream.abort()
            raise
        finally:
            self.answers.pop(stream.number, None)
        if stream.is_over:
            raise StreamReset(ResetCode.ABORTED, f"the connection to {target} broke")
        stream.start(protocol())
        self.own_loop.call_soon(stream.deliver_waiting)
        return stream

    def accept(self, stream: MuxStream, protocol: asyncio.Protocol) -> None:
        """A stream is connected to its target."""
        if not stream.is_over:
            self.send(Frame(Kind.ACCEPT, stream.number))
            stream.start(protocol)

    def forget(self, stream: MuxStream) -> None:
        """A stream is over."""
        self.streams.pop(stream.number, None)
        if self.drained_here or self.drained_by_peer:
            self.own_loop.call_soon(self.end_if_drained)

    # Receiving

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        self.last_received = self.own_loop.time()
        try:
            for frame in self.reader.feed(data):
                self.handle(frame)
                if self.is_over:
                    return
        except ProtocolError as error:
            self.abort(f"protocol error: {error}")

    def handle(self, frame: Frame) -> None:
        """Act on one frame."""
        kind, number, payload = frame
        if not self.is_greeted:
            if kind != Kind.HELLO:
                raise ProtocolError(f"{kind.name} before HELLO")
            self.is_greeted = True
            self.owner.greeted(self, payload)
        elif number:
            self.handle_stream_frame(frame)
        elif kind == Kind.PING:
            self.send(Frame(Kind.PONG, 0, payload))
        elif kind == Kind.PONG:
            self.handle_pong()
        elif kind == Kind.GOAWAY:
            self.handle_goaway(payload[0], message_text(payload[1:]))
        else:
            raise ProtocolError("second HELLO")

    def handle_pong(self) -> None:
        if self.pinged_at is None:
            raise ProtocolError("PONG without PING")
        self.round_trip_seconds = self.own_loop.time() - self.pinged_at
        self.pinged_at = None

    def handle_goaway(self, code: int, reason: str) -> None:
        if self.drained_by_peer:
            raise ProtocolError("second GOAWAY")
        self.drained_by_peer = reason or "the peer is draining"
        self.owner.draining(self, code, self.drained_by_peer)
        self.end_if_drained()

    def handle_stream_frame(self, frame: Frame) -> None:
        """Act on a frame of a stream."""
        kind, number, payload = frame
        if kind == Kind.OPEN:
            self.handle_open(number, payload)
            return
        stream = self.streams.get(number)
        if stream is None:
            # Frames of a stream that has just ended here may be on their way.
            if number > self.last_stream:
                raise ProtocolError(f"{kind.name} on stream {number}, which was never opened")
        elif kind == Kind.ACCEPT:
            self.handle_accept(number)
        elif kind == Kind.RESET:
            self.handle_reset(stream, payload)
        elif stream.number in self.answers or (not self.opens and stream.protocol is None):
            raise ProtocolError(f"{kind.name} on stream {number} before ACCEPT")
        elif kind == Kind.DATA:
            self.bytes_received += len(payload)
            stream.receive(payload)
        elif kind == Kind.WINDOW:
            stream.more_window(WINDOW_INCREMENT.unpack(payload)[0])
        else:
            stream.receive_end()

    def handle_open(self, number: int, payload: bytes) -> None:
        if self.opens or number <= self.last_stream:
            raise ProtocolError(f"OPEN of stream {number}")
        self.last_stream = number
        if self.drained_here:
            self.send(reset(number, ResetCode.REFUSED, self.drained_here))
            return
        if len(self.streams) >= self.limits.streams:
            self.send(reset(number, ResetCode.REFUSED, "too many streams"))
            return
        try:
            target = payload.decode("ascii")
        except UnicodeDecodeError:
            raise ProtocolError("target is not ASCII") from None
        stream = self.streams[number] = MuxStream(self, number, target)
        self.owner.requested(stream)

    def handle_accept(self, number: int) -> None:
        answer = self.answers.pop(number, None)
        if answer is None:
            raise ProtocolError(f"ACCEPT of stream {number}")
        if not answer.done():
            answer.set_result(None)

    def handle_reset(self, stream: MuxStream, payload: bytes) -> None:
        code, text = payload[0], message_text(payload[1:])
        answer = self.answers.pop(stream.number, None)
        if answer is None:
            stream.receive_reset(code, text)
            return
        stream.lose(None)
        if not answer.done():
            answer.set_exception(StreamReset(code, text))


def describe(error: Exception) -> str:
    """An error of a connection, without an empty message."""
    return str(error) or type(error).__name__
