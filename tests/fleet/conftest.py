"""What tests of the operator share: a hub with our CRDs, and the operator as a process."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from knfleet.kube.client import Client
from tests.conftest import Lend
from tests.fleet import small_release
from tests.fleet.fleets import Fleet, gather
from tests.fleet.operators import Hub, Operator
from tests.ground import Lent


@pytest.fixture(scope="session")
def small_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release files of a small Knative."""
    return small_release.write(tmp_path_factory.mktemp("small"))


@pytest.fixture
async def knative_hub(lent: Lent) -> AsyncIterator[Hub]:
    """A clean cluster with our CRDs and Knative's namespaces."""
    async with Client(lent.connection) as client:
        hub = Hub(lent, client)
        await hub.prepare()
        yield hub


@pytest.fixture
async def operator(knative_hub: Hub, bundle_root: Path, tmp_path: Path) -> AsyncIterator[Operator]:
    """The operator with the real releases, not started yet."""
    operator = Operator(knative_hub.lent.kubeconfig, bundle_root, tmp_path / "operator.log")
    yield operator
    await operator.kill()


@pytest.fixture
async def small(knative_hub: Hub, small_root: Path, tmp_path: Path) -> AsyncIterator[Operator]:
    """The operator with the small release, already running."""
    operator = Operator(knative_hub.lent.kubeconfig, small_root, tmp_path / "operator.log")
    await operator.start()
    yield operator
    await operator.kill()


@pytest.fixture
async def fleet(lend: Lend, small_root: Path, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A hub and two spokes with profiles; the operator, with the small release, is not started."""
    async with gather(await lend(3), tmp_path, small_root) as fleet:
        yield fleet
