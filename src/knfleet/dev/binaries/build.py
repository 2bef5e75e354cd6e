"""Builds the servers with `go build`, from the pinned modules of `ground/go.mod`.

Each binary appears in the cache only when it is complete; an interrupted build goes on where Go's
own cache left off.
"""

import asyncio
import os
import signal
from collections import deque
from pathlib import Path

import knfleet
from knfleet.dev.binaries.locate import KUBERNETES
from knfleet.dev.errors import DevError
from knfleet.dev.progress_reporter import ProgressReporter

PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}


def modules() -> Path:
    """The folder with go.mod and go.sum: in the tree, or inside an installed package."""
    package = Path(knfleet.__file__).parent
    for folder in (package.parents[1] / "ground", package / "dev" / "ground"):
        if (folder / "go.mod").exists():
            return folder
    raise DevError("ground/go.mod is not part of this installation; install knfleet again")


def linker_flags(name: str) -> str:
    """A Kubernetes binary must be given its version, else it calls itself 0.0.0."""
    if name == "etcd":
        return "-s -w"
    variable = "k8s.io/component-base/version"
    major, minor, _ = KUBERNETES.split(".")
    stamps = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {variable}.{key}={value}" for key, value in stamps.items())])


async def build(go: str, folder: Path, names: list[str], progress: ProgressReporter) -> None:
    """Build binaries into the cache."""
    source = modules()
    target = folder / "built"
    target.mkdir(parents=True, exist_ok=True)
    progress.report(f"building {', '.join(names)} with {go}: about 5 minutes, once")
    lister = [go, "list", "-deps", *(PACKAGES[name] for name in names)]
    total = len(await run(lister, source, Counter(progress, "downloading modules")))
    counter = Counter(progress, "compiling packages", total)
    for name in names:
        draft = target / f".{name}.draft"
        flags = ["-trimpath", "-ldflags", linker_flags(name)]
        command = [go, "build", "-v", *flags, "-o", str(draft), PACKAGES[name]]
        await run(command, source, counter)
        draft.replace(target / name)
        progress.report(f"built {name}")
    counter.finish()


class Counter:
    """Counts the lines of a Go command that tell of progress."""

    def __init__(self, progress: ProgressReporter, what: str, total: int = 0) -> None:
        self.progress, self.what, self.total = progress, what, total
        self.done = 0

    def see(self, line: str) -> None:
        """Count one line."""
        if line.startswith("go: downloading"):
            self.progress.advance("downloading modules", self.done, 0)
        if not line.startswith("go: ") or not self.total:
            self.done += 1
            self.progress.advance(self.what, min(self.done, self.total or self.done), self.total)

    def finish(self) -> None:
        """Whatever was not compiled was there already."""
        self.progress.advance(self.what, self.total, self.total)


async def run(command: list[str], source: Path, counter: Counter) -> list[str]:
    """Run a Go command; the lines it printed."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=source,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=2**20,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    last: deque[str] = deque(maxlen=8)
    try:
        async with asyncio.TaskGroup() as group:
            output = group.create_task(lines(process.stdout))
            group.create_task(watch(process.stderr, counter, last))
            code = await process.wait()
    except BaseException:
        # Go's compilers are children of its own; the whole group goes.
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        raise
    if code:
        raise DevError(
            f"`{' '.join(command[:2])}` failed with exit code {code}:\n  " + "\n  ".join(last)
        )
    return output.result()


async def lines(stream: asyncio.StreamReader) -> list[str]:
    return (await stream.read()).decode(errors="replace").splitlines()


async def watch(stream: asyncio.StreamReader, counter: Counter, last: deque[str]) -> None:
    """Count lines as they come, and keep the last ones for a message."""
    async for raw in stream:
        line = raw.decode(errors="replace").strip()
        last.append(line)
        counter.see(line)
