"""When an agent connects again. Pure.

All agents lose their connections at once when a hub restarts; each waits a random part of a time
that doubles, so that they come back spread over some seconds, and soon.
"""

import random

from msgspec import Struct


class ReconnectPolicy(Struct, frozen=True):
    """How long to wait."""

    first_seconds: float = 3.0
    limit_seconds: float = 10.0
    replaced_seconds: float = 60.0
    """After another agent of the same cluster took over: two must not fight."""
    denied_seconds: float = 20.0

    def delay(self, failures: int, uniform: float | None = None) -> float:
        """How long to wait after so many failures in a row; `uniform` is from 0 to 1."""
        most = min(self.first_seconds * 2 ** min(failures, 10), self.limit_seconds)
        return most * (random.random() if uniform is None else uniform)  # noqa: S311  no secret
