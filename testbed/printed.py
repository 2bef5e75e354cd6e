"""Progress as lines of text."""


class Printed:
    """Progress as lines of text."""

    def report(self, text: str) -> None:
        """One thing happened."""
        print(text, flush=True)

    def advance(self, what: str, done: int, total: int) -> None:
        """Ignored: lines would be too many."""
