"""Who may send next: first come, first served, with a few places kept for the urgent."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class ClientSlots:
    """A number of slots; the last few of them only for urgent callers.

    A burst of ordinary calls can fill all but the reserve, so that a lease renewal or a probe never
    waits behind them.
    """

    def __init__(self, places: int, reserve: int) -> None:
        self.free = places
        self.reserve = min(reserve, places - 1)
        self.ordinary: deque[asyncio.Future[None]] = deque()
        self.urgent: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def slot(self, *, urgent: bool = False) -> AsyncGenerator[None, None]:
        """Hold a slot for the length of the block."""
        await self.acquire(urgent=urgent)
        try:
            yield
        finally:
            self.release()

    async def acquire(self, *, urgent: bool = False) -> None:
        """Wait for a place, in order of arrival."""
        queue = self.urgent if urgent else self.ordinary
        if not queue and self.free > (0 if urgent else self.reserve):
            self.free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            else:
                with suppress(ValueError):
                    queue.remove(turn)
            raise

    def release(self) -> None:
        """Give a place back, and let the longest waiting caller in."""
        self.free += 1
        while (queue := self.next_queue()) is not None:
            turn = queue.popleft()
            if not turn.done():
                self.free -= 1
                turn.set_result(None)

    def next_queue(self) -> deque[asyncio.Future[None]] | None:
        """The queue whose first waiter can be let in now."""
        if self.urgent and self.free > 0:
            return self.urgent
        if self.ordinary and self.free > self.reserve:
            return self.ordinary
        return None
