"""Where a real pod's things are kept, and how its containers see their volumes.

<pods>/<namespace>_<pod>_<uid>/
    <container>.log, <container>.previous.log, <container>.pid
    volumes/<volume>/            the files of a volume
    roots/<container>/           KNFLEET_POD_ROOT: below it a link at every mount path
    tmp/                         TMPDIR
"""

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from knfleet.api.meta import Object
from knfleet.dev.node.containers.container_command import expand
from knfleet.dev.node.containers.container_environment import ReferenceMissing
from knfleet.dev.node.pods.pod_manifests import rows, uid_of
from knfleet.dev.node.pods.volumes import UnsupportedVolume, inside


class PodFolder:
    """The folder of one pod."""

    def __init__(self, pods_folder: Path, pod: Object) -> None:
        meta = pod["metadata"]
        self.path = pods_folder / f"{meta['namespace']}_{meta['name']}_{uid_of(pod)}"

    @property
    def tmp(self) -> Path:
        """The pod's folder for temporary files."""
        return self.path / "tmp"

    def create(self) -> None:
        """Make the folder, readable by the owner only."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.tmp.mkdir(exist_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def log(self, container: str, *, previous: bool = False) -> Path:
        """What the container wrote, or what it wrote before its last restart."""
        return self.path / (f"{container}.previous.log" if previous else f"{container}.log")

    def pid_file(self, container: str) -> Path:
        return self.path / f"{container}.pid"

    def volume(self, name: str) -> Path:
        return self.path / "volumes" / name

    def root(self, container: str) -> Path:
        """The folder that holds a container's mounts."""
        return self.path / "roots" / container


def mount(folder: PodFolder, container: Object, variables: Mapping[str, str]) -> None:
    """Link every volume mount of a container below its root, outer ones before inner ones."""
    root = folder.root(container["name"])
    root.mkdir(parents=True, exist_ok=True)
    mounts = sorted(rows(container.get("volumeMounts")), key=lambda each: len(each["mountPath"]))
    for each in mounts:
        target = mounted(folder.volume(each["name"]), each, variables)
        link = root / inside(each["mountPath"].strip("/"))
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        elif link.exists():
            raise UnsupportedVolume(
                f"{each['mountPath']} is inside another volume, and taken there"
            )
        link.symlink_to(target)


def mounted(volume: Path, volume_mount: Object, variables: Mapping[str, str]) -> Path:
    """The file or folder that a mount shows."""
    part = volume_mount.get("subPath") or expand(volume_mount.get("subPathExpr") or "", variables)
    if not part:
        return volume
    target = volume / inside(part)
    if not target.exists():
        if (volume / "..data").is_symlink():
            raise ReferenceMissing(f'volume "{volume.name}" has no {part}')
        target.mkdir(parents=True)
    return target


def mount_paths(container: Object) -> list[str]:
    """Every path at which a container has a volume."""
    return [each["mountPath"] for each in rows(container.get("volumeMounts"))]


def link_executables(folder: Path, image: str) -> None:
    """Make a folder show our installed programs, at its top and in `bin`, as our images do.

    Under the name `plugin-binary` there is the plugin that the image is named after.
    """
    programs = Path(sys.executable).parent
    named = f"{image}-plugin"
    plugin = named if (programs / named).exists() else "secretreader-plugin"
    for place in (folder, folder / "bin"):
        place.mkdir(parents=True, exist_ok=True)
        for name in our_programs(programs):
            link = place / name
            if not link.is_symlink():
                link.symlink_to(programs / name)
        alias = place / "plugin-binary"
        if not alias.is_symlink():
            alias.symlink_to(programs / plugin)


def our_programs(programs: Path) -> list[str]:
    """Names of our programs beside the interpreter, credential plugins of any package included."""
    try:
        entries = distribution("knfleet").entry_points.select(group="console_scripts")
    except PackageNotFoundError:
        entries = ()
    names = {entry.name for entry in entries} | {path.name for path in programs.glob("*-plugin")}
    return sorted(name for name in names if os.access(programs / name, os.X_OK))
