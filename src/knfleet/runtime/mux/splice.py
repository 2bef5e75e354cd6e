"""Two transports joined: what one receives the other sends, at the speed of the slower one.

A side that pauses writing makes the other pause reading, so that no more than a buffer of each is
held. An end in one direction is passed on, and leaves the other direction open.
"""

import asyncio
from collections.abc import Callable
from typing import cast

BUFFER = 256 * 1024
"""With more than this still to be sent to one side, the other is not read."""

Ended = Callable[[], None]


class SpliceSide(asyncio.Protocol):
    """The protocol of one of the two transports."""

    def __init__(self, splice: "Splice") -> None:
        self.splice = splice
        self.transport: asyncio.Transport | None = None
        self.other: SpliceSide = self
        self.is_lost = False
        self.received = 0
        """Bytes that arrived here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=BUFFER)
        if self.other.transport is None:
            # Nobody takes what arrives before the other side is connected.
            self.transport.pause_reading()
        else:
            self.other.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other.transport is not None:
            self.splice.last_active = self.splice.loop.time()
            self.received += len(data)
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        other = self.other.transport
        if other is not None and not self.other.is_lost:
            if other.can_write_eof():
                other.write_eof()
            else:
                # TLS ends both directions at once.
                other.close()
        return self.transport is not None and self.transport.can_write_eof()

    def pause_writing(self) -> None:
        if self.other.transport is not None and not self.other.is_lost:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None and not self.other.is_lost:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        other = self.other
        if other.transport is not None and not other.is_lost:
            if exc is None:
                other.transport.close()
            else:
                other.transport.abort()
        if other.is_lost or other.transport is None:
            self.splice.end()


class Splice:
    """A pair of protocols, one for each transport."""

    def __init__(self, *, idle_seconds: float | None = None, ended: Ended | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.left = SpliceSide(self)
        self.right = SpliceSide(self)
        self.left.other, self.right.other = self.right, self.left
        self.ended = ended
        self.idle_seconds = idle_seconds
        self.last_active = self.loop.time()
        self.timer: asyncio.TimerHandle | None = None
        if idle_seconds is not None:
            self.timer = self.loop.call_later(idle_seconds, self.check_idle)

    def check_idle(self) -> None:
        """End a pair on which nothing was sent for too long."""
        assert self.idle_seconds is not None
        left = self.last_active + self.idle_seconds - self.loop.time()
        if left <= 0:
            self.abort()
        else:
            self.timer = self.loop.call_later(left, self.check_idle)

    def abort(self) -> None:
        """End both transports at once."""
        for side in (self.left, self.right):
            if side.transport is not None and not side.is_lost:
                side.transport.abort()

    def stop(self) -> None:
        """The pair is of no use: look no more whether it is idle."""
        if self.timer is not None:
            self.timer.cancel()
        self.ended = None

    def end(self) -> None:
        """Both transports are gone."""
        if self.timer is not None:
            self.timer.cancel()
        if self.ended is not None:
            ended, self.ended = self.ended, None
            ended()
