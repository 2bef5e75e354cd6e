"""A hub, a spoke on which every pod runs, and the operator with the real releases."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from testbed.clusters import Pool
from testbed.printed import Printed
from testbed.serve import ground, networks
from testbed.serve.clusters import ServingClusters
from testbed.serve.images import Images
from tests.serve.site import Site
from tests.support.fleets import gather


@pytest.fixture(scope="session")
def images() -> Images:
    """What runs in pods; without it nothing can be shown."""
    if reason := networks.missing_rights():
        pytest.skip(f"no pod can run here: {reason}")
    if ground.envoy_program() is None:
        pytest.skip("Envoy is not installed; `make serve` does it")
    return asyncio.run(ground.images(Printed()))


@pytest.fixture(scope="session")
def serving_pool(tmp_path_factory: pytest.TempPathFactory, images: Images) -> Iterator[Pool]:
    """Clusters of which the spokes run their pods; nothing of them is left afterwards."""
    root = tmp_path_factory.mktemp("serving") / "dev"
    pool = Pool(root, lambda folder: ServingClusters(folder, images))
    yield pool
    pool.close()


@pytest.fixture
async def site(serving_pool: Pool, bundle_root: Path, tmp_path: Path) -> AsyncIterator[Site]:
    """A hub whose operator runs, and a spoke with nothing on it."""
    async with gather(await serving_pool.lend(2), tmp_path, bundle_root) as fleet:
        await fleet.start()
        yield Site(fleet)
