"""Release files from a .tar.gz or .zip, taken out with care.

Only manifest files below the known folders are taken, wherever in the archive those folders are;
links, devices and paths that lead elsewhere are never followed, and sizes are bounded as the bytes
come out, not as the archive says.
"""

import gzip
import hashlib
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from msgspec import Struct

from knfleet.release.errors import BadManifest, NotAvailable
from knfleet.release.layout import SECTIONS, is_manifest
from knfleet.release.lock import LOCK, PUBLISHED, Lock, bundle_files, make_lock, write_lock

MOST_BYTES = 512 * 1024 * 1024
MOST_FILES = 20_000
GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 256 * 1024

Member = tuple[str, IO[bytes]]


def unpack(packed: "ArchiveContents", cache: Path) -> Path:
    """The folder that holds an archive's release files, unpacked once per content."""
    archive = packed.path
    try:
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise NotAvailable(f"{archive}: cannot be read: {error.strerror}") from error
    folder = cache / digest
    if folder.is_dir():
        return folder
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack.", dir=cache) as temporary:
        fresh = Path(temporary) / "bundle"
        try:
            packed.extract(fresh)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise BadManifest(
                f"{archive}: is not a whole .tar.gz or .zip ({error}); get it again"
            ) from error
        write_lock(make_lock(fresh, str(archive)), fresh / LOCK)
        settle(fresh, folder)
    return folder


def settle(fresh: Path, folder: Path) -> None:
    """Put a finished folder in its place; another process may have done so already."""
    try:
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def prefix_of(name: str) -> tuple[str, ...] | None:
    """What comes before the known folder in a manifest's path; None for other files."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not is_manifest(Path(path.name)):
        return None
    for position, part in enumerate(path.parts[:-1]):
        if part in SECTIONS:
            return path.parts[:position]
    return None


class ArchiveContents(Struct, frozen=True):
    """An archive of release files, of which no more comes out than the limits allow."""

    path: Path
    most_bytes: int = MOST_BYTES
    most_files: int = MOST_FILES

    def extract(self, into: Path) -> None:
        """Take all release files out."""
        prefix = self.bundle_prefix()
        written = 0
        for name, content in self.members():
            if prefix_of(name) != prefix:
                continue
            path = into.joinpath(*PurePosixPath(name).parts[len(prefix) :])
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                while chunk := content.read(CHUNK):
                    written += len(chunk)
                    self.check_size(0, written)
                    file.write(chunk)

    def bundle_prefix(self) -> tuple[str, ...]:
        """The folder inside the archive that has most release files."""
        counts = Counter(prefix_of(name) for name, _ in self.members())
        found = [
            (count, -len(prefix), prefix) for prefix, count in counts.items() if prefix is not None
        ]
        if not found:
            raise BadManifest(
                f"{self.path}: has no release files; it must hold at least one of "
                f"{', '.join(SECTIONS)}"
            )
        return max(found)[2]

    def members(self) -> Iterator[Member]:
        """Name and content of each regular file."""
        return self.zip_members() if self.path.suffix == ".zip" else self.tar_members()

    def tar_members(self) -> Iterator[Member]:
        """Name and content of each regular file in a tar archive."""
        self.check_end()
        size = 0
        with tarfile.open(self.path, "r|*") as tar:
            for number, member in enumerate(tar):
                size += member.size
                self.check_size(number, size)
                content = tar.extractfile(member) if member.isreg() else None
                if content is not None:
                    yield member.name, content

    def check_end(self) -> None:
        """Read a compressed archive to its end: cut off between two files, tar would not notice."""
        with self.path.open("rb") as file:
            if file.read(2) != GZIP_MAGIC:
                return
        read = 0
        with gzip.open(self.path) as unpacked:
            while chunk := unpacked.read(CHUNK):
                read += len(chunk)
                # Headers and padding come on top of the files, and are smaller.
                self.check_size(0, read // 2)

    def zip_members(self) -> Iterator[Member]:
        """Name and content of each regular file in a zip archive."""
        with zipfile.ZipFile(self.path) as packed:
            for number, member in enumerate(packed.infolist()):
                self.check_size(number)
                kind = stat.S_IFMT(member.external_attr >> 16)
                if not member.is_dir() and kind in (0, stat.S_IFREG):
                    with packed.open(member) as content:
                        yield member.filename, content

    def check_size(self, files: int, size: int = 0) -> None:
        """Refuse an archive that is larger than any bundle."""
        if files >= self.most_files or size > self.most_bytes:
            raise BadManifest(
                f"{self.path}: holds more than {self.most_files} files or "
                f"{self.most_bytes >> 10} KiB; pack the release files alone"
            )


def copy_bundle(source: Path, target: Path, lock: Lock) -> None:
    """Copy the manifest files of a bundle with their lock, replacing what was there as a whole."""
    check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull.", dir=target.parent) as temporary:
        fresh = Path(temporary) / "new"
        fresh.mkdir()
        for file in [*bundle_files(source), *sorted((source / PUBLISHED).glob("*/*/*/*"))]:
            path = fresh / file.relative_to(source)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, path)
        write_lock(lock, fresh / LOCK)
        if target.exists():
            target.rename(Path(temporary) / "old")
        fresh.rename(target)


def check_replaceable(target: Path) -> None:
    """Refuse to replace a folder that holds anything but a bundle."""
    if not target.exists():
        return
    if not target.is_dir():
        raise NotAvailable(f"{target}: is not a folder; give another one")
    others = {entry.name for entry in target.iterdir()} - {*SECTIONS, LOCK, PUBLISHED}
    if others:
        raise NotAvailable(
            f"{target}: holds other things than release files ({min(others)}); "
            f"give a new or empty folder"
        )
