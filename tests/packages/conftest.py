"""One release, made from the tree as it is here."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import Struct

from testbed.clusters import kubectl
from tests.support.helm import helm, helm_binary

__all__ = ["helm", "helm_binary"]

ROOT = Path(__file__).parents[2]
VERSION = "9.8.7"
CHANGES = "- What is new in this release."
REPOSITORY = "https://forge.example.com/org/knfleet"
IMAGE = "registry.example.com/org/knfleet"
SYSTEM = {"linux": "linux", "darwin": "darwin"}[sys.platform]
PROCESSOR = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine()]
PLATFORM = f"{SYSTEM}-{PROCESSOR}"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class MadeRelease(Struct, frozen=True):
    """The files of a release, and the checkout that they are made from."""

    checkout: Path
    files: Path

    @property
    def program(self) -> Path:
        return self.files / f"knfleet-{VERSION}-{PLATFORM}.tar.gz"


def run(
    *command: str | Path, at: Path | None = None, variables: Mapping[str, str] | None = None
) -> str:
    """The output of a program that must succeed."""
    done = subprocess.run(
        [str(each) for each in command],
        cwd=at, env={**os.environ, **(variables or {})}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def checkout(folder: Path) -> Path:
    """A repository with the files of this tree, and a tag on them."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", at=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    page = folder / "CHANGELOG.md"
    page.write_text(with_section(page.read_text()))
    moment = "2026-11-19T12:00:00Z"
    times = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.com")
    run("git", "init", "--quiet", at=folder)
    run("git", "add", "--all", "--force", at=folder)
    run("git", *identity, "commit", "--quiet", "-m", "release", at=folder, variables=times)
    run("git", "tag", f"v{VERSION}", at=folder)
    return folder


def with_section(page: str) -> str:
    """A changelog with a section of our version, whatever it begins with."""
    before, heading, rest = page.partition("\n## ")
    return f"{before}\n## {VERSION} (2026-11-19)\n\n{CHANGES}\n{heading}{rest}"


def make_release(source: Path, target: Path, variables: Mapping[str, str] | None = None) -> str:
    """Make a release for this machine alone."""
    return run(
        *(sys.executable, "-m", "tools.release", "--to", target),
        *("--repository", REPOSITORY, "--image", IMAGE),
        *("--platform", PLATFORM, "--python", PYTHON),
        at=source,
        variables=variables,
    )


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> MadeRelease:
    """The files of a release."""
    source = checkout(tmp_path_factory.mktemp("checkout"))
    target = tmp_path_factory.mktemp("release") / "dist"
    make_release(source, target)
    return MadeRelease(source, target)


@pytest.fixture
def kubectl_path() -> Path:
    """The folder of a kubectl, under that name."""
    return Path(kubectl()).parent


def loaded(path: Path) -> dict[str, object]:
    """A JSON file."""
    return json.loads(path.read_bytes())
