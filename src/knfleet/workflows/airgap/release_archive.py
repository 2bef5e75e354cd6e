"""Release files as an artifact beside the images, and as a source on the other side."""

import gzip
import tarfile
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet.oci.artifact import Artifact
from knfleet.oci.errors import MissingImage
from knfleet.oci.image_manifest import EMPTY_CONFIG, Descriptor, image_manifest
from knfleet.oci.layout_reader import ImageLayout, image_layout
from knfleet.release.lock import bundle_files
from knfleet.release.source.archive import ArchiveContents, unpack
from knfleet.release.source.sources import cache_folder

NAME = "knfleet.dev/release-files:latest"
TYPE = "application/vnd.knfleet.release-files.v1"
LAYER = "application/vnd.knfleet.release-files.v1.tar+gzip"
CHOICE = "knfleet.dev/choice"
"""Annotation: which releases and components the images of a layout are for."""
PREFIX = "layout:"


class SavedChoice(Struct, frozen=True):
    """Which releases and components were saved; all where nothing is named."""

    releases: tuple[str, ...] = ()
    components: tuple[str, ...] = ()


def release_artifact(root: Path, target: Path, choice: SavedChoice) -> Artifact:
    """Pack the release files of a folder: the same bytes for the same files."""
    packed = BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for path in bundle_files(root):
            content = path.read_bytes()
            member = tarfile.TarInfo(path.relative_to(root).as_posix())
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, BytesIO(content))
    target.write_bytes(packed.getvalue())
    noted = msgspec.json.encode(choice, order="sorted").decode()
    return Artifact(target, LAYER, EMPTY_CONFIG, TYPE, annotations={CHOICE: noted})


def saved_choice(layout: ImageLayout) -> SavedChoice:
    """Which releases and components a layout was made for."""
    manifest = image_manifest(NAME, layout.manifest_content(release_entry(layout).digest))
    return msgspec.json.decode(manifest.annotations.get(CHOICE, "{}"), type=SavedChoice)


def release_entry(layout: ImageLayout) -> Descriptor:
    """The release files in a layout."""
    found = [each for each in layout.index.manifests if each.artifact_type == TYPE]
    if not found:
        raise MissingImage(
            f"{layout.path}: holds no release files; make it again with `knfleet airgap save`"
        )
    return found[0]


def saved_release_files(layout: ImageLayout) -> Path:
    """A folder with the release files of a layout, which are unpacked once."""
    manifest = image_manifest(NAME, layout.manifest_content(release_entry(layout).digest))
    layers: Sequence[Descriptor] = manifest.layers
    if len(layers) != 1 or layers[0].media_type != LAYER:
        raise MissingImage(f"{layout.path}: {NAME} holds no release files")
    digest = layers[0].digest
    if layout.found_digest(digest) != digest:
        raise MissingImage(f"{layout.path}: the release files are damaged; copy the layout again")
    with tempfile.TemporaryDirectory(prefix="knfleet-") as temporary:
        archive = Path(temporary) / "release-files.tar.gz"
        with archive.open("wb") as file:
            file.writelines(layout.chunks(digest))
        return unpack(ArchiveContents(archive), cache_folder() / "archives")


class LayoutSource(Struct, frozen=True):
    """Release files that were saved beside images."""

    path: Path

    async def fetch(self) -> Path:
        """The folder into which they were unpacked."""
        with image_layout(self.path) as layout:
            return saved_release_files(layout)

    def __str__(self) -> str:
        return f"{PREFIX}{self.path.name}"
