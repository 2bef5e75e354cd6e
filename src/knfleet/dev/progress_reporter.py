"""How long work tells where it is, without knowing who listens."""

from typing import Protocol


class ProgressReporter(Protocol):
    """Receives messages about progress."""

    def report(self, text: str) -> None:
        """One thing happened."""
        ...

    def advance(self, what: str, done: int, total: int) -> None:
        """So much of something is done; `done == total` ends it."""
        ...


class SilentProgress:
    """No process listens."""

    def report(self, text: str) -> None:
        """Ignored."""

    def advance(self, what: str, done: int, total: int) -> None:
        """Ignored."""
