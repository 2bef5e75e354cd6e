"""The Knative Operator itself: its binary, built once, and the files of its Go module."""

import hashlib
import shutil
from pathlib import Path

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev import binaries
from knfleet.dev.build import Counter, modules, run
from knfleet.dev.folder import locked
from knfleet.dev.progress import Progress
from knfleet.kube.yaml import load_all
from knfleet.release.sources import MODULE_FOLDER, GoModule

PACKAGE = "knative.dev/operator/cmd/operator"


class GoProject(Struct, frozen=True):
    """What we need of the Knative Operator."""

    binary: Path
    kodata: Path
    digest: str
    """Of everything that decides what it does: its binary, and its module with the releases."""

    def definitions(self) -> list[Object]:
        """Its own CRDs."""
        module = Path(str(self.kodata).removesuffix(MODULE_FOLDER))
        files = sorted((module / "config" / "crd" / "bases").glob("*.yaml"))
        return [crd for file in files for crd in load_all(file.read_bytes())]


async def go_project(progress: Progress) -> GoProject:
    """The Knative Operator, built unless it is in the cache."""
    go = shutil.which("go")
    assert go is not None
    source = modules() / "peers"
    sums = hashlib.sha256((source / "go.sum").read_bytes()).hexdigest()
    folder = binaries.cache_folder().parent / f"peers-{sums[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / "operator"
    busy = f"another process still builds {binary}"
    with locked(folder / "lock", wait_seconds=1800, busy=busy):
        if not binary.exists():
            await build(go, source, binary, progress)
    content = hashlib.sha256(binary.read_bytes()).hexdigest()
    return GoProject(binary, await GoModule().fetch(), f"{content}-{sums}")


async def build(go: str, source: Path, binary: Path, progress: Progress) -> None:
    """Build the binary; it appears only when it is complete."""
    progress.say(f"building {binary.name} with {go}: about 2 minutes, once")
    draft = binary.with_name(".draft")
    command = [go, "build", "-v", "-trimpath", "-ldflags", "-s -w", "-o", str(draft), PACKAGE]
    await run(command, source, Counter(progress, "compiling packages"))
    draft.replace(binary)
