"""Time as the runtime sees it, passed in so that tests decide when it passes."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that was asked for and may still be called off."""

    def cancel(self) -> None:
        """Do not make the call."""
        ...


class Clock(Protocol):
    """A time that only goes forward, and calls back; every event loop is one."""

    def time(self) -> float:
        """Seconds since some moment in the past."""
        ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        """Call back at that time."""
        ...


class LoopClock:
    """The clock of whatever event loop runs; it can be made before there is one."""

    def time(self) -> float:
        return asyncio.get_running_loop().time()

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        return asyncio.get_running_loop().call_at(when, callback)


LOOP_CLOCK = LoopClock()


def uptime() -> float:
    """Seconds since the machine started, also those for which it was suspended."""
    return time.clock_gettime(BOOT_CLOCK)


BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
