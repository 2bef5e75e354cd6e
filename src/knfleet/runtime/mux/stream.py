"""One stream of a multiplexed connection: to its user an asyncio transport like that of a socket.

Received bytes count as consumed when they are handed to the protocol; while the protocol has paused
reading they wait here, and the peer may send no more than its window. The window of a stream that
is read grows, out of a budget that all streams of the connection share; one that is not read stays
small, and none takes anything from another.
"""

import asyncio
from typing import Any, Protocol, cast

from knfleet.runtime.mux.frames import (
    DATA_LIMIT,
    Frame,
    Kind,
    ProtocolError,
    ResetCode,
    reset,
    window,
)

WINDOW = 64 * 1024
"""How many bytes a peer may send at first."""
WINDOW_LIMIT = 1024 * 1024
"""How far a window grows."""
HIGH_WATER = 256 * 1024
"""With more than this still to be sent, the protocol is asked to pause."""
GREATEST_SEND_WINDOW = 2**31


class StreamReset(ConnectionError):
    """The peer ended a stream, or did not open it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text or f"the stream was reset (code {code})")
        self.code = code


class StreamSession(Protocol):
    """What a stream needs of its connection."""

    growth_bytes: int
    """By how much the windows of all streams may still grow."""

    def send(self, frame: Frame) -> None:
        """Send a frame now."""
        ...

    def schedule(self, stream: "MuxStream") -> None:
        """Send what a stream has when it is its turn."""
        ...

    def forget(self, stream: "MuxStream") -> None:
        """A stream is over."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """What calls protocols."""
        ...


class MuxStream(asyncio.Transport):
    """One stream."""

    def __init__(self, session: StreamSession, number: int, target: str) -> None:
        super().__init__({"target": target})
        self.session = session
        self.number = number
        self.target = target
        self.protocol: asyncio.Protocol | None = None
        self.is_over = False
        self.is_closed_here = False
        """Whether `close` was called: what arrives is dropped."""

        self.outgoing = bytearray()
        self.send_window = WINDOW
        self.is_scheduled = False
        self.end_wanted = False
        self.end_sent = False
        self.is_protocol_paused = False

        self.window = WINDOW
        self.credit = WINDOW
        """How many bytes the peer may still send."""
        self.consumed = 0
        """How many were consumed since the peer last got credit."""
        self.incoming = bytearray()
        self.is_reading_paused = False
        self.end_received = False
        self.end_delivered = False
        self.closed_by_peer = False

    def __repr__(self) -> str:
        return f"MuxStream({self.number}, {self.target!r})"

    def start(self, protocol: asyncio.Protocol) -> None:
        """Connect the stream with a protocol."""
        self.protocol = protocol
        protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self.protocol is not None
        return self.protocol

    # Sending

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if self.is_over or self.end_wanted or not data:
            return
        self.outgoing += data
        self.schedule()
        if len(self.outgoing) > HIGH_WATER and not self.is_protocol_paused:
            self.is_protocol_paused = True
            if self.protocol is not None:
                self.protocol.pause_writing()

    def schedule(self) -> None:
        """Ask for a turn, if there is something that may be sent."""
        if not self.is_scheduled and self.has_something_to_send:
            self.is_scheduled = True
            self.session.schedule(self)

    @property
    def has_something_to_send(self) -> bool:
        """Whether a turn would be used."""
        if self.is_over:
            return False
        if self.outgoing:
            return self.send_window > 0
        return self.end_wanted and not self.end_sent

    def next_frame(self) -> Frame:
        """What is sent in a turn; there must be something."""
        size = min(len(self.outgoing), self.send_window, DATA_LIMIT)
        if size:
            payload = bytes(memoryview(self.outgoing)[:size])
            del self.outgoing[:size]
            self.send_window -= size
            return Frame(Kind.DATA, self.number, payload)
        self.end_sent = True
        return Frame(Kind.END, self.number)

    def after_turn(self) -> None:
        """Something was sent: let the protocol go on, or end the stream."""
        if self.is_protocol_paused and len(self.outgoing) <= HIGH_WATER // 4:
            self.is_protocol_paused = False
            if self.protocol is not None:
                self.protocol.resume_writing()
        if self.end_sent:
            self.finish()

    def more_window(self, increment: int) -> None:
        """The peer accepts more bytes."""
        self.send_window += increment
        if not increment or self.send_window > GREATEST_SEND_WINDOW:
            raise ProtocolError(f"window of {self.send_window} bytes")
        self.schedule()

    def write_eof(self) -> None:
        if not self.is_over and not self.end_wanted:
            self.end_wanted = True
            self.schedule()

    def can_write_eof(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """All streams have the same limits."""

    def get_write_buffer_size(self) -> int:
        return len(self.outgoing)

    # Receiving

    def receive(self, payload: bytes) -> None:
        """Bytes of the peer."""
        if self.end_received or len(payload) > self.credit:
            raise ProtocolError(f"stream {self.number}: more bytes than the peer may send")
        self.credit -= len(payload)
        if self.is_closed_here:
            return
        if self.is_reading_paused or self.incoming or self.protocol is None:
            self.incoming += payload
        else:
            self.deliver(payload)

    def deliver(self, payload: bytes) -> None:
        """Hand bytes to the protocol, and let the peer send more."""
        assert self.protocol is not None
        self.protocol.data_received(payload)
        self.consumed += len(payload)
        if self.consumed < self.window // 2 or self.end_received or self.is_over:
            return
        growth = max(0, min(self.window, WINDOW_LIMIT - self.window, self.session.growth_bytes))
        self.session.growth_bytes -= growth
        self.window += growth
        granted, self.consumed = self.consumed + growth, 0
        self.credit += granted
        self.session.send(window(self.number, granted))

    def receive_end(self) -> None:
        """The peer sends no more."""
        if self.end_received:
            raise ProtocolError(f"stream {self.number}: second END")
        self.end_received = True
        self.deliver_end()

    def deliver_end(self) -> None:
        """Tell the protocol of the end, once everything before it was delivered."""
        waiting = self.incoming or self.is_reading_paused or self.protocol is None
        if self.is_over or (waiting and not self.is_closed_here):
            return
        if self.end_received and not self.end_delivered:
            self.end_delivered = True
            if not self.is_closed_here and self.protocol is not None:
                keep = self.protocol.eof_received()
                if not keep:
                    self.close()
            self.finish()
        if self.closed_by_peer:
            self.lose(None)

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        if self.is_reading_paused:
            self.is_reading_paused = False
            self.session.loop.call_soon(self.deliver_waiting)

    def is_reading(self) -> bool:
        return not self.is_reading_paused and not self.is_over

    def deliver_waiting(self) -> None:
        """Deliver what arrived while the protocol had paused."""
        if self.is_over or self.is_reading_paused or self.protocol is None:
            return
        if self.incoming:
            payload = bytes(memoryview(self.incoming)[:DATA_LIMIT])
            del self.incoming[:DATA_LIMIT]
            self.deliver(payload)
            if self.incoming and not self.is_reading_paused:
                self.session.loop.call_soon(self.deliver_waiting)
        self.deliver_end()

    # The end

    def finish(self) -> None:
        """End the stream when both directions have ended."""
        if self.is_over or not self.end_sent:
            return
        if self.end_received and (self.end_delivered or self.is_closed_here):
            self.lose(None)
        elif self.is_closed_here:
            self.session.send(reset(self.number, ResetCode.CLOSED))
            self.lose(None)

    def receive_reset(self, code: int, text: str) -> None:
        """The peer ended the stream."""
        if code == ResetCode.CLOSED and not self.is_closed_here:
            self.closed_by_peer = True
            self.outgoing.clear()
            self.end_wanted = self.end_sent = True
            self.deliver_end()
        else:
            self.lose(StreamReset(code, text))

    def close(self) -> None:
        if not self.is_over and not self.is_closed_here:
            self.is_closed_here = True
            self.incoming.clear()
            if self.closed_by_peer:
                self.lose(None)
                return
            self.write_eof()
            self.finish()

    def abort(self) -> None:
        self.refuse(ResetCode.ABORTED)

    def refuse(self, code: ResetCode, text: str = "") -> None:
        """End the stream at once, and say why."""
        if not self.is_over:
            self.session.send(reset(self.number, code, text))
            self.lose(None)

    def fail(self, code: ResetCode, text: str) -> None:
        """End the stream at once, as if the peer had."""
        if not self.is_over:
            self.session.send(reset(self.number, code, text))
            self.lose(StreamReset(code, text))

    def is_closing(self) -> bool:
        return self.is_over or self.is_closed_here

    def lose(self, error: Exception | None) -> None:
        """The stream is over."""
        if self.is_over:
            return
        self.is_over = True
        self.outgoing.clear()
        self.incoming.clear()
        self.session.growth_bytes += self.window - WINDOW
        self.session.forget(self)
        if self.protocol is not None:
            self.session.loop.call_soon(self.protocol.connection_lost, error)
