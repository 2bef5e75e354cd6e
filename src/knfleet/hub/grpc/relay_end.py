"""One side of a relayed connection, and what connections may have the gRPC server keep."""

import asyncio
from typing import cast

from knfleet.hub.grpc.token_bucket import TokenBucket
from knfleet.hub.grpc.upload_meter import UploadMeter
from knfleet.runtime.logs import log

BUFFER_BYTES = 256 * 1024
CALLER_WAITING_BYTES = 16 * 1024 * 1024
"""How much an agent may have sent of complete messages whose tokens are not reviewed yet."""
PER_CALLER = 32
"""So many connections may an agent have; a new one takes the place of its oldest."""
STRANGER_BYTES = 1024 * 1024
"""How much a connection with a token, and no certificate, may have sent of messages that are not
complete: its objects are at most a quarter of that."""
SMALL_FRAMES = 20_000
"""So many small frames may a connection send at once,"""
SMALL_FRAMES_PER_SECOND = 2_000.0
"""and so many in a second from then on; a call takes about five."""


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
        """Messages that are not complete."""
        self.waiting = HeldBytes(CALLER_WAITING_BYTES)
        self.connections: dict[RelayEnd, None] = {}
        """The oldest first."""

    def add(self, end: "RelayEnd") -> None:
        """A connection more; with too many the oldest ends."""
        self.connections[end] = None
        for each in list(self.connections)[:-PER_CALLER]:
            each.abort()

    def count(self, end: "RelayEnd", change: int) -> bool:
        """Count what a connection has more or less now; whether it may."""
        del end
        if change > 0:
            return self.held.take(change)
        self.held.release(-change)
        return True


class StrangerUse(CallerUse):
    """What connections take whose clients have shown no certificate, but a token.

    Clusters that join share a token, so nothing else tells one from another: when all together
    have too much, the connection ends that has most.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.each = STRANGER_BYTES
        """How much one of them may have."""

    def add(self, end: "RelayEnd") -> None:
        """A connection more."""
        self.connections[end] = None

    def count(self, end: "RelayEnd", change: int) -> bool:
        """Count what a connection has more or less now; whether it may."""
        fits = super().count(end, change)
        if end.holds > self.each:
            return False
        while not fits:
            largest = max(self.connections, key=lambda each: each.holds)
            if largest is end:
                return False
            log.warning("connections with tokens have too many incomplete messages")
            largest.abort()
            largest.release()
            fits = self.held.held <= self.held.limit
        return True


class RelayEnd(asyncio.Protocol):
    """One side of a relayed connection."""

    def __init__(self, anonymous: HeldBytes) -> None:
        self.anonymous = anonymous
        self.use: CallerUse | None = None
        """What its incomplete messages count for."""
        self.uploads: UploadMeter | None = None
        """Of a side that sends to the gRPC server."""
        self.small = TokenBucket(SMALL_FRAMES_PER_SECOND, SMALL_FRAMES, 0.0)
        """Small frames that it may send."""
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
        if self.is_too_much(len(data)):
            self.abort()
            return
        if self.uploads is not None and not self.meter(self.uploads, data):
            log.warning("client has too many incomplete messages", bytes=self.uploads.held)
            self.abort()
            return
        if self.uploads is not None and not self.is_worth_reading(self.uploads):
            log.warning("client sends too many small frames")
            self.abort()
            return
        self.other.transport.write(data)

    def is_worth_reading(self, uploads: UploadMeter) -> bool:
        """Whether there are few small frames in what was sent."""
        count, uploads.small = uploads.small, 0
        return not count or self.small.take(asyncio.get_running_loop().time(), count)

    def is_too_much(self, size: int) -> bool:
        """Count what comes before it is known who sends; whether it is beyond a limit."""
        if self.allowance is None:
            return False
        self.allowance -= size
        self.counted += size
        if not self.anonymous.take(size):
            log.warning("clients that are not known have sent too much", bytes=self.anonymous.held)
            return True
        return self.allowance < 0

    def meter(self, uploads: UploadMeter, data: bytes) -> bool:
        """Count the messages that are not complete; whether they are within the limit."""
        change = uploads.feed(data)
        if self.use is None or self.allowance is not None:
            return True
        return self.use.count(self, change)

    @property
    def holds(self) -> int:
        """How much of its messages that are not complete counts."""
        return 0 if self.uploads is None or self.allowance is not None else self.uploads.held

    def release(self) -> None:
        """Nothing more is kept of what it sent."""
        if self.use is not None:
            self.use.held.release(self.holds)
        self.uploads = None

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def trust(self) -> None:
        """It is known who sends, or nothing more comes: incomplete messages alone count now."""
        if self.allowance is None:
            return
        self.allowance = None
        self.anonymous.release(self.counted)
        self.counted = 0
        if self.use is not None and not self.use.count(self, self.holds):
            self.abort()

    def abort(self) -> None:
        """End it without another word."""
        if self.transport is not None:
            self.transport.abort()
        self.closed.set()

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
