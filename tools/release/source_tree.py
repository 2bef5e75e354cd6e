"""The tree that a release is made from: what is committed under a tag, with the tag's version."""

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from msgspec import Struct

TAG = re.compile(r"v(?P<version>\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)")
ADDRESS = re.compile(r"https://[^\s/@?#\"\\]+(?:/[^\s@?#\"\\]+)+")
IMAGE = re.compile(r"[a-z0-9][a-z0-9._:/-]*")


class ReleaseError(Exception):
    """A release cannot be made; the message says what to do."""


class ReleaseRequest(Struct, frozen=True):
    """Which release is to be made."""

    root: Path
    """A checkout."""
    tag: str = ""
    repository: str = ""
    image: str = "knfleet"


class SourceTree(Struct, frozen=True):
    """The sources of one release in a folder of their own."""

    root: Path
    version: str
    epoch: int
    """When the tagged commit was made: the time of all files."""
    repository: str
    image: str

    @property
    def chart_version(self) -> str:
        """The version as Helm and OLM write it: 0.2.0-rc.1 for 0.2.0rc1."""
        return re.sub(r"(?<=\d)(a|b|rc)(\d+)$", r"-\1.\2", self.version)

    @property
    def downloads(self) -> str:
        """Where the files of the release are published."""
        return f"{self.repository}/releases/download/v{self.version}"


def source_tree(request: ReleaseRequest, folder: Path) -> SourceTree:
    """Write the tree of a tag into a folder, with its version in all places."""
    tag = request.tag or tag_of_head(request.root)
    found = TAG.fullmatch(tag)
    if found is None:
        raise ReleaseError(f"{tag}: a tag of a release is v0.2.0, or v0.2.0rc1 before it")
    repository = request.repository or remote(request.root)
    if not ADDRESS.fullmatch(repository):
        raise ReleaseError(f"{repository}: write the repository's address as https://HOST/PATH")
    if not IMAGE.fullmatch(request.image):
        raise ReleaseError(
            f"{request.image}: write an image without tag, as registry.example.com/knfleet"
        )
    commit = f"{tag}^{{commit}}"
    epoch = int(git(request.root, "log", "-1", "--format=%ct", commit).strip())
    packed = subprocess.run(
        ["git", "-C", str(request.root), "archive", "--format=tar", commit],
        check=True,
        capture_output=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    tree = SourceTree(folder, found["version"], epoch, repository, request.image)
    set_version(tree)
    return tree


def set_version(tree: SourceTree) -> None:
    """Put version, addresses and image where they belong."""
    before = re.search(
        r'^__version__ = "(.+)"$', (tree.root / "src/knfleet/__init__.py").read_text(), re.MULTILINE
    )
    assert before is not None
    version = f'"{tree.version}"'
    replace(tree, "src/knfleet/__init__.py", before[0], f"__version__ = {version}")
    replace(tree, "pyproject.toml", 'dynamic = ["version"]', f"version = {version}\n{urls(tree)}")
    replace(tree, "pyproject.toml", "[tool.hatch.version]\n", "[tool.knfleet.version]\n")
    replace(tree, "Containerfile.plugins", f"knfleet:{before[1]}", f"knfleet:{tree.version}")
    replace(
        tree, "charts/knfleet/values.yaml", "    image: knfleet\n", f"    image: {tree.image}\n"
    )
    run(tree, sys.executable, "-m", "knfleet.install.chart", "charts/knfleet")


def urls(tree: SourceTree) -> str:
    """The project's addresses as metadata."""
    pages = {"Homepage": "", "Source": "", "Changelog": f"/blob/v{tree.version}/CHANGELOG.md"}
    pages["Documentation"] = f"/tree/v{tree.version}/docs"
    pages["Issues"] = "/issues"
    listed = ", ".join(f'{name} = "{tree.repository}{path}"' for name, path in pages.items())
    return f"urls = {{{listed}}}"


def replace(tree: SourceTree, name: str, old: str, new: str) -> None:
    """Replace what a file has once."""
    path = tree.root / name
    text = path.read_text()
    if text.count(old) != 1:
        raise ReleaseError(f"{name}: has {old!r} {text.count(old)} times; it must be there once")
    path.write_text(text.replace(old, new))


def tag_of_head(root: Path) -> str:
    """The tag that HEAD has."""
    tags = [each for each in git(root, "tag", "--points-at", "HEAD").split() if TAG.fullmatch(each)]
    if len(tags) != 1:
        raise ReleaseError(
            f"HEAD has {len(tags)} tags of releases, not one; make it by `git tag v0.2.0`, or name"
            " one with --tag"
        )
    return tags[0]


def remote(root: Path) -> str:
    """The address of the repository, from its remote."""
    try:
        found = git(root, "remote", "get-url", "origin").strip()
    except subprocess.CalledProcessError:
        raise ReleaseError(
            "there is no remote `origin`; name the repository's address with --repository"
        ) from None
    if ssh := re.fullmatch(r"(?:ssh://)?git@([^:/]+)[:/](.+)", found):
        found = f"https://{ssh[1]}/{ssh[2]}"
    return found.removesuffix(".git")


def git(root: Path, *arguments: str) -> str:
    """What git prints."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def run(tree: SourceTree, *command: str) -> str:
    """Run a program in the tree, with its own sources and its time."""
    environment = {
        "PYTHONPATH": str(tree.root / "src"),
        "SOURCE_DATE_EPOCH": str(tree.epoch),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TZ": "UTC",
    }
    return subprocess.run(
        command, cwd=tree.root, env={**os.environ, **environment}, check=True,
        capture_output=True, text=True,
    ).stdout  # fmt: skip
