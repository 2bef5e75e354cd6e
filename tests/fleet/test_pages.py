"""The pages of the documentation, followed from the first command to the last."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.dev_folder import DevFolder
from testbed.clusters import kubectl
from tests.support.documents import Reader, surroundings
from tests.support.helm import helm_binary

__all__ = ["helm_binary"]

pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def reader(tmp_path: Path, helm_binary: Path) -> AsyncIterator[Reader]:
    """Somebody in the project's folder, with its commands and a data folder of their own."""
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    tools = (Path(kubectl()), helm_binary, Path(sys.executable))
    yield Reader(tmp_path, surroundings(tmp_path, *tools))
    for state in list((tmp_path / "data").rglob("state.json")):
        DevClusters(DevFolder(state.parent)).down()


async def test_the_guide_to_many_clusters_works_as_it_is_written(
    reader: Reader, bundle_root: Path
) -> None:
    """Every command in order, and what it prints; release files come from the same module."""
    assert bundle_root.is_dir()
    assert await reader.follow(ROOT / "docs" / "multicluster.md") > 10
