"""Waiting in tests: for something that must become true, never for time to pass."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

POLL_SECONDS = 0.02
PATIENCE_SECONDS = 120.0
"""Much longer than anything takes, also on a busy machine: it is no measurement."""


def heed_interrupts() -> None:
    """For children that are to be interrupted: a runner in the background may ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def until(
    condition: Callable[[], bool | Awaitable[bool]],
    what: str,
    *,
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Wait until something holds; fails by saying what did not."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer if isinstance(answer, bool) else await answer:
            return
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        await asyncio.sleep(POLL_SECONDS)
