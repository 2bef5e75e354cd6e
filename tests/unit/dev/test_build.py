"""Building with Go: each binary once, whole or not at all; Go is played by a small script."""

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from knfleet.dev.binaries import build, locate
from knfleet.dev.errors import DevError
from testbed.waiting import until

GO = """#!{python}
import os, pathlib, sys, time
log = pathlib.Path({log!r})
with log.open("a") as file: file.write(" ".join(sys.argv[1:]) + chr(10))
if sys.argv[1] == "list":
    print("go: downloading example.com/a v1.0.0", file=sys.stderr)
    print("a", "b", "c", "d", sep=chr(10))
    sys.exit(0)
{behaviour}
package = sys.argv[-1]
for name in "abcd": print(name, file=sys.stderr, flush=True)
target = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
version = "etcd Version: 3.6.5" if "etcd" in package else "v1.35.8"
target.write_text("#!/bin/sh" + chr(10) + "echo " + version + chr(10))
target.chmod(0o755)
"""


class Heard:
    """Keeps what a long work told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.steps: list[tuple[str, int, int]] = []

    def report(self, text: str) -> None:
        """A line."""
        self.said.append(text)

    def advance(self, what: str, done: int, total: int) -> None:
        """A step."""
        self.steps.append((what, done, total))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has only Go; what was asked of it."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("KNFLEET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KNFLEET_GROUND", "build")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    put_go(tmp_path, "")
    return tmp_path / "log"


def put_go(tmp_path: Path, behaviour: str) -> None:
    """Install a `go` that behaves so when it builds."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir(exist_ok=True)
    text = GO.format(python=sys.executable, log=str(tmp_path / "log"), behaviour=behaviour)
    go.write_text(text)
    go.chmod(0o755)


def builds(log: Path) -> list[str]:
    """The packages that were built."""
    lines = log.read_text().splitlines()
    return [line.rpartition(" ")[2] for line in lines if line.startswith("build")]


async def test_all_are_built_once_with_progress(log: Path) -> None:
    """A second run finds them in the cache."""
    heard = Heard()

    tools = await locate.ensure(heard)
    await locate.ensure(heard)

    assert sorted(builds(log)) == sorted(build.PACKAGES.values())
    assert {tool.origin for tool in tools.values()} == {"cache, built"}
    assert ("compiling packages", 4, 4) in heard.steps
    assert "built kubectl" in heard.said


async def test_kubernetes_is_told_its_version(log: Path) -> None:
    """Otherwise the server calls itself 0.0.0 and clients refuse it."""
    await locate.ensure(Heard())

    line = next(each for each in log.read_text().splitlines() if each.endswith("kube-apiserver"))
    assert f"version.gitVersion=v{locate.KUBERNETES}" in line


async def test_two_runs_at_once_build_once(log: Path) -> None:
    """The second waits for the first and takes what it made."""
    await asyncio.gather(locate.ensure(Heard()), locate.ensure(Heard()))

    assert sorted(builds(log)) == sorted(build.PACKAGES.values())


async def test_an_interrupted_build_goes_on_with_the_missing_binaries(
    log: Path, tmp_path: Path
) -> None:
    """What was finished is not built again."""
    put_go(tmp_path, "sys.exit('no space left') if 'kubectl' in sys.argv[-1] else None")
    with pytest.raises(DevError):
        await locate.ensure(Heard())
    log.unlink()
    put_go(tmp_path, "")

    await locate.ensure(Heard())

    assert builds(log) == [build.PACKAGES["kubectl"]]


async def test_a_failing_build_shows_what_go_said(log: Path, tmp_path: Path) -> None:
    """The reason is in the message, not in a log somewhere."""
    put_go(tmp_path, "sys.exit('link: no space left on device')")

    with pytest.raises(DevError, match=r"`.*go build` failed.*\n.*no space left on device"):
        await locate.ensure(Heard())


async def test_a_cancelled_build_leaves_no_process_and_no_half_binary(
    log: Path, tmp_path: Path
) -> None:
    """Ctrl-C ends the compilers too."""
    pid_file = tmp_path / "pid"
    put_go(
        tmp_path,
        f"pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(600)",
    )
    running = asyncio.create_task(locate.ensure(Heard()))
    await until(lambda: pid_file.exists() and bool(pid_file.read_text()), "the build starts")

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert not psutil.pid_exists(int(pid_file.read_text()))
    assert list((locate.cache_folder() / "built").iterdir()) == []
