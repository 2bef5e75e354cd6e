"""Gets release files, checks them, and puts them where they are used from."""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from knfleet.release.errors import BadManifest, NotAvailable, ReleaseError, Tampered
from knfleet.release.layout import SECTIONS, Layout, check_complete, manifest_files
from knfleet.release.lock import (
    PUBLISHED,
    Lock,
    bundle_files,
    differences,
    lock_beside,
    make_lock,
    read_lock,
    write_lock,
)
from knfleet.release.manifest_reader import ManifestReader
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.source.archive import copy_bundle
from knfleet.release.source.sources import ReleaseSource

if TYPE_CHECKING:
    from knfleet.release.source.signature_keys import PinnedKeys

SHOWN = 10
"""Problems that one message lists."""


class BundleContents(Struct, frozen=True):
    """What a bundle's folder holds."""

    section: str
    version: str
    parts: list[str]
    """Plugins or sources; empty for a component."""
    files: int


async def pull(
    source: ReleaseSource,
    target: Path,
    lock_file: Path | None = None,
    keys: "PinnedKeys | None" = None,
) -> Lock:
    """Copy a source's release files to a folder, locked; the lock file decides if it exists.

    What was in the folder before stays unless everything is well. With pinned keys, each file is
    one of a release that has checksums signed by one of them.
    """
    try:
        return await fetched(source, target, lock_file, keys)
    except OSError as error:
        raise NotAvailable(
            f"{error.filename2 or error.filename or target}: cannot be written: {error.strerror}; "
            f"choose another folder"
        ) from error


async def fetched(
    source: ReleaseSource, target: Path, lock_file: Path | None, keys: "PinnedKeys | None"
) -> Lock:
    """Get the files, check them, put them in place."""
    root = await source.fetch()
    lock = make_lock(root, str(source))
    if not lock.files:
        raise BadManifest(f"{source}: has no release files")
    if lock_file is not None and lock_file.exists():
        check_against(read_lock(lock_file), root, lock_file)
    check_published(root, keys)
    copy_bundle(root, target, lock)
    if lock_file is not None and not lock_file.exists():
        write_lock(lock, lock_file)
    return lock


def check_against(lock: Lock, root: Path, lock_file: Path) -> None:
    """Raise when a folder is not what a lock says."""
    if found := differences(lock, root):
        raise Tampered(
            f"{root} is not what {lock_file} says: {summary(found)}; if the change is wanted, "
            f"remove {lock_file.name} and pull again"
        )


def check_published(root: Path, keys: "PinnedKeys | None") -> None:
    """Raise when files are not those that their releases have published."""
    from knfleet.release.source.published_checksums import proofs

    if not keys and not (root / PUBLISHED).is_dir():
        return
    if found := [problem for each in proofs(root, keys) for problem in each.problems]:
        raise Tampered(summary(found))


def summary(problems: list[str]) -> str:
    """Problems for a message."""
    more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return "; ".join(problems[:SHOWN]) + more


def problems(root: Path, cache: ParsedCache, lock: Lock | None = None) -> list[str]:
    """Everything that is wrong with a bundle's folder, one sentence each."""
    lock = lock or lock_beside(root)
    found = differences(lock, root) if lock is not None else []
    reader = ManifestReader(root, cache)
    for file in bundle_files(root):
        try:
            reader.file(file)
        except ReleaseError as error:
            found.append(str(error))
    layout = Layout(root)
    for section in SECTIONS:
        for version in layout.versions(section):
            folder = root / section / version
            try:
                check_complete(folder, manifest_files(folder))
            except ReleaseError as error:
                found.append(str(error))
    return found


def contents(root: Path) -> list[BundleContents]:
    """What a bundle's folder holds, by section and version."""
    layout = Layout(root)
    found: list[BundleContents] = []
    for section in SECTIONS:
        for version in layout.versions(section):
            folder = root / section / version
            files = [file for file in bundle_files(root) if file.is_relative_to(folder)]
            parts = sorted({file.relative_to(folder).parts[0] for file in files})
            nested = [part for part in parts if (folder / part).is_dir()]
            found.append(BundleContents(section, version, nested, len(files)))
    return found
