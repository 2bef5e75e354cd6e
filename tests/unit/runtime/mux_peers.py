"""Two sides of a multiplexed connection without a network, and protocols that record."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from knfleet.runtime.mux.session import MuxLimits, MuxSession
from knfleet.runtime.mux.stream import MuxStream


class ManualLoop:
    """Calls what is due when it is told to, at a time that it is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self.later: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.count = 0

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def call_soon(self, call: Callable[..., object], *args: Any, context: Any = None) -> None:
        self.soon.append((call, args))

    def call_later(self, delay: float, call: Callable[..., object], *args: Any) -> Any:
        handle = asyncio.TimerHandle(self.now + delay, call, args, cast("Any", self))
        self.count += 1
        heapq.heappush(self.later, (self.now + delay, self.count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """What handles call when they are cancelled."""

    def create_future(self) -> "asyncio.Future[None]":
        return asyncio.Future(loop=cast("Any", self))

    def run(self) -> None:
        while self.soon:
            call, args = self.soon.popleft()
            call(*args)

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self.later and self.later[0][0] <= until:
            self.now, _, handle = heapq.heappop(self.later)
            if not handle.cancelled():
                cast("Any", handle)._callback(*cast("Any", handle)._args)
            self.run()
        self.now = until
        self.run()


class Pipe(asyncio.Transport):
    """A transport that keeps what is written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = bytearray()
        self.high = 0
        self.session: MuxSession | None = None
        self.is_blocked = False
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if self.closed:
            return
        self.kept += data
        if len(self.kept) > self.high and not self.is_blocked and self.session is not None:
            self.is_blocked = True
            self.session.pause_writing()

    def take(self, size: int | None = None) -> bytes:
        taken = bytes(self.kept[:size])
        del self.kept[: len(taken)]
        if self.is_blocked and len(self.kept) <= self.high // 4 and self.session is not None:
            self.is_blocked = False
            self.session.resume_writing()
        return taken

    def get_write_buffer_size(self) -> int:
        return len(self.kept)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True
        self.kept.clear()


class Recorder(asyncio.Protocol):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.transport: MuxStream | None = None
        self.is_paused = False
        self.has_ended = False
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("MuxStream", transport)

    def data_received(self, data: bytes) -> None:
        assert not self.has_ended
        assert not self.lost
        self.received += data

    def eof_received(self) -> bool:
        self.has_ended = True
        return True

    def pause_writing(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_writing(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        assert not self.lost
        self.lost.append(exc)


class Side:
    """One side, which records what its session reports."""

    def __init__(
        self, loop: ManualLoop, *, opens: bool, limits: MuxLimits | None = None, hello: bytes = b""
    ) -> None:
        self.loop = loop
        self.pipe = Pipe()
        self.hellos: list[bytes] = []
        self.requests: list[MuxStream] = []
        self.drains: list[tuple[int, str]] = []
        self.ends: list[str] = []
        self.session = MuxSession(
            self, opens=opens, hello=hello, limits=limits, loop=cast("Any", loop)
        )
        self.pipe.session = self.session
        self.session.connection_made(self.pipe)

    def connected(self, session: MuxSession) -> None:
        """The test has made the connection itself."""

    def greeted(self, session: MuxSession, hello: bytes) -> None:
        self.hellos.append(hello)

    def requested(self, stream: MuxStream) -> None:
        self.requests.append(stream)

    def draining(self, session: MuxSession, code: int, reason: str) -> None:
        self.drains.append((code, reason))

    def ended(self, session: MuxSession, reason: str) -> None:
        self.ends.append(reason)


class Pair:
    """Both sides and what is between them."""

    def __init__(self, limits: MuxLimits | None = None) -> None:
        self.loop = ManualLoop()
        self.hub = Side(self.loop, opens=True, limits=limits, hello=b"hub")
        self.agent = Side(self.loop, opens=False, limits=limits, hello=b"agent")

    def step(self, size: int | None = None) -> None:
        """Carry some bytes each way."""
        for source, sink in ((self.hub, self.agent), (self.agent, self.hub)):
            taken = source.pipe.take(size)
            if taken:
                sink.session.data_received(taken)
            self.loop.run()

    def settle(self, size: int | None = None) -> None:
        """Carry everything."""
        self.loop.run()
        while self.hub.pipe.kept or self.agent.pipe.kept:
            self.step(size)

    def open(self, target: str = "kubernetes.default.svc:443") -> tuple[Recorder, Recorder]:
        """An open stream: the protocols of the hub and of the agent."""
        stream, answer = self.hub.session.request(target)
        self.settle()
        there, here = Recorder(), Recorder()
        self.agent.session.accept(self.agent.requests.pop(), there)
        self.settle()
        assert answer.done()
        answer.result()
        stream.start(here)
        return here, there
