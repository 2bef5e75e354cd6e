"""A hub that all tests of add-ons share: each of them uses names of its own."""

import asyncio
from pathlib import Path

import pytest

from testbed import hubs
from testbed.clusters import Lent, Pool

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep these tests on one worker, so that there is one such hub."""
    for each in items:
        if each.path.is_relative_to(HERE):
            each.add_marker(pytest.mark.xdist_group("addons"))


@pytest.fixture(scope="package")
def fleet_lent(hub_pool: Pool) -> Lent:
    """A cluster that is a hub, as in other tests."""
    return asyncio.run(hubs.lend_kept_hub(hub_pool))
