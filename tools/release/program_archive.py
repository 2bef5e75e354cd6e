"""The program in one file, which needs nothing but Python on the machine.

Extension modules are named by the version of Python that they are made for, so those of several
versions go into one file. It is unpacked into the user's cache when it runs first.
"""

import shutil
import sys
import zipfile
from pathlib import Path

from tools.release.archives import PackedFile, write_archive
from tools.release.artifacts import PROGRAMS
from tools.release.source_tree import ReleaseError, SourceTree, run

TARGETS = {
    "linux-amd64": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "darwin-arm64": "aarch64-apple-darwin",
}
"""How uv calls a platform. The `cryptography` project has no packages for Intel Macs any more."""
PLATFORMS = tuple(TARGETS)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OF_THIS_MACHINE = ("RECORD", "REQUESTED", "INSTALLER", "direct_url.json", "uv_cache.json")
"""What installers write about an installation."""
GRPC = ("grpcio", "protobuf")
"""What only the gRPC server and agents need, which run from the image."""


def program_archive(
    tree: SourceTree, wheel: Path, platform: str, pythons: tuple[str, ...], target: Path
) -> Path:
    """Write the program for a platform with the license beside it."""
    merged = tree.root / f"program-{platform}"
    for python in pythons:
        part = tree.root / f"program-{platform}-{python}"
        install(tree, platform, python, part)
        merge(part, merged)
        shutil.rmtree(part)
    with zipfile.ZipFile(wheel) as own:
        own.extractall(merged)
    program = tree.root / f"knfleet-{platform}.pyz"
    run(
        *(tree, str(PROGRAMS / "shiv"), "--site-packages", str(merged), "--reproducible"),
        *("--compressed", "--python", "/usr/bin/env python3", "--root", "~/.cache/knfleet/program"),
        *("--entry-point", "knfleet.cli.main:main", "--output-file", str(program)),
    )
    shutil.rmtree(merged)
    files = {
        "knfleet": PackedFile(program.read_bytes(), executable=True),
        "LICENSE": PackedFile((tree.root / "LICENSE").read_bytes()),
    }
    program.unlink()
    return write_archive(target / f"knfleet-{tree.version}-{platform}.tar.gz", files, tree.epoch)


def install(tree: SourceTree, platform: str, python: str, folder: Path) -> None:
    """Install the pinned dependencies for a platform and Python, as packages that are built."""
    excluded = tree.root / "excluded.txt"
    excluded.write_text("".join(f"{name}\n" for name in GRPC))
    run(
        *(tree, str(PROGRAMS / "uv"), "pip", "install", "--quiet", "--target", str(folder)),
        *("--python", sys.executable, "--python-platform", TARGETS[platform]),
        *("--python-version", python, "--only-binary", ":all:", "--require-hashes", "--no-deps"),
        *("--link-mode", "copy", "--excludes", str(excluded)),
        *("--requirements", "requirements/runtime.txt"),
    )


def merge(part: Path, whole: Path) -> None:
    """Add an installation to others; a file of code that two of them have is the same in both."""
    for path in sorted(part.rglob("*")):
        name = path.relative_to(part)
        # Programs begin with a path of this machine.
        if not path.is_file() or name.parts[0] in ("bin", ".lock") or name.name in OF_THIS_MACHINE:
            continue
        there = whole / name
        if not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, there)
        elif not is_record(name) and there.read_bytes() != path.read_bytes():
            raise ReleaseError(f"{name} is another file for another version of Python")


def is_record(name: Path) -> bool:
    """Whether a file describes a package, by the version of Python that it is for."""
    return name.parts[0].endswith(".dist-info")
