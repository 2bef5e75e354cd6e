"""Parsed manifests on disk, by the digest of the file they were parsed from.

YAML takes a hundred times longer to read than JSON, so each file is parsed once per machine. An
entry carries its own digest; a damaged one counts as absent. Writing is atomic, so any number of
processes may share the folder, and a folder that cannot be written to only costs time.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

FORMAT = "1"
"""Part of every entry's name; a new meaning of manifests gets a new one."""

MOST = 2000
"""Entries that are kept; the oldest go first."""


class ParsedCache:
    """A folder of parsed manifests."""

    def __init__(self, folder: Path, *, most: int = MOST) -> None:
        self.folder = folder
        self.most = most

    def get(self, digest: str) -> bytes | None:
        """The entry for a file's digest, if it is there and whole."""
        try:
            entry = self.path(digest).read_bytes()
        except OSError:
            return None
        checksum, _, content = entry.partition(b"\n")
        return content if checksum == checksum_of(content) else None

    def put(self, digest: str, content: bytes) -> None:
        """Store an entry, if the disk lets us."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self.path(digest), checksum_of(content) + b"\n" + content)
            self.trim()

    def path(self, digest: str) -> Path:
        """The file of an entry."""
        return self.folder / f"{digest}.{FORMAT}.json"

    def trim(self) -> None:
        """Remove the oldest entries beyond the most that are kept."""
        entries = list(self.folder.iterdir())
        if len(entries) <= self.most:
            return
        for path in sorted(entries, key=age)[: len(entries) - self.most]:
            path.unlink(missing_ok=True)


def checksum_of(content: bytes) -> bytes:
    """The digest that an entry starts with."""
    return hashlib.sha256(content).hexdigest().encode()


def age(path: Path) -> float:
    """When a file was written; one that just went away counts as oldest."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file that is either absent, as it was, or whole, whatever happens meanwhile."""
    with temporary_beside(path) as (descriptor, temporary):
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.chmod(mode)
        temporary.replace(path)


@contextlib.contextmanager
def temporary_beside(path: Path) -> Generator[tuple[int, Path]]:
    """An open file beside another, removed unless it was moved away."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        yield descriptor, temporary
    finally:
        temporary.unlink(missing_ok=True)
