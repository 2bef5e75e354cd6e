"""Saves images, release files and charts in a layout: a folder, or a tar file of it."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from knfleet.oci.artifact import save_artifact
from knfleet.oci.errors import BadReference
from knfleet.oci.image_download import ImageDownload, ImageMirrors
from knfleet.oci.image_manifest import Platform
from knfleet.oci.image_reference import image_reference
from knfleet.oci.layout_archive import pack
from knfleet.oci.layout_folder import INDEX_FILE, LayoutFolder, file_digest
from knfleet.oci.registry_client import RegistryClient
from knfleet.workflows.airgap.chart_artifact import saved_chart
from knfleet.workflows.airgap.release_archive import NAME, SavedChoice, release_artifact

TAR, UNFINISHED = ".tar", ".unfinished"
Reporter = Callable[[str], None]


class SaveRequest(Struct, frozen=True):
    """What is saved, and where."""

    target: Path
    """A folder, or a file that ends with .tar."""
    images: Sequence[str]
    release_files: Path
    choice: SavedChoice = SavedChoice()
    charts: Sequence[Path] = ()
    mirrors: ImageMirrors = ImageMirrors()
    platforms: Sequence[Platform] = ()


class SavedImages(Struct, frozen=True):
    """What was saved."""

    images: int
    fetched_bytes: int
    checksum: str
    """sha256 of the tar file, or of the folder's index.json, from which all else follows."""


async def save(client: RegistryClient, request: SaveRequest, report: Reporter) -> SavedImages:
    """Save everything; what an attempt before has saved stays and is not fetched again."""
    is_tar = request.target.name.endswith(TAR)
    folder = (
        request.target.with_name(request.target.name + UNFINISHED) if is_tar else request.target
    )
    check_target(request.target, is_tar=is_tar)
    charts = [saved_chart(path) for path in request.charts]
    references = {name: image_reference(name) for name in sorted(set(request.images))}
    with LayoutFolder(folder).opened() as layout:
        download = ImageDownload(client, layout, request.mirrors, request.platforms)
        for number, (name, reference) in enumerate(references.items(), 1):
            before = download.fetched_bytes
            await download.save(name, reference)
            size = download.fetched_bytes - before
            report(f"{number}/{len(references)} {name}: {size / 1e6:.1f} MB")
        with tempfile.TemporaryDirectory(prefix="knfleet-") as temporary:
            archive = Path(temporary) / "release-files.tar.gz"
            artifact = release_artifact(request.release_files, archive, request.choice)
            save_artifact(layout, NAME, artifact)
        for chart in charts:
            save_artifact(layout, chart.name, chart.artifact)
    checksum = file_digest(folder / INDEX_FILE)
    if is_tar:
        report(f"packing {request.target}")
        checksum = "sha256:" + await asyncio.to_thread(pack, folder, request.target)
        await asyncio.to_thread(shutil.rmtree, folder)
    return SavedImages(len(references), download.fetched_bytes, checksum)


def check_target(target: Path, *, is_tar: bool) -> None:
    """Refuse a place where something else lies."""
    if is_tar and target.is_dir():
        raise BadReference(f"{target}: is a folder; name a file that ends with {TAR}")
    if not is_tar and target.exists() and not target.is_dir():
        raise BadReference(f"{target}: is a file; name a folder, or a file that ends with {TAR}")
    if not target.absolute().parent.is_dir():
        raise BadReference(f"{target.parent}: there is no such folder; create it first")
