"""Makes the files of a release from a tag of the repository.

    python -m tools.release --to dist [--repository URL] [--image NAME]

Only what is committed under the tag counts, and the version is the tag's. The same tag makes the
same bytes again, on any machine.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from tools.release import artifacts, plugin_manifests
from tools.release.changelog import ChangelogError
from tools.release.program_archive import PLATFORMS, PYTHONS, program_archive
from tools.release.source_tree import ReleaseError, ReleaseRequest, SourceTree, source_tree

ROOT = Path(__file__).parents[2]
SUMS = "SHA256SUMS"


@click.command()
@click.option("--to", "target", required=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--tag", default="", help="Tag such as v0.2.0; by default the one of HEAD.")
@click.option(
    "--repository",
    envvar="REPOSITORY",
    default="",
    help="Address of the repository on its forge; by default that of the remote origin.",
)
@click.option("--image", envvar="IMAGE", default="knfleet", help="Name of the image, no tag.")
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    default=PLATFORMS,
    type=click.Choice(PLATFORMS),
    help="Platforms of the program in one file; may be repeated.",
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    default=PYTHONS,
    type=click.Choice(PYTHONS),
    help="Versions of Python that it runs on; may be repeated.",
)
def main(
    target: Path,
    tag: str,
    repository: str,
    image: str,
    platforms: tuple[str, ...],
    pythons: tuple[str, ...],
) -> None:
    """Make wheel, sdist, program, chart, OLM bundle, SBOM, manifests of plugins and checksums."""
    # Nobody else's settings for files reach an archive.
    os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory() as folder:
            request = ReleaseRequest(ROOT, tag, repository.rstrip("/"), image)
            tree = source_tree(request, Path(folder) / "tree")
            make(tree, target, platforms, pythons)
    except (ReleaseError, ChangelogError) as error:
        raise click.ClickException(str(error)) from None
    except subprocess.CalledProcessError as error:
        said: str | bytes = error.stderr or ""
        sys.stderr.write(said if isinstance(said, str) else said.decode(errors="replace"))
        raise click.ClickException(f"{' '.join(error.cmd[:4])} … failed") from None


def make(
    tree: SourceTree, target: Path, platforms: tuple[str, ...], pythons: tuple[str, ...]
) -> None:
    """Make all files in a folder that is empty before."""
    if target.is_dir() and any(target.iterdir()):
        raise ReleaseError(f"{target} is not empty; remove what is in it, or name another folder")
    target.mkdir(parents=True, exist_ok=True)
    wheel = artifacts.python_packages(tree, target)
    artifacts.chart(tree, target)
    artifacts.olm_bundle(tree, target)
    artifacts.sbom(tree, target)
    artifacts.changes(tree, target)
    programs = {
        platform: program_archive(tree, wheel, platform, pythons, target) for platform in platforms
    }
    plugin_manifests.write(tree, programs, pythons, target)
    files = sorted(each for each in target.iterdir() if each.name != SUMS)
    lines = [f"{artifacts.sha256(each)}  {each.name}\n" for each in files]
    (target / SUMS).write_text("".join(lines))
    for line in lines:
        click.echo(line, nl=False)


if __name__ == "__main__":
    main()
