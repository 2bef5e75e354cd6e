"""A folder in the OCI image layout that images are saved to.

A blob lies in its place only after its digest was checked; until then it lies as a draft, which a
later attempt continues. The index names an image only when all of its parts are there.
"""

import fcntl
import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from knfleet.oci.errors import BadImage, BadReference
from knfleet.oci.image_manifest import (
    ALGORITHM,
    OCI_INDEX,
    Descriptor,
    ImageManifest,
    digest_of,
    image_manifest,
)
from knfleet.release.parsed_cache import write_atomically

LAYOUT_FILE, INDEX_FILE = "oci-layout", "index.json"
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}\n'
BLOBS, DRAFTS = "blobs/sha256", ".drafts"
NAME = "org.opencontainers.image.ref.name"
IMAGE = "knfleet.dev/image"
"""Annotation of an entry: the image as the release names it."""
WHOLE_INDEX = "knfleet.dev/whole-index"
"""Annotation of an entry that was reduced to some platforms: the digest of its whole index."""


class BlobDraft(Struct):
    """A blob that arrives, in pieces and in several attempts."""

    path: Path
    part: Descriptor

    def start(self) -> int:
        """How many bytes are there already; too many are thrown away."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return 0
        if size > self.part.size:
            self.path.unlink()
            return 0
        # A whole draft whose digest was wrong would never be replaced by a range behind its end.
        return size if size < self.part.size else 0

    def write(self, offset: int, content: bytes) -> None:
        """Put bytes in place, and refuse more than there may be."""
        if offset + len(content) > self.part.size:
            raise BadImage(
                f"{self.part.digest}: the registry sends more than the {self.part.size} bytes that"
                " the manifest names"
            )
        with self.path.open("r+b" if self.path.exists() else "xb") as file:
            file.seek(offset)
            file.write(content)
            if not content:
                file.truncate(offset)


class LayoutFolder:
    """An image layout that grows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs, self.drafts = root / BLOBS, root / DRAFTS
        self.index = ImageManifest(schema_version=2, media_type=OCI_INDEX)

    @contextmanager
    def opened(self) -> Generator["LayoutFolder"]:
        """Make the folder or continue it, alone."""
        if self.root.is_dir():
            others = {each.name for each in self.root.iterdir()} - {
                LAYOUT_FILE,
                INDEX_FILE,
                "blobs",
                DRAFTS,
            }
            if others:
                raise BadReference(
                    f"{self.root}: holds other things than images ({min(others)}); give a new or"
                    " empty folder, or one that `knfleet airgap save` wrote"
                )
        for folder in (self.blobs, self.drafts):
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BadReference(
                    f"{self.root}: another process writes images there; wait for it"
                ) from None
            path = self.root / INDEX_FILE
            if path.is_file():
                self.index = image_manifest(str(path), path.read_bytes(), OCI_INDEX)
            write_atomically(self.root / LAYOUT_FILE, LAYOUT)
            yield self
            if not any(self.drafts.iterdir()):
                self.drafts.rmdir()
        finally:
            os.close(descriptor)

    def place(self, digest: str) -> Path:
        return self.blobs / digest.removeprefix(ALGORITHM)

    def has(self, part: Descriptor) -> bool:
        """Whether a part is there, whole; one that was damaged is removed."""
        path = self.place(part.digest)
        if not path.is_file():
            return False
        if path.stat().st_size == part.size and file_digest(path) == part.digest:
            return True
        path.unlink()
        return False

    def content(self, digest: str) -> bytes | None:
        """A small blob that is there and whole, such as a manifest."""
        try:
            content = self.place(digest).read_bytes()
        except FileNotFoundError:
            return None
        return content if digest_of(content) == digest else None

    def add(self, content: bytes) -> str:
        """Keep some bytes; their digest."""
        digest = digest_of(content)
        if self.content(digest) is None:
            write_atomically(self.place(digest), content)
        return digest

    def draft(self, part: Descriptor) -> BlobDraft:
        return BlobDraft(self.drafts / part.digest.removeprefix(ALGORITHM), part)

    def accept(self, draft: BlobDraft, where: str) -> None:
        """Put a blob in its place if it is what its digest says; otherwise throw it away."""
        size, found = draft.path.stat().st_size, file_digest(draft.path)
        if (size, found) != (draft.part.size, draft.part.digest):
            draft.path.unlink()
            raise BadImage(
                f"{where}: the registry sent {size} bytes with the digest {found}, not"
                f" {draft.part.size} with {draft.part.digest}; try again, or another registry"
            )
        with draft.path.open("rb") as file:
            os.fsync(file.fileno())
        draft.path.replace(self.place(draft.part.digest))

    def name(self, entry: Descriptor) -> None:
        """Name a finished image in the index, instead of one of the same name."""
        name = entry.annotations[IMAGE]
        others = [each for each in self.index.manifests if each.annotations.get(IMAGE) != name]
        entries = sorted([*others, entry], key=lambda each: each.annotations.get(IMAGE, ""))
        self.index = structs.replace(self.index, manifests=tuple(entries))
        content = msgspec.json.format(msgspec.json.encode(self.index, order="sorted"), indent=1)
        write_atomically(self.root / INDEX_FILE, content + b"\n")


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return ALGORITHM + hashlib.file_digest(file, "sha256").hexdigest()
