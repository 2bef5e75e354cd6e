"""How release files lie in a folder, as in the Knative Operator's `KO_DATA_PATH`.

    knative-serving/<x.y.z>/N-<file>.yaml         N gives the order
    knative-eventing/<x.y.z>/N-<file>.yaml
    ingress/<x.y>/<plugin>/*.yaml
    eventing-source/<x.y>/<source>/*.yaml
    security-guard/<a.b>/*.yaml

A version may also be called `latest`. Folders are read in lexical order and not below.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from knfleet.api.knative.resources import Component
from knfleet.release.errors import BadManifest, NotAvailable, ReleaseError
from knfleet.release.version import is_latest, minor_of, newest_first

COMPONENTS: dict[Component, str] = {"serving": "knative-serving", "eventing": "knative-eventing"}
INGRESS = "ingress"
SOURCES = "eventing-source"
GUARD = "security-guard"
SECTIONS = (*COMPONENTS.values(), INGRESS, SOURCES, GUARD)

GUARD_VERSIONS = {"1.20": "0.6", "1.21": "0.6", "1.22": "0.6", "1.23": "0.6"}
"""The security guard that fits a minor version of Serving."""

SUFFIXES = (".yaml", ".yml", ".json")
NUMBERED = re.compile(r"(\d+)-")


class Layout(Struct, frozen=True):
    """A folder with release files."""

    root: Path

    def releases(self, component: Component) -> list[str]:
        """Versions of a component that are there, newest first."""
        return newest_first(folders(self.root / COMPONENTS[component]))

    def versions(self, section: str) -> list[str]:
        """Versions in any section, newest first."""
        return newest_first(folders(self.root / section))

    def component(self, component: Component, version: str) -> Path:
        """The folder of one release of a component."""
        return self.below(COMPONENTS[component], version)

    def ingress(self, version: str, plugin: str) -> Path:
        """The folder of an ingress plugin that fits a Serving version."""
        return self.below(INGRESS, minor_of(version), plugin)

    def source(self, version: str, name: str) -> Path:
        """The folder of an event source that fits an Eventing version."""
        return self.below(SOURCES, minor_of(version), name)

    def guard(self, version: str) -> Path:
        """The folder of the security guard that fits a Serving version."""
        minor = minor_of(version)
        if is_latest(version):
            minor = next((minor_of(v) for v in self.releases("serving") if not is_latest(v)), minor)
        if minor not in GUARD_VERSIONS:
            raise NotAvailable(
                f"the current version of Knative Serving is {minor}. You need to install the "
                f"version 1.8 or above to support the security guard"
            )
        return self.below(GUARD, GUARD_VERSIONS[minor])

    def below(self, section: str, version: str, name: str = "") -> Path:
        """A folder that exists; otherwise `NotAvailable` says which there are."""
        there = self.versions(section)
        if version not in there:
            raise NotAvailable(
                f"{self.root / section} has no version {version!r}{advice(version, there)}"
            )
        folder = self.root / section / version
        if not name:
            return folder
        names = folders(folder)
        if name not in names:
            raise NotAvailable(f"{folder} has no {name}; it has {listed(names)}")
        return folder / name

    def relocated(self, path: str) -> Path | None:
        """The folder here that was meant by a path of another machine or image."""
        for section in SECTIONS:
            _, found, rest = path.rpartition(f"/{section}/")
            names = rest.split("/")
            if found and names[0] in folders(self.root / section):
                here = self.root.joinpath(section, *names)
                return here if ".." not in names and here.is_dir() else None
        return None


def folders(path: Path) -> list[str]:
    """Names of the folders in a folder; none if it cannot be read."""
    try:
        # Every pass looks at these; the system tells what is a folder along with its name.
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []


def advice(version: str, there: Sequence[str]) -> str:
    """What to write instead of a version that is not there."""
    if not there:
        return "; it contains no release files"
    bare = version.removeprefix("v")
    if bare != version and any(name.startswith(bare) for name in there):
        return f"; write it without the leading v: {bare}"
    return f"; it has {listed(there)}"


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def manifest_files(path: Path) -> list[Path]:
    """The manifest files that a file or folder stands for, in the order of their names."""
    if path.is_dir():
        return sorted(file for file in path.iterdir() if is_manifest(file) and file.is_file())
    if not path.is_file():
        raise NotAvailable(f"{path}: there is no such file or folder")
    if not is_manifest(path):
        raise BadManifest(f"{path}: the name of a manifest ends with {listed(SUFFIXES)}")
    return [path]


def is_manifest(path: Path) -> bool:
    """Whether a file's name is that of a manifest."""
    return path.suffix in SUFFIXES and not path.name.startswith(".")


def check_complete(folder: Path, files: Sequence[Path]) -> None:
    """Raise unless the numbers of a release's files run without a gap."""
    numbers = {int(found[1]) for file in files if (found := NUMBERED.match(file.name))}
    missing = sorted(set(range(1, max(numbers, default=0) + 1)) - numbers)
    if missing:
        names = listed([f"{number}-*.yaml" for number in missing])
        raise incomplete(folder, f"{names} missing")


def incomplete(folder: Path, what: str) -> ReleaseError:
    """The error for a release folder that lacks files."""
    return BadManifest(
        f"{folder} is not complete ({what}); get it again with `knfleet bundle pull`"
    )
