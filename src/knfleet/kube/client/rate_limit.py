"""How many requests a second may be sent, or bytes be read, for those who ask for a limit."""

import asyncio


class RateLimit:
    """So much a second after a burst of some; who must wait is served in order."""

    def __init__(self, per_second: float, burst: int = 1) -> None:
        if per_second < 0 or burst < 0:
            raise ValueError("a limit of requests cannot be below zero")
        self.interval = 1 / per_second if per_second else 0.0
        self.ahead = (max(burst, 1) - 1) * self.interval
        """How far the schedule may be ahead of time before a caller waits."""
        self.next_at = 0.0

    def wait_seconds(self, now: float, count: int = 1) -> float:
        """Take so many turns; how long to wait for the first."""
        self.next_at = max(self.next_at, now)
        wait = self.next_at - self.ahead - now
        self.next_at += self.interval * count
        return max(0.0, wait)

    async def acquire(self, count: int = 1) -> None:
        """Take so many turns and wait for the first; without a limit it is always one's turn."""
        if not self.interval:
            return
        wait = self.wait_seconds(asyncio.get_running_loop().time(), count)
        if wait:
            await asyncio.sleep(wait)
