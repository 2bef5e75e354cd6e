"""`make release`: what it makes, and that it makes the same again."""

import hashlib
import json
import os
import shutil
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.packages.conftest import (
    CHANGES,
    IMAGE,
    PLATFORM,
    PYTHON,
    REPOSITORY,
    ROOT,
    VERSION,
    MadeRelease,
    checkout,
    make_release,
    run,
)
from tests.support.documents import Reader, surroundings
from tests.support.helm import Helm

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("packages")]
TOOLS = Path(sys.executable).parent
PAGE = ROOT / "docs" / "packages.md"
WHEEL = f"knfleet-{VERSION}-py3-none-any.whl"
SDIST = f"knfleet-{VERSION}.tar.gz"


def digests(folder: Path) -> dict[str, str]:
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in folder.iterdir()}


def test_the_same_tag_makes_the_same_bytes(release: MadeRelease, tmp_path: Path) -> None:
    """In another folder, by another user's settings; and the checksums are those of the files."""
    (tmp_path / "another").mkdir()
    source = checkout(tmp_path / "another")
    before = os.umask(0o077)
    try:
        make_release(source, tmp_path / "dist", {"TZ": "Asia/Tokyo", "LC_ALL": "C"})
    finally:
        os.umask(before)

    first, second = digests(release.files), digests(tmp_path / "dist")

    assert first == second
    lines = [each.split("  ") for each in (release.files / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in lines}
    assert sums == {name: digest for name, digest in first.items() if name != "SHA256SUMS"}
    assert sorted(sums) == sorted(
        [
            "CHANGES.md",
            f"knfleet-{VERSION}-{PLATFORM}.tar.gz",
            f"knfleet-{VERSION}-olm-bundle.tar.gz",
            f"knfleet-{VERSION}.cdx.json",
            f"knfleet-{VERSION}.tgz",
            "knfleet.rb",
            "knfleet.yaml",
            SDIST,
            WHEEL,
        ]
    )


def test_packages_for_python_are_as_their_index_wants_them(release: MadeRelease) -> None:
    """`twine check` has nothing to say, and the metadata has version, addresses and license."""
    said = run(TOOLS / "twine", "check", "--strict", release.files / WHEEL, release.files / SDIST)
    with zipfile.ZipFile(release.files / WHEEL) as wheel:
        metadata = Parser().parsestr(wheel.read(f"knfleet-{VERSION}.dist-info/METADATA").decode())

    assert said.count("PASSED") == 2
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    addresses = dict(each.split(", ") for each in metadata.get_all("Project-URL", []))
    assert addresses["Source"] == REPOSITORY
    assert set(addresses) == {"Homepage", "Source", "Changelog", "Documentation", "Issues"}
    classifiers = metadata.get_all("Classifier", [])
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)} <= {
        *classifiers
    }


def test_the_sdist_makes_the_same_wheel(release: MadeRelease, tmp_path: Path) -> None:
    """So nothing that a packager needs is missing in it."""
    with tarfile.open(release.files / SDIST) as packed:
        epoch = str(packed.getmembers()[0].mtime)
    run(
        *(TOOLS / "uv", "build", "--quiet", "--wheel", "--no-build-isolation"),
        *("--python", sys.executable, "--out-dir", tmp_path, release.files / SDIST),
        variables={"SOURCE_DATE_EPOCH": epoch},
    )

    assert (tmp_path / WHEEL).read_bytes() == (release.files / WHEEL).read_bytes()


def test_the_program_in_one_file_runs_with_python_alone(
    release: MadeRelease, tmp_path: Path
) -> None:
    """It finds nothing of this environment: another home, no site packages."""
    with tarfile.open(release.program) as packed:
        packed.extractall(tmp_path, filter="data")
    home = {"HOME": str(tmp_path / "home"), "PYTHONPATH": ""}
    base = Path(sys.base_prefix) / "bin" / f"python{PYTHON}"

    said = run(base, "-S", tmp_path / "knfleet", "--version", variables=home)
    crds = run(base, "-S", tmp_path / "knfleet", "manifests", variables=home)

    assert said.strip() == f"knfleet, version {VERSION}"
    assert f"image: knfleet:{VERSION}" in crds
    assert not (tmp_path / "home" / ".shiv").exists()


async def test_the_page_about_the_command_can_be_followed(
    release: MadeRelease, kubectl_path: Path, tmp_path: Path
) -> None:
    """In a copy of the folder with the files."""
    desk = tmp_path / "desk"
    shutil.copytree(release.files, desk)
    own = {"PLATFORM": PLATFORM, "HOME": str(tmp_path / "home")}

    assert await Reader(desk, surroundings(desk, kubectl_path / "kubectl", **own)).follow(PAGE) == 2


def test_the_sbom_names_every_dependency_with_its_digests(release: MadeRelease) -> None:
    """Those that are pinned, in a document that its own tool has validated."""
    pinned = {
        tuple(line.split()[0].split("=="))
        for line in (ROOT / "requirements" / "runtime.txt").read_text().splitlines()
        if line and not line.startswith((" ", "#"))
    }

    found = json.loads((release.files / f"knfleet-{VERSION}.cdx.json").read_bytes())

    assert {(each["name"], each["version"]) for each in found["components"]} == pinned
    assert all(each["externalReferences"][0]["hashes"] for each in found["components"])
    assert found["metadata"]["component"]["version"] == VERSION


async def test_the_chart_is_one_that_helm_takes(release: MadeRelease, helm: Helm) -> None:
    """With the version of the tag and the image that was named."""
    packed = str(release.files / f"knfleet-{VERSION}.tgz")

    linted = await helm.done("lint", "--strict", packed)
    shown = await helm.done("show", "chart", packed)
    text = await helm.done("template", "operator", packed)

    assert "0 chart(s) failed" in linted
    assert f"version: {VERSION}" in shown.replace("'", "")
    assert f'image: "{IMAGE}:{VERSION}"' in text


def test_what_is_new_is_the_section_of_the_changelog(release: MadeRelease) -> None:
    """Without its heading."""
    assert (release.files / "CHANGES.md").read_text() == f"{CHANGES}\n"
