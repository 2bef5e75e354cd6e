"""Turns for what a thousand spokes would do at once, and must not.

Whoever begins something costly waits for a turn. A turn is short, whatever is done with it, so that
those who hang hold nobody up. And nobody gets one while the event loop is behind with its work:
what is begun then makes everything late that is under way, until all of it is too late, fails, and
is begun again. So a process that gets little of the machine goes on slowly, instead of not at all.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

TURN_SECONDS = 1.0
"""After this long, whatever it is may as well be waiting for something."""
BEHIND_SECONDS = 0.05
"""An event loop that takes this long to come round is behind."""
LOOK_SECONDS = 0.02
LOOKS = 20
"""How often to look, at most: a machine may be so slow that its loop is always behind."""


class StartLimit:
    """Lets so many begin at once, one after the other."""

    def __init__(self, places: int = 0, turn_seconds: float = TURN_SECONDS) -> None:
        self.free = asyncio.Semaphore(places or max(8, 4 * (os.cpu_count() or 1)))
        self.turn_seconds = turn_seconds
        self.entrance = asyncio.Lock()

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None, None]:
        """Wait for a turn; it ends with the block, or before."""
        loop = asyncio.get_running_loop()
        async with self.entrance:
            await self.free.acquire()
            ending = loop.call_later(self.turn_seconds, self.free.release)
            try:
                await calm()
            except asyncio.CancelledError:
                self.release(ending)
                raise
        try:
            yield
        finally:
            self.release(ending)

    def release(self, ending: asyncio.TimerHandle) -> None:
        """End a turn, unless its timer has gone off and ended it already."""
        if ending.when() > asyncio.get_running_loop().time():
            ending.cancel()
            self.free.release()


async def calm() -> None:
    """Wait until the event loop is not behind, but not for ever."""
    loop = asyncio.get_running_loop()
    for _ in range(LOOKS):
        before = loop.time()
        await asyncio.sleep(0)
        if loop.time() - before < BEHIND_SECONDS:
            return
        await asyncio.sleep(LOOK_SECONDS)
