"""The file of all writes: appended to, rotated by size, and continued after a restart."""

import os
from collections.abc import Mapping
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path

from knfleet.runtime.audit.hash_chain import RECOVERED, Link, line_of, link_of, read_line
from knfleet.runtime.logs import log

MIB = 1024 * 1024
TAIL_BYTES = 1 * MIB
"""So much of a file is read to find its last line."""


class AuditFile:
    """Appends records to a file; when it is full, it begins a new one and keeps some old ones."""

    def __init__(self, path: Path, *, most_bytes: int = 64 * MIB, keep: int = 10) -> None:
        self.path = path
        self.most_bytes = most_bytes
        self.keep = keep
        self.is_failing = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self.link, is_torn = last_link(self.paths())
        self.descriptor = self.opened()
        if is_torn:
            os.write(self.descriptor, b"\n")
            self.write({"verb": RECOVERED})

    def opened(self) -> int:
        """The file, open for appending; only its owner may read or write it."""
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def paths(self) -> list[Path]:
        """The files that are there, the oldest first."""
        return rotated(self.path)

    def write(self, entry: Mapping[str, object]) -> None:
        """Append a record; errors such as a full disk are logged and end nothing."""
        link, line = line_of(self.link, dict(entry))
        try:
            self.append(line)
        except OSError as error:
            if not self.is_failing:
                path = str(self.path)
                log.error("audit file cannot be written", path=path, error=error.strerror)
            self.is_failing = True
            return
        self.is_failing = False
        self.link = link

    def append(self, line: bytes) -> None:
        """Write a line, into a new file if this one is full; raises `OSError`."""
        if os.fstat(self.descriptor).st_size + len(line) > self.most_bytes:
            self.rotate()
        written = os.write(self.descriptor, line)
        if written != len(line):
            # Half a line would make the next one unreadable as well.
            size = os.fstat(self.descriptor).st_size
            os.ftruncate(self.descriptor, size - written)
            raise OSError(ENOSPC, os.strerror(ENOSPC))

    def rotate(self) -> None:
        """Begin a new file; raises `OSError`.

        The old one is closed last: whatever fails before, its number stays ours, and is not that of
        a connection that is opened meanwhile.
        """
        if self.path.exists():
            oldest = numbered(self.path, self.keep)
            oldest.unlink(missing_ok=True)
            for number in range(self.keep - 1, 0, -1):
                with suppress(FileNotFoundError):
                    numbered(self.path, number).rename(numbered(self.path, number + 1))
            self.path.rename(numbered(self.path, 1))
        old, self.descriptor = self.descriptor, self.opened()
        os.close(old)

    def close(self) -> None:
        """Stop; the last hash is logged, so that it can be compared with the file later."""
        os.close(self.descriptor)
        log.info("audit file closed", number=self.link.number, hash=self.link.hash)


def numbered(path: Path, number: int) -> Path:
    """The path of an older file; the higher the number, the older."""
    return path.with_name(f"{path.name}.{number}")


def rotated(path: Path) -> list[Path]:
    """The files of a chain that are there, the oldest first."""
    numbers = sorted(
        (
            int(each.name.rpartition(".")[2])
            for each in path.parent.glob(f"{path.name}.*")
            if each.name.rpartition(".")[2].isdecimal()
        ),
        reverse=True,
    )
    found = [numbered(path, number) for number in numbers]
    return [*found, *([path] if path.exists() else [])]


def last_link(paths: list[Path]) -> tuple[Link, bool]:
    """Where the chain of some files stands, and whether their last line is cut off."""
    is_torn = False
    for path in reversed(paths):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().splitlines(keepends=True)
        for line in reversed(lines):
            entry = read_line(line)
            if entry is not None and line.endswith(b"\n"):
                return link_of(entry), is_torn
            is_torn = True
    return Link(), is_torn
