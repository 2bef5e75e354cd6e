"""Where release files come from; one seam, whatever lies behind it.

a folder or archive     in the layout of `KO_DATA_PATH`
go:MODULE@VERSION       the Knative Operator's Go module, through the `go` command
releases:VERSION,…      the project's releases over HTTPS (see `release.project`)
"""

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct
from platformdirs import user_cache_path, user_data_path

from knfleet.release.errors import FetchFailed, NotAvailable
from knfleet.release.layout import SECTIONS
from knfleet.release.source.archive import MOST_BYTES, ArchiveContents, unpack

MODULE = "knative.dev/operator"
MODULE_VERSION = "v0.50.0"
"""Brings Knative 1.20 to 1.23."""
MODULE_FOLDER = "cmd/operator/kodata"
GO_SECONDS = 600

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


class ReleaseSource(Protocol):
    """A way to get release files."""

    async def fetch(self) -> Path:
        """A folder with release files, which the caller only reads; raises `ReleaseError`."""
        ...


class FolderSource(Struct, frozen=True):
    """A folder that is there already."""

    path: Path

    async def fetch(self) -> Path:
        """The folder, if it is one with release files."""
        if not self.path.is_dir():
            raise NotAvailable(f"{self.path}: there is no such folder")
        if not any((self.path / section).is_dir() for section in SECTIONS):
            raise NotAvailable(
                f"{self.path}: holds no release files; it must have at least one of the folders "
                f"{', '.join(SECTIONS)}"
            )
        return self.path

    def __str__(self) -> str:
        return str(self.path)


class ArchiveSource(Struct, frozen=True):
    """A .tar.gz or .zip with release files."""

    path: Path
    cache: Path
    most_bytes: int = MOST_BYTES

    async def fetch(self) -> Path:
        """The folder into which the archive was unpacked."""
        return await asyncio.to_thread(
            unpack, ArchiveContents(self.path, self.most_bytes), self.cache
        )

    def __str__(self) -> str:
        return self.path.name


class GoModuleSource(Struct, frozen=True):
    """The Knative Operator's Go module, checked and kept by the `go` command."""

    module: str = MODULE
    version: str = MODULE_VERSION
    folder: str = MODULE_FOLDER
    command: str = "go"
    seconds: float = GO_SECONDS

    async def fetch(self) -> Path:
        """The folder of release files in the module."""
        answer = await self.download()
        folder = Path(answer.directory) / self.folder
        if answer.error or not answer.directory:
            raise NotAvailable(
                f"{self}: {answer.error or 'was not downloaded'}; check the module's name and "
                f"version, and GOPROXY"
            )
        return await FolderSource(folder).fetch()

    async def download(self) -> "GoDownload":
        """What `go mod download` says."""
        name = f"{self.module}@{self.version}"
        try:
            process = await asyncio.create_subprocess_exec(
                self.command,
                *("mod", "download", "-json", name),
                cwd=tempfile.gettempdir(),
                env={**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise NotAvailable(
                f"{self}: the `{self.command}` command cannot be started ({error.strerror}); "
                f"install Go, or get the release files from a folder, archive or HTTPS"
            ) from error
        try:
            async with asyncio.timeout(self.seconds):
                output, errors = await process.communicate()
        except TimeoutError:
            raise FetchFailed(
                f"{self}: not downloaded within {self.seconds:g} s; check GOPROXY and the network"
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()
        try:
            return msgspec.json.decode(output, type=GoDownload)
        except msgspec.MsgspecError:
            output = errors.decode(errors="replace").strip()[-500:]
            raise FetchFailed(
                f"{self}: `go mod download` failed: {output or 'no output'}"
            ) from None

    def __str__(self) -> str:
        return f"go:{self.module}@{self.version}"


class GoDownload(Struct, frozen=True):
    """The part of `go mod download -json` that we read."""

    directory: str = msgspec.field(name="Dir", default="")
    error: str = msgspec.field(name="Error", default="")


def source(text: str) -> ReleaseSource:
    """The source that a text names; raises `NotAvailable` when it names none."""
    kind, colon, rest = text.partition(":")
    if text == "go" or (kind == "go" and colon):
        module, at, version = (rest or f"{MODULE}@{MODULE_VERSION}").partition("@")
        if not at or not module or module.startswith("-"):
            raise NotAvailable(f"{text}: write go:{MODULE}@{MODULE_VERSION}")
        return GoModuleSource(module, version)
    if kind == "releases" and colon:
        from knfleet.release.source.project import HOST, ProjectReleases

        return ProjectReleases(
            versions=tuple(filter(None, rest.split(","))),
            cache=cache_folder() / "releases",
            host=os.environ.get("KNFLEET_RELEASES_URL", "").rstrip("/") or HOST,
        )
    if "://" in text:
        raise NotAvailable(f"{text}: download the archive first, and give its path")
    path = Path(text).expanduser()
    if path.name.endswith(ARCHIVES):
        return ArchiveSource(path, cache_folder() / "archives")
    return FolderSource(path)


def cache_folder() -> Path:
    """Where things that can be made again are kept."""
    return user_cache_path("knfleet")


def bundle_folder() -> Path:
    """Where `knfleet bundle pull` puts release files."""
    return user_data_path("knfleet") / "bundle"


def default_folder() -> Path:
    """The release files to use when none are named: `KO_DATA_PATH`, else what was pulled."""
    if configured := os.environ.get("KO_DATA_PATH"):
        return Path(configured)
    if bundle_folder().is_dir():
        return bundle_folder()
    raise NotAvailable(
        "there are no release files on this machine; get them with `knfleet bundle pull`, "
        "or set KO_DATA_PATH to their folder"
    )
