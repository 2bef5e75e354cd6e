"""Where etcd, kube-apiserver, kube-controller-manager and kubectl come from.

In this order: `KUBEBUILDER_ASSETS` and `PATH`; our cache; `go build` from `ground/go.mod`; the
official builds, checked by their published digests. `KNFLEET_GROUND` takes one way only:
`path`, `build` or `download`.
"""

import asyncio
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import platformdirs
from msgspec import Struct

from knfleet.dev.dev_folder import locked, write_private
from knfleet.dev.errors import DevError
from knfleet.dev.progress_reporter import ProgressReporter

KUBERNETES = "1.35.8"
ETCD = "3.6.5"
TOOLS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
WAYS = ("auto", "path", "build", "download")

VERSION_ARGUMENTS = {"kubectl": ("version", "--client")}
VERSION_TEXT = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


class Tool(Struct, frozen=True):
    """A binary that can be used."""

    name: str
    path: Path
    version: str
    origin: str


class KnownFile(Struct, frozen=True):
    """What a file was when its version was asked."""

    size: int
    modified: int
    version: str


Toolset = dict[str, Tool]


def cache_folder() -> Path:
    """Where what was built or downloaded is kept; named by what it was made from."""
    override = os.environ.get("KNFLEET_CACHE")
    base = Path(override) if override else platformdirs.user_cache_path("knfleet")
    machine = f"{platform.system()}-{platform.machine()}".lower()
    return base.absolute() / "ground" / f"kubernetes-{KUBERNETES}-etcd-{ETCD}-{machine}"


