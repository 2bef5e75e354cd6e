"""How long work tells where it is, without knowing who listens."""

from typing import Protocol


class ProgressReporter(Protocol):
    """Somebody who is told what is going on."""

    def report(self, text: str) -> None:
        """One thing happened."""
        ...

    def advance(self, what: str, done: int, total: int) -> None:
        """So much of something is done; `done == total` ends it."""
        ...


class SilentProgress:
    """Nobody listens."""

    def report(self, text: str) -> None:
        """Ignored."""

    def advance(self, what: str, done: int, total: int) -> None:
        """Ignored."""
