"""A clock that stands still until a test moves it."""

import heapq
from collections.abc import Callable
from itertools import count


class HandClock:
    """A clock moved by hand, which makes the calls that become due."""

    def __init__(self, start: float = 1000.0) -> None:
        self.now = start
        self.calls: list[tuple[float, int, HandTimer]] = []
        self.order = count()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None], /) -> "HandTimer":
        timer = HandTimer(callback)
        heapq.heappush(self.calls, (when, next(self.order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass, with everything that happens in it."""
        end = self.now + seconds
        while self.calls and self.calls[0][0] <= end:
            when, _, timer = heapq.heappop(self.calls)
            self.now = max(self.now, when)
            if not timer.cancelled:
                timer.callback()
        self.now = end


class HandTimer:
    """A call that is to come."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
