"""How much of what one server sends may be in memory at once.

A server that sends without end must cost the process, and thereby all other clusters, no more than
a fixed amount. What counts is the memory that a text takes once it is decoded, which may be twenty
times its length.
"""

from collections.abc import Callable
from typing import NoReturn

from knfleet.kube.errors import ResponseTooLarge

NODE_BYTES = 64
"""About what a value takes beside its text."""


def weight(text: bytes) -> int:
    """About how many bytes of memory a JSON text takes when it is decoded."""
    values = text.count(b",") + text.count(b"{") + text.count(b"[")
    return len(text) + NODE_BYTES * values


class MemoryBudget:
    """Counts what is held of one server's answers."""

    def __init__(self, limit: int, exceeded: Callable[[ResponseTooLarge], None]) -> None:
        self.limit = limit
        self.exceeded = exceeded
        self.held = 0

    def acquire(self, count: int, where: str) -> None:
        """Hold more; raises `ResponseTooLarge` when that is more than allowed."""
        self.held += count
        if self.held > self.limit:
            self.held -= count
            mib = self.limit / (1024 * 1024)
            self.refuse(f"{where}: the answers take more than {mib:g} MiB of memory")

    def release(self, count: int) -> None:
        """Hold less."""
        self.held -= count

    def check(self, count: int, where: str) -> None:
        """Raise `ResponseTooLarge` when the limit does not permit so much more."""
        self.acquire(count, where)
        self.release(count)

    def refuse(self, problem: str) -> NoReturn:
        """Tell that the server sent too much."""
        error = ResponseTooLarge(problem)
        self.exceeded(error)
        raise error
