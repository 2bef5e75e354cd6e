"""How commands print: tables, progress, errors; the same words with and without a terminal."""

import functools
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import click

P = ParamSpec("P")
R = TypeVar("R")

PLAIN_STEP = 0.1
"""Without a terminal, progress is a line for each tenth."""
PLAIN_SECONDS = 15.0
"""And when nothing was printed for so long."""


def fail(error: BaseException) -> click.ClickException:
    """An error that ends the command with exit code 1 and a sentence that helps."""
    from knfleet.cli.errors import sentence

    return click.ClickException(sentence(error))


def explained(*errors: type[BaseException]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Turn the errors that a command expects into a message and exit code 1."""

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(command)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return command(*args, **kwargs)
            except errors as error:
                raise fail(error) from error

        return wrapper

    return decorate


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as kubectl prints them."""
    widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]
    lines = [
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [headings, *rows]
    ]
    return "\n".join(lines)


COLOURS = {"ok": "32", "busy": "33", "unknown": "33", "bad": "31"}
"""Green, yellow, red: beside the words, never instead of them."""


def is_coloured() -> bool:
    """Whether standard output is a terminal whose user has nothing against colours."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def painted(text: str, stand: str) -> str:
    """A text in the colour of how something stands, where there are colours."""
    colour = COLOURS.get(stand)
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and text and is_coloured() else text


class Table:
    """Columns whose lines may be coloured, cut where a terminal ends; in a pipe nothing is cut."""

    def __init__(
        self, headings: Sequence[str], rows: Sequence[Sequence[str]], stands: Sequence[str] = ()
    ) -> None:
        self.lines = table(headings, rows).splitlines()
        self.stands = ["", *(stands or [""] * len(rows))]

    def text(self) -> str:
        return "\n".join(
            painted(cut(line), stand) for line, stand in zip(self.lines, self.stands, strict=True)
        )


def cut(line: str) -> str:
    """As much of a line as a terminal is wide; all of it where there is none."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width else f"{line[: width - 1]}…"


class PlainProgress:
    """Progress as lines on standard error."""

    def __init__(self) -> None:
        self.shown: dict[str, float] = {}
        self.shown_at = time.monotonic()

    def report(self, text: str) -> None:
        click.echo(text, err=True)

    def advance(self, what: str, done: int, total: int) -> None:
        """A line for each tenth and for the end, or now and then when the end is unknown."""
        now = time.monotonic()
        share = done / total if total else 0.0
        before = self.shown.get(what, 0.0)
        is_news = share >= before + PLAIN_STEP or (share == 1 and before < 1)
        if is_news or (done and now - self.shown_at > PLAIN_SECONDS):
            click.echo(f"{what}: {done}/{total}" if total else f"{what}: {done}", err=True)
            self.shown[what], self.shown_at = share, now


class LiveProgress:
    """Progress as one line at the bottom of a terminal that is rewritten in place."""

    def __init__(self) -> None:
        self.started: dict[str, float] = {}
        self.drawn = 0.0
        self.is_open = False

    def report(self, text: str) -> None:
        """One line, above the moving one."""
        self.clear()
        click.echo(text, err=True)

    def advance(self, what: str, done: int, total: int) -> None:
        """Redraw the moving line, ten times a second at most."""
        now = time.monotonic()
        started = self.started.setdefault(what, now)
        ended = bool(total) and done >= total
        if now - self.drawn < 0.1 and not ended:
            return
        self.drawn = now
        counts = f"{done}/{total}" if total else f"{done}" if done else ""
        filled = 24 * done // total if total else 0
        bar = f"[{'#' * filled}{'.' * (24 - filled)}] " if total else ""
        self.clear()
        click.echo(f"{bar}{what} {counts} {now - started:.0f} s", err=True, nl=ended)
        self.is_open = not ended

    def clear(self) -> None:
        """Remove the moving line."""
        if self.is_open:
            click.echo("\r\x1b[K", err=True, nl=False)
            self.is_open = False


@contextmanager
def progress(*, quiet: bool = False) -> Generator[PlainProgress | LiveProgress | None]:
    """Something to tell progress to, as fits where standard error goes."""
    if quiet:
        yield None
        return
    live = LiveProgress() if sys.stderr.isatty() else PlainProgress()
    try:
        yield live
    finally:
        if isinstance(live, LiveProgress):
            live.clear()
