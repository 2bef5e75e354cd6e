"""Reads image layouts: folders, and uncompressed tar files of them, without unpacking."""

import hashlib
import tarfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

import msgspec

from knfleet.kube.untrusted_json import decode_json
from knfleet.oci.errors import BadImage, BadReference, MissingImage
from knfleet.oci.image_manifest import (
    ALGORITHM,
    MOST_BYTES,
    OCI_INDEX,
    ImageManifest,
    check_digest,
    image_manifest,
)
from knfleet.oci.layout_folder import BLOBS, INDEX_FILE, LAYOUT_FILE

CHUNK = 256 * 1024
MOST_MEMBERS = 50_000


class LayoutStore(Protocol):
    """The files of a layout."""

    def open(self, name: str) -> IO[bytes] | None:
        """A file; None where there is none."""
        ...

    def size(self, name: str) -> int | None:
        """How large a file is; None where there is none."""
        ...


class FolderStore:
    """A layout in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self, name: str) -> IO[bytes] | None:
        path = self.root / name
        return path.open("rb") if path.is_file() else None

    def size(self, name: str) -> int | None:
        path = self.root / name
        return path.stat().st_size if path.is_file() else None


class TarStore:
    """A layout in a tar file, which is read in place."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115  # the caller closes
        self.members: dict[str, tarfile.TarInfo] = {}
        for member in self.tar:
            if len(self.members) >= MOST_MEMBERS:
                raise BadImage(f"{path}: holds more than {MOST_MEMBERS} files")
            if member.isreg():
                self.members[PurePosixPath(member.name).as_posix()] = member

    def open(self, name: str) -> IO[bytes] | None:
        member = self.members.get(name)
        return self.tar.extractfile(member) if member else None

    def size(self, name: str) -> int | None:
        member = self.members.get(name)
        return member.size if member else None


class ImageLayout:
    """An image layout that is read."""

    def __init__(self, path: Path, store: LayoutStore) -> None:
        self.path, self.store = path, store
        if decode_json(self.small(LAYOUT_FILE), dict[str, str]) != {"imageLayoutVersion": "1.0.0"}:
            raise BadImage(f"{path}: {LAYOUT_FILE} names another version of layouts than 1.0.0")
        self.index_content = self.small(INDEX_FILE)
        self.index: ImageManifest = image_manifest(
            f"{path}: {INDEX_FILE}", self.index_content, OCI_INDEX
        )

    def small(self, name: str) -> bytes:
        """A file that is read as a whole."""
        file = self.store.open(name)
        if file is None:
            raise MissingImage(
                f"{self.path}: has no {name}, so that it is no image layout; make one with"
                " `knfleet airgap save`"
            )
        with file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise BadImage(f"{self.path}: {name} is larger than {MOST_BYTES >> 20} MiB")
        return content

    def size(self, digest: str) -> int | None:
        return self.store.size(blob_name(digest))

    def manifest_content(self, digest: str) -> bytes:
        """The bytes of a manifest, checked."""
        content = self.small(blob_name(digest))
        check_digest(f"{self.path}: {digest}", content, digest)
        return content

    def chunks(self, digest: str) -> Iterator[bytes]:
        """The bytes of a blob, in pieces."""
        file = self.store.open(blob_name(digest))
        if file is None:
            raise MissingImage(f"{self.path}: the blob {digest} is missing")
        with file:
            while chunk := file.read(CHUNK):
                yield chunk

    def found_digest(self, digest: str) -> str:
        """The digest that a blob really has."""
        found = hashlib.sha256()
        for chunk in self.chunks(digest):
            found.update(chunk)
        return ALGORITHM + found.hexdigest()


def blob_name(digest: str) -> str:
    return f"{BLOBS}/{digest.removeprefix(ALGORITHM)}"


@contextmanager
def image_layout(path: Path) -> Generator[ImageLayout]:
    """The layout in a folder or tar file; raises `ImageError` where there is none."""
    if path.is_dir():
        yield read_layout(path, FolderStore(path))
        return
    if not path.is_file():
        raise BadReference(f"{path}: there is no such folder or file")
    with path.open("rb") as file:
        try:
            store = TarStore(path, file)
        except (tarfile.TarError, EOFError) as error:
            raise BadImage(
                f"{path}: is not a whole, uncompressed tar file ({error}); copy it again, or"
                " unpack it"
            ) from None
        yield read_layout(path, store)


def read_layout(path: Path, store: LayoutStore) -> ImageLayout:
    """The layout of a store, if it is one."""
    try:
        return ImageLayout(path, store)
    except msgspec.MsgspecError as error:
        raise BadImage(f"{path}: {LAYOUT_FILE} cannot be read: {error}") from None
