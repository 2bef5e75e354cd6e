"""Lines that are chained by hashes, so that none can be changed, removed or put in between unseen.

Each line is a JSON object with a number, the hash of the line before, and its own hash. A new file
goes on with the chain of the one before. What nothing in the file can show is that lines are
missing at its end: for that, compare the last hash with one that was noted elsewhere.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet.kube.untrusted_json import decode_json

START = "0" * 64
"""The hash before the first line."""
RECOVERED = "recovered"
"""The verb of the line after one that was cut off, as by a machine that lost its power."""
encode = msgspec.json.Encoder(order="sorted").encode


class Link(Struct, frozen=True):
    """Where a chain stands."""

    number: int = 0
    hash: str = START


class ChainProblem(Struct, frozen=True):
    """The first line at which a chain is broken."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class ChainReport(Struct, frozen=True):
    """What a check of a chain found."""

    lines: int
    last: Link
    first: Link
    problem: ChainProblem | None = None


def line_of(before: Link, entry: dict[str, object]) -> tuple[Link, bytes]:
    """The next line of a chain, and where the chain stands then."""
    content = {**entry, "number": before.number + 1, "previous": before.hash}
    digest = digest_of(content)
    return Link(before.number + 1, digest), encode({**content, "hash": digest}) + b"\n"


def digest_of(content: dict[str, object]) -> str:
    """The hash of a line without its own."""
    return hashlib.sha256(encode(content)).hexdigest()


def read_line(line: bytes) -> dict[str, object] | None:
    """A line as an object; None when it is none."""
    try:
        return decode_json(line, dict[str, object])
    except msgspec.MsgspecError:
        return None


def link_of(entry: dict[str, object]) -> Link:
    """Where a chain stands after a line."""
    number = entry.get("number")
    return Link(number if isinstance(number, int) else 0, str(entry.get("hash", "")))


def check(paths: Iterable[Path]) -> ChainReport:
    """Follow a chain through its files, the oldest first; the first broken link, if any."""
    last: Link | None = None
    first, lines = Link(), 0
    torn: tuple[Path, int] | None = None
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                lines += 1
                entry = read_line(line)
                if entry is None:
                    if torn is not None:
                        return broken(lines, last, first, *torn, "is no record")
                    torn = (path, number)
                    continue
                if torn is not None and entry.get("verb") != RECOVERED:
                    return broken(lines, last, first, *torn, "is no record")
                torn = None
                if last is None:
                    previous = str(entry.get("previous", ""))
                    last = first = Link(link_of(entry).number - 1, previous)
                if problem := problem_of(entry, last):
                    return broken(lines, last, first, path, number, problem)
                last = link_of(entry)
    if torn is not None:
        return broken(lines, last, first, *torn, "is cut off, and no line follows")
    return ChainReport(lines, last or Link(), first)


def problem_of(entry: dict[str, object], last: Link) -> str:
    """Why a line does not follow another; empty when it does."""
    own = str(entry.get("hash", ""))
    content = {name: value for name, value in entry.items() if name != "hash"}
    if digest_of(content) != own:
        return "was changed: its hash is not that of its content"
    if entry.get("previous") != last.hash:
        return f"does not follow record {last.number}: lines before it were removed or changed"
    if entry.get("number") != last.number + 1:
        return f"has number {entry.get('number')} after {last.number}"
    return ""


def broken(
    lines: int, last: Link | None, first: Link, path: Path, line: int, text: str
) -> ChainReport:
    """A report of a broken link."""
    return ChainReport(lines, last or Link(), first, ChainProblem(path, line, text))
