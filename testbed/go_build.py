"""Programs of others that tests compare with or use: built once from their Go modules, and kept."""

import hashlib
import shutil
from pathlib import Path

from knfleet.dev.binaries import locate
from knfleet.dev.binaries.build import Counter, modules, run
from knfleet.dev.dev_folder import locked
from knfleet.dev.progress_reporter import ProgressReporter

WAIT_SECONDS = 1800


async def built(place: str, package: str, name: str, progress: ProgressReporter) -> Path:
    """The program of a package, from the modules in `ground/<place>`, built unless it is kept."""
    go, source = shutil.which("go"), modules() / place
    assert go is not None
    folder = locate.cache_folder().parent / f"{place}-{sums(source)[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / name
    busy = f"another process still builds {binary}"
    with locked(folder / "lock", wait_seconds=WAIT_SECONDS, busy=busy):
        if not binary.exists():
            await build(go, source, binary, package, progress)
    return binary


def sums(source: Path) -> str:
    """A digest of everything that a program is built from."""
    return hashlib.sha256((source / "go.sum").read_bytes()).hexdigest()


async def build(
    go: str, source: Path, binary: Path, package: str, progress: ProgressReporter
) -> None:
    """Build the program; it appears only when it is complete."""
    progress.report(f"building {binary.name} with {go}: about 2 minutes, once")
    draft = binary.with_name(f".{binary.name}.draft")
    nice = [found] if (found := shutil.which("nice")) else []
    command = [*nice, go, "build", "-v", "-trimpath", "-ldflags", "-s -w"]
    counter = Counter(progress, "compiling packages")
    await run([*command, "-o", str(draft), package], source, counter)
    draft.replace(binary)
