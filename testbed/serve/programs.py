"""The programs of Knative's images: built once from their Go modules, and kept.

Knative's images are named after the Go package that they are built from, so an image says what to
build. The modules have the versions of one release, which is the one that is installed.
"""

from pathlib import Path

from knfleet.dev.binaries.build import modules
from knfleet.dev.progress_reporter import ProgressReporter
from testbed.go_build import built

PLACE = "serve"
RELEASE = "1.21.2"
"""The release whose modules `ground/serve/go.mod` names."""


def packages() -> list[str]:
    """Every Go package that has a program here: the tools of the module."""
    _, _, rest = (modules() / PLACE / "go.mod").read_text().partition("tool (\n")
    return rest.partition(")")[0].split()


def program_name(package: str) -> str:
    """The file name of a package's program; many end with `controller`, or with `webhook`."""
    return package.replace("/", "_")


async def programs(progress: ProgressReporter) -> dict[str, Path]:
    """Every program by its Go package, built unless it is kept."""
    return {
        package: await built(PLACE, package, program_name(package), progress)
        for package in packages()
    }
