"""The files of a release but the program: packages for Python, chart, OLM bundle, SBOM, changes."""

import hashlib
import sys
from pathlib import Path

from tools.release.archives import folder_files, write_archive
from tools.release.changelog import section
from tools.release.source_tree import SourceTree, run

PROGRAMS = Path(sys.executable).parent


def python_packages(tree: SourceTree, target: Path) -> Path:
    """Write the sdist, and the wheel, which is returned."""
    run(
        *(tree, str(PROGRAMS / "uv"), "build", "--quiet", "--wheel", "--sdist"),
        *("--no-build-isolation", "--python", sys.executable, "--out-dir", "built"),
        ".",
    )
    (wheel,) = (tree.root / "built").glob("*.whl")
    (sdist,) = (tree.root / "built").glob("*.tar.gz")
    for each in (wheel, sdist):
        (target / each.name).write_bytes(each.read_bytes())
    return target / wheel.name


def chart(tree: SourceTree, target: Path) -> Path:
    """Write the chart as `helm package` would."""
    files = folder_files(tree.root / "charts" / "knfleet", "knfleet/")
    return write_archive(target / f"knfleet-{tree.chart_version}.tgz", files, tree.epoch)


def olm_bundle(tree: SourceTree, target: Path) -> Path:
    """Write the bundle for the Operator Lifecycle Manager."""
    image = f"{tree.image}:{tree.version}"
    run(tree, sys.executable, "-m", "knfleet.install.olm_bundle", "olm", image, tree.repository)
    files = folder_files(tree.root / "olm")
    return write_archive(target / f"knfleet-{tree.version}-olm-bundle.tar.gz", files, tree.epoch)


def sbom(tree: SourceTree, target: Path) -> Path:
    """Write the parts that the program consists of, with their versions and digests."""
    path = target / f"knfleet-{tree.version}.cdx.json"
    run(
        *(tree, str(PROGRAMS / "cyclonedx-py"), "requirements", "requirements/runtime.txt"),
        *("--pyproject", "pyproject.toml", "--mc-type", "application", "--output-reproducible"),
        *("--output-format", "JSON", "--output-file", str(path.absolute())),
    )
    return path


def changes(tree: SourceTree, target: Path) -> Path:
    """Write what is new in the release."""
    path = target / "CHANGES.md"
    path.write_text(section((tree.root / "CHANGELOG.md").read_text(), tree.version))
    return path


def sha256(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
