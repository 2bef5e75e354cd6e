"""Packs an image layout as one tar file: the same bytes for the same images."""

import hashlib
import os
import tarfile
from pathlib import Path

from knfleet.oci.layout_folder import BLOBS, INDEX_FILE, LAYOUT_FILE
from knfleet.release.parsed_cache import temporary_beside

SUM_SUFFIX = ".sha256"


def pack(folder: Path, target: Path) -> str:
    """Write the tar file, and its checksum beside it for `sha256sum -c`; the checksum."""
    blobs = sorted((folder / BLOBS).iterdir())
    with temporary_beside(target) as (descriptor, temporary):
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w|") as tar:
            for path in (folder / LAYOUT_FILE, folder / INDEX_FILE, *blobs):
                member = tarfile.TarInfo(path.relative_to(folder).as_posix())
                member.size, member.mode = path.stat().st_size, 0o644
                with path.open("rb") as content:
                    tar.addfile(member, content)
        temporary.chmod(0o644)
        temporary.replace(target)
    with target.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    target.with_name(target.name + SUM_SUFFIX).write_text(f"{checksum}  {target.name}\n")
    return checksum
