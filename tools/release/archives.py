"""Archives with the same bytes each time: sorted names, one time, no owners, plain modes."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct


class PackedFile(Struct, frozen=True):
    """A file in an archive."""

    content: bytes
    executable: bool = False


def folder_files(folder: Path, prefix: str = "") -> dict[str, PackedFile]:
    """All files of a folder, by their names in an archive."""
    return {
        f"{prefix}{path.relative_to(folder).as_posix()}": PackedFile(path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def write_archive(path: Path, files: Mapping[str, PackedFile], epoch: int) -> Path:
    """Write a .tar.gz."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name].content)
            entry.mode = 0o755 if files[name].executable else 0o644
            entry.mtime = epoch
            archive.addfile(entry, io.BytesIO(files[name].content))
    return path
