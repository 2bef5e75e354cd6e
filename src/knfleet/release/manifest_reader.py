"""Reads manifest files, parsing each content once.

What was read is kept in memory by path and file status, and on disk by digest; what the lock does
not know is refused before it is parsed.
"""

import threading
from collections import OrderedDict
from pathlib import Path

import msgspec
from msgspec import structs

from knfleet.release.errors import BadManifest, NotAvailable
from knfleet.release.lock import Lock
from knfleet.release.manifest import Manifest, ParsedFile, digest_of, parse
from knfleet.release.parsed_cache import ParsedCache

LARGEST = 8 * 1024 * 1024
"""Bytes of one file; the largest of a release has about one million."""
KEPT_BYTES = 64 * 1024 * 1024
"""What is kept in memory; a release with everything on takes about two million."""

Status = tuple[int, int, int]


class ManifestReader:
    """Manifest files of one bundle, and others; may be used from several threads."""

    def __init__(self, root: Path, cache: ParsedCache, lock: Lock | None = None) -> None:
        self.root = root
        self.cache = cache
        self.lock = lock
        self.kept: OrderedDict[str, tuple[Status, Manifest]] = OrderedDict()
        self.kept_bytes = 0
        self.keeping = threading.Lock()

    def file(self, path: Path) -> Manifest:
        try:
            status = status_of(path)
            if (held := self.held(str(path), status)) is not None:
                return held
            if status[1] > LARGEST:
                raise BadManifest(f"{path}: is larger than {LARGEST // 1024} KiB; split it")
            content = path.read_bytes()
        except OSError as error:
            raise NotAvailable(f"{path}: cannot be read: {error.strerror}") from error
        digest = digest_of(content)
        if self.lock is not None and path.is_relative_to(self.root):
            self.lock.check(path.relative_to(self.root).as_posix(), digest)
        manifest = Manifest(str(path), digest, self.parsed(content, digest, str(path)))
        self.keep(str(path), status, manifest)
        return manifest

    def content(self, content: bytes, origin: str) -> Manifest:
        """A manifest that was read elsewhere."""
        digest = digest_of(content)
        status = (0, len(content), 0)
        if (held := self.held(digest, status)) is not None:
            return structs.replace(held, origin=origin)
        manifest = Manifest(origin, digest, self.parsed(content, digest, origin))
        self.keep(digest, status, manifest)
        return manifest

    def parsed(self, content: bytes, digest: str, origin: str) -> ParsedFile:
        """What the cache has of a content, else the content parsed."""
        if (entry := self.cache.get(digest)) is not None:
            try:
                return msgspec.json.decode(entry, type=ParsedFile)
            except msgspec.MsgspecError:
                pass  # written by another version; parsing replaces it
        parsed = parse(content, origin)
        self.cache.put(digest, msgspec.json.encode(parsed))
        return parsed

    def held(self, name: str, status: Status) -> Manifest | None:
        """The manifest in memory, if its file is still the same."""
        with self.keeping:
            held = self.kept.get(name)
            if held is None or held[0] != status:
                return None
            self.kept.move_to_end(name)
            return held[1]

    def keep(self, name: str, status: Status, manifest: Manifest) -> None:
        """Hold a manifest in memory, and let go of those not used for longest."""
        with self.keeping:
            if (before := self.kept.pop(name, None)) is not None:
                self.kept_bytes -= before[1].size
            self.kept[name] = (status, manifest)
            self.kept_bytes += manifest.size
            while self.kept_bytes > KEPT_BYTES:
                _, (_, forgotten) = self.kept.popitem(last=False)
                self.kept_bytes -= forgotten.size


def status_of(path: Path) -> Status:
    """What changes when a file does."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
