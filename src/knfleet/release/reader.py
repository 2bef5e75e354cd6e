"""Reads manifest files, parsing each content once.

What was read is kept in memory by path and file status, and on disk by digest; what the lock does
not know is refused before it is parsed.
"""

import threading
from collections import OrderedDict
from pathlib import Path

import msgspec

from knfleet.release.cache import ParsedCache
from knfleet.release.errors import BadManifest, NotAvailable
from knfleet.release.lock import Lock
from knfleet.release.manifest import Manifest, Parsed, digest_of, parse

LARGEST = 32 * 1024 * 1024
KEPT = 256
"""Files kept in memory; a release with everything on has about a dozen."""

Status = tuple[int, int, int]


class Reader:
    """Manifest files of one bundle, and others; may be used from several threads."""

    def __init__(self, root: Path, cache: ParsedCache, lock: Lock | None = None) -> None:
        self.root = root
        self.cache = cache
        self.lock = lock
        self.kept: OrderedDict[str, tuple[Status, Manifest]] = OrderedDict()
        self.keeping = threading.Lock()

    def file(self, path: Path) -> Manifest:
        """A manifest file."""
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
        return Manifest(origin, digest, self.parsed(content, digest, origin))

    def parsed(self, content: bytes, digest: str, origin: str) -> Parsed:
        """What the cache has of a content, else the content parsed."""
        if (entry := self.cache.get(digest)) is not None:
            try:
                return msgspec.json.decode(entry, type=Parsed)
            except msgspec.MsgspecError:
                pass  # written by another version; parsing replaces it
        parsed = parse(content, origin)
        self.cache.put(digest, msgspec.json.encode(parsed))
        return parsed

    def held(self, path: str, status: Status) -> Manifest | None:
        """The manifest in memory, if its file is still the same."""
        with self.keeping:
            held = self.kept.get(path)
            if held is None or held[0] != status:
                return None
            self.kept.move_to_end(path)
            return held[1]

    def keep(self, path: str, status: Status, manifest: Manifest) -> None:
        """Hold a manifest in memory, and let go of those not used for longest."""
        with self.keeping:
            self.kept[path] = (status, manifest)
            self.kept.move_to_end(path)
            while len(self.kept) > KEPT:
                self.kept.popitem(last=False)


def status_of(path: Path) -> Status:
    """What changes when a file does."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
