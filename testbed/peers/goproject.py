"""The Knative Operator itself: its binary, built once, and the files of its Go module."""

import hashlib
from pathlib import Path

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev.binaries.build import modules
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.kube.yaml import load_all
from knfleet.release.source.sources import MODULE_FOLDER, GoModuleSource
from testbed.go_build import built, sums

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


def modules_digest() -> str:
    """Of the modules that the Knative Operator is built from."""
    return sums(modules() / "peers")[:32]


async def go_project(progress: ProgressReporter) -> GoProject:
    """The Knative Operator, built unless it is in the cache."""
    binary = await built("peers", PACKAGE, "operator", progress)
    content = hashlib.sha256(binary.read_bytes()).hexdigest()
    return GoProject(
        binary, await GoModuleSource().fetch(), f"{content}-{sums(modules() / 'peers')}"
    )
