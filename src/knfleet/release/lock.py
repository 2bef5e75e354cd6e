"""Digests of all files of a bundle, so that a file which was changed or lost is noticed.

The lock lies as `bundle.lock` in the bundle's folder, or anywhere else where it is kept under
version control.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet.release.errors import BadManifest, NotAvailable, Tampered
from knfleet.release.layout import SECTIONS, is_manifest
from knfleet.release.manifest import digest_of
from knfleet.release.parsed_cache import write_atomically

LOCK = "bundle.lock"
FORMAT = 1
PUBLISHED = "published-checksums"
"""The folder beside the release files that has the checksums that each release publishes."""


class Lock(Struct, frozen=True, kw_only=True):
    """The files that a bundle consists of."""

    files: dict[str, str]
    """sha256 by path below the bundle's folder."""
    source: str = ""
    """Where the files came from."""
    format: int = FORMAT

    def check(self, name: str, digest: str) -> None:
        """Raise `Tampered` unless this is the digest that the lock has for a file."""
        locked = self.files.get(name)
        if locked is None:
            raise Tampered(
                f"{name} is not in the lock; remove the file, or lock the bundle anew with "
                f"`knfleet bundle pull`"
            )
        if locked != digest:
            raise Tampered(
                f"{name} is not the file that was locked (sha256 {digest[:12]}…, locked "
                f"{locked[:12]}…); get it again with `knfleet bundle pull`"
            )


def bundle_files(root: Path) -> list[Path]:
    """All manifest files of a bundle, sorted."""
    return sorted(
        file
        for section in SECTIONS
        for file in (root / section).rglob("*")
        if is_manifest(file) and file.is_file()
    )


def make_lock(root: Path, source: str = "") -> Lock:
    """The lock of what lies in a folder."""
    files = {
        file.relative_to(root).as_posix(): digest_of(file.read_bytes())
        for file in bundle_files(root)
    }
    return Lock(files=files, source=source)


def differences(lock: Lock, root: Path) -> list[str]:
    """What is not as the lock says, one sentence each."""
    found = make_lock(root).files
    return [
        *(f"{name} is missing" for name in sorted(lock.files.keys() - found.keys())),
        *(f"{name} is not in the lock" for name in sorted(found.keys() - lock.files.keys())),
        *(
            f"{name} was changed"
            for name in sorted(found.keys() & lock.files.keys())
            if found[name] != lock.files[name]
        ),
    ]


def read_lock(path: Path) -> Lock:
    """The lock in a file."""
    try:
        lock = msgspec.json.decode(path.read_bytes(), type=Lock)
    except OSError as error:
        raise NotAvailable(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise BadManifest(
            f"{path}: is no lock of release files ({error}); make it anew with "
            f"`knfleet bundle pull`"
        ) from error
    if lock.format != FORMAT:
        raise BadManifest(f"{path}: has format {lock.format}; this knfleet reads {FORMAT}")
    return lock


def write_lock(lock: Lock, path: Path) -> None:
    """Write a lock so that differences between two are readable."""
    content = msgspec.json.format(msgspec.json.encode(lock, order="sorted"), indent=1)
    write_atomically(path, content + b"\n")


def lock_beside(root: Path) -> Lock | None:
    """The lock that lies in a bundle's folder, if one does."""
    path = root / LOCK
    return read_lock(path) if path.is_file() else None