async def ensure(progress: ProgressReporter) -> Toolset:
    """All tools, built or downloaded if that is what it takes."""
    way = os.environ.get("KNFLEET_GROUND", "auto")
    if way not in WAYS:
        raise DevError(f"KNFLEET_GROUND={way!r} is not one of {', '.join(WAYS)}")
    folder = cache_folder()
    found, notes = await asyncio.to_thread(search, folder, way)
    if set(TOOLS) <= found.keys():
        return found
    if way == "path":
        raise DevError(none_works(found, notes, "KNFLEET_GROUND=path forbids to make them"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DevError(
            f"cannot make {error.filename}: {error.strerror}; set KNFLEET_CACHE to another folder"
        ) from error
    progress.report(f"Kubernetes {KUBERNETES} and etcd {ETCD} are made ready once, in {folder}")
    lock = folder / "lock"
    busy = f"another process still makes the binaries in {folder}"
    holding = locked(lock, wait_seconds=3600, busy=busy)
    await asyncio.to_thread(holding.__enter__)
    try:
        found, notes = await asyncio.to_thread(search, folder, way)
        missing = [name for name in TOOLS if name not in found]
        await make(folder, missing, way, progress, notes)
    finally:
        holding.__exit__(None, None, None)
    found, notes = await asyncio.to_thread(search, folder, way)
    if set(TOOLS) - found.keys():
        raise DevError(none_works(found, notes, "what was made does not run"))
    return found


async def make(
    folder: Path, missing: list[str], way: str, progress: ProgressReporter, notes: list[str]
) -> None:
    """Build the missing tools, or download them when there is no Go."""
    from knfleet.dev.binaries import build, official_builds

    if not missing:
        return
    go = shutil.which("go")
    if way == "build" and go is None:
        raise DevError(none_works({}, notes, "KNFLEET_GROUND=build, but there is no `go`"))
    if go is not None and way != "download":
        await build.build(go, folder, missing, progress)
        return
    try:
        await official_builds.download(folder, missing, progress)
    except DevError as error:
        reason = str(error) if way == "download" else f"there is no `go` in PATH, and {error}"
        raise DevError(none_works({}, notes, reason)) from error


def search(folder: Path, way: str = "auto") -> tuple[Toolset, list[str]]:
    """The tools that are there, and why others that are there were passed over."""
    memory = folder.parent / "versions.json"
    known = remembered(memory)
    found: Toolset = {}
    notes: list[str] = []
    for name in TOOLS:
        for path, origin in candidates(name, folder, way):
            tool = examine(name, path, origin, known)
            problem = tool if isinstance(tool, str) else unsuitable(tool)
            if not isinstance(tool, str) and problem is None:
                found[name] = tool
                break
            notes.append(f"{path} ({origin}): {problem}")
            if origin == "KUBEBUILDER_ASSETS":
                # The user named this very file; to use another silently would hide the mistake.
                raise DevError(
                    f"{path}: {problem}; correct KUBEBUILDER_ASSETS, or unset it to have the"
                    " binaries found or built"
                )
    if known != remembered(memory) and memory.parent.is_dir():
        write_private(memory, msgspec.json.encode(known))
    return found, notes


def candidates(name: str, folder: Path, way: str) -> list[tuple[Path, str]]:
    """Files that may be the tool, best first."""
    files: list[tuple[Path, str]] = []
    if way in ("auto", "path"):
        if assets := os.environ.get("KUBEBUILDER_ASSETS"):
            files.append((Path(assets).absolute() / name, "KUBEBUILDER_ASSETS"))
        if on_path := shutil.which(name):
            files.append((Path(on_path).absolute(), "PATH"))
    if way != "path":
        origins = {"build": ("built",), "download": ("downloaded",)}
        files += [
            (folder / origin / name, f"cache, {origin}")
            for origin in origins.get(way, ("built", "downloaded"))
        ]
    return [(path, origin) for path, origin in files if path.exists() or origin[:1] == "K"]


def examine(name: str, path: Path, origin: str, known: dict[str, KnownFile]) -> Tool | str:
    """The tool with its version, or what is wrong with it; remembers the answer."""
    try:
        stat = path.stat()
    except OSError as error:
        return error.strerror or "cannot be read"
    seen = known.get(str(path))
    if seen and (seen.size, seen.modified) == (stat.st_size, stat.st_mtime_ns):
        return Tool(name, path, seen.version, origin)
    try:
        version = ask_version(path, VERSION_ARGUMENTS.get(name, ("--version",)))
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run: {error.strerror if isinstance(error, OSError) else error}"
    except ValueError as error:
        return str(error)
    known[str(path)] = KnownFile(stat.st_size, stat.st_mtime_ns, version)
    return Tool(name, path, version, origin)


def ask_version(path: Path, arguments: Sequence[str]) -> str:
    """The version that a program tells when asked."""
    answer = subprocess.run(
        [str(path), *arguments], capture_output=True, text=True, timeout=30, check=True
    )
    match = VERSION_TEXT.search(answer.stdout)
    if match is None:
        raise ValueError("does not tell its version")
    return ".".join(match.groups())


def unsuitable(tool: Tool) -> str | None:
    """Why a tool of that version is not used, if so."""
    major, minor, _ = (int(part) for part in tool.version.split("."))
    _, wanted, _ = (int(part) for part in KUBERNETES.split("."))
    if tool.name == "etcd":
        return None if (major, minor) >= (3, 5) else f"version {tool.version}, 3.5 is needed"
    if tool.name == "kubectl":
        fits = major == 1 and abs(minor - wanted) <= 1
        return None if fits else f"version {tool.version} is too far from 1.{wanted}"
    if tool.origin == "KUBEBUILDER_ASSETS":
        return None if (major, minor) >= (1, 32) else f"version {tool.version}, 1.32 is needed"
    return None if (major, minor) == (1, wanted) else f"version {tool.version}, not 1.{wanted}"


def remembered(memory: Path) -> dict[str, KnownFile]:
    """Versions asked earlier; a damaged memory is no memory."""
    try:
        return msgspec.json.decode(memory.read_bytes(), type=dict[str, KnownFile])
    except (OSError, msgspec.DecodeError):
        return {}


def none_works(found: Mapping[str, Tool], notes: list[str], reason: str) -> str:
    """The message when tools cannot be had, with all the ways there are."""
    missing = ", ".join(name for name in TOOLS if name not in found)
    passed_over = "".join(f"\n  passed over: {note}" for note in notes)
    return (
        f"no usable {missing}: {reason}{passed_over}\n"
        "Any of these helps:\n"
        "  - set KUBEBUILDER_ASSETS to a folder that has them, or put them on PATH\n"
        "  - install Go 1.25 or newer: they are built once, in about 5 minutes\n"
        "  - KNFLEET_GROUND=download takes the official builds (needs the Internet)"
    )
