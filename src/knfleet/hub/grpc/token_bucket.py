"""How often something may happen: so many times a second, after a burst. Pure."""


class TokenBucket:
    """What is left of a burst, and comes back with time."""

    def __init__(self, per_second: float, burst: float, now: float) -> None:
        self.per_second = per_second
        self.burst = self.left = burst
        self.seen = now

    def refill(self, now: float) -> None:
        """Count the time since it was last asked."""
        gained = (now - self.seen) * self.per_second
        self.left, self.seen = min(self.burst, self.left + gained), now

    def take(self, now: float, count: int = 1) -> bool:
        """Whether it may happen so many times more now."""
        self.refill(now)
        if self.left < count:
            return False
        self.left -= count
        return True

    def is_full(self, now: float) -> bool:
        """Whether nothing is to be remembered."""
        self.refill(now)
        return self.left >= self.burst
