"""The Knative Operator and knfleet side by side, once for all tests here."""

import asyncio
import shutil

import pytest

from testbed.clusters import Pool
from testbed.printed import Printed
from tests.peers.corpus import CORPUS
from tests.peers.laboratory import Compared, compare_all


@pytest.fixture(scope="session")
def compared(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compared]:
    """What both make of the samples that are chosen, by name."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that the Knative Operator cannot be built")
    folder = tmp_path_factory.mktemp("peers")
    return asyncio.run(compare_all(pool, CORPUS, folder, Printed()))
