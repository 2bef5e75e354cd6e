"""What to look at next: each at most once at a time, what failed again after a while."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

from knfleet.kube.errors import Conflict, KubeError, NotFound

BACKOFF_SECONDS = 0.1
BACKOFF_LIMIT_SECONDS = 10.0

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)


class KeyQueue(Generic[K]):
    """Calls one function for every key that is added, a few at a time."""

    def __init__(self, look: Callable[[K], Awaitable[float | None]], *, at_once: int) -> None:
        self.look = look
        """Looks at one key, and returns after how many seconds to look again, if at all."""
        self.at_once = at_once
        self.queue: asyncio.Queue[K] = asyncio.Queue()
        self.queued: set[K] = set()
        self.running: set[K] = set()
        self.missed: set[K] = set()
        """Keys that were added while they were being processed."""
        self.timers: dict[K, asyncio.TimerHandle] = {}
        self.failures: dict[K, int] = {}

    def add(self, key: K) -> None:
        """Look at the key soon."""
        if (timer := self.timers.pop(key, None)) is not None:
            timer.cancel()
        if key in self.running:
            self.missed.add(key)
        elif key not in self.queued:
            self.queued.add(key)
            self.queue.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Look at the key after a while, unless it is added before."""
        if (timer := self.timers.pop(key, None)) is not None:
            timer.cancel()
        self.timers[key] = asyncio.get_running_loop().call_later(seconds, self.add, key)

    async def run(self) -> None:
        """Look at keys until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.at_once):
                    group.create_task(self.take())
        finally:
            for timer in self.timers.values():
                timer.cancel()

    async def take(self) -> None:
        """Look at one key after the other."""
        while True:
            key = await self.queue.get()
            self.queued.discard(key)
            self.running.add(key)
            try:
                again = await self.attempt(key)
            finally:
                self.running.discard(key)
            if key in self.missed:
                self.missed.discard(key)
                self.add(key)
            elif again is not None:
                self.add_after(key, again)

    async def attempt(self, key: K) -> float | None:
        """Look at a key; whatever goes wrong turns into another attempt."""
        try:
            again = await self.look(key)
        except (Conflict, NotFound) as error:
            # The cache is behind: the next event brings the key back, the timer is for the rest.
            log.debug("stale", key=str(key), error=str(error))
        except KubeError as error:
            log.warning("failed", key=str(key), error=str(error))
        except Exception:
            log.exception("failed", key=str(key))
        else:
            self.failures.pop(key, None)
            return again
        failures = self.failures[key] = self.failures.get(key, 0) + 1
        return min(BACKOFF_SECONDS * 2 ** min(failures - 1, 16), BACKOFF_LIMIT_SECONDS)
