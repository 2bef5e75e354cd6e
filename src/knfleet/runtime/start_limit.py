"""Limits how many costly things begin at once, such as connections to a thousand spokes.

A slot is held for a short time at most, whatever is done with it, so that spokes that hang do not
keep others from starting.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

SLOT_SECONDS = 1.0
"""After this long, whatever was started is waiting for something as a rule."""


class StartLimit:
    """Lets so many begin at once, in the order of arrival."""

    def __init__(self, slots: int = 0, slot_seconds: float = SLOT_SECONDS) -> None:
        self.free = asyncio.Semaphore(slots or max(8, 4 * (os.cpu_count() or 1)))
        self.slot_seconds = slot_seconds

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None, None]:
        """Wait for a slot; it is released with the block, or before."""
        await self.free.acquire()
        ending = asyncio.get_running_loop().call_later(self.slot_seconds, self.free.release)
        try:
            yield
        finally:
            # A timer that has gone off has released the slot already.
            if ending.when() > asyncio.get_running_loop().time():
                ending.cancel()
                self.free.release()
