"""Sequence ids of status events: numbers that grow with time, so that older events are known.

A number has 41 bits of milliseconds, 10 bits of a node and 12 bits that count within a millisecond.
"""

import secrets
import time
from collections.abc import Callable

EPOCH_MILLISECONDS = 1_288_834_974_657
NODE_BITS, STEP_BITS = 10, 12
LONGEST = 20
"""Digits of the largest number."""


class SequenceGenerator:
    """Makes sequence ids, each larger than the one before, also when the clock goes back."""

    def __init__(self, clock: Callable[[], float] = time.time, node: int | None = None) -> None:
        self.clock = clock
        self.node = secrets.randbelow(1 << NODE_BITS) if node is None else node
        self.milliseconds = 0
        self.step = 0

    def next(self) -> str:
        """The next id."""
        now = int(self.clock() * 1000) - EPOCH_MILLISECONDS
        if now > self.milliseconds:
            self.milliseconds, self.step = now, 0
        else:
            self.step += 1
            self.milliseconds += self.step >> STEP_BITS
            self.step &= (1 << STEP_BITS) - 1
        high = self.milliseconds << (NODE_BITS + STEP_BITS)
        return str(high | self.node << STEP_BITS | self.step)


def is_older(sequence: str, last: str) -> bool:
    """Whether an event was made before another one; unknown when one of them has no number."""
    readable = all(each.isdecimal() and len(each) <= LONGEST for each in (sequence, last))
    return readable and int(sequence) < int(last)
