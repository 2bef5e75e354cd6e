"""Somebody who reads the pages at a desk with clusters, one after the other."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from knfleet.dev.dev_folder import DevFolder
from testbed.clusters import kubectl
from tests.docs.pages import ROOT
from tests.support.commands import IMAGE
from tests.support.documents import Reader, surroundings
from tests.support.helm import helm_binary

__all__ = ["helm_binary"]

UP_SECONDS = 300
CLUSTERS = "data/knfleet/dev/default"
"""Where `knfleet dev up` puts clusters, seen from the desk."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, helm_binary: Path) -> Iterator[Path]:
    """A folder with our charts and our programs' data; no cluster of it outlives the tests."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "charts").symlink_to(ROOT / "charts")
    janitor = [sys.executable, "-m", "knfleet.dev.cleanup", str(folder / CLUSTERS)]
    with subprocess.Popen(janitor, stdin=subprocess.PIPE) as process:
        yield folder
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def variables(desk: Path, helm_binary: Path, bundle_root: Path) -> dict[str, str]:
    """The variables of whoever sits at the desk; what they say is left out by others."""
    image, _, tag = IMAGE.partition(":")
    own = {"IMAGE": image, "TAG": tag, "RELEASES": str(bundle_root)}
    tools = (Path(kubectl()), helm_binary, Path(sys.executable))
    return surroundings(desk, *tools, **own)


@pytest.fixture(scope="module")
def clusters(desk: Path, variables: dict[str, str]) -> dict[str, str]:
    """The same with a hub and a spoke: what was pulled before is where their pods find it."""
    for command in (("bundle", "pull", "--quiet"), ("dev", "up", "--spokes", "1", "--quiet")):
        subprocess.run(
            [sys.executable, "-m", "knfleet", *command],
            cwd=desk,
            env=variables,
            timeout=UP_SECONDS,
            check=True,
        )
    return variables | {"KUBECONFIG": str(DevFolder(desk / CLUSTERS).kubeconfig)}


@pytest.fixture
def reader(desk: Path, clusters: dict[str, str], tmp_path: Path) -> Reader:
    """Somebody who begins with a page, in an empty folder."""
    (tmp_path / "charts").symlink_to(desk / "charts")
    return Reader(tmp_path, clusters)
