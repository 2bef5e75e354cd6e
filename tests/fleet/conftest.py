"""What tests of the operator share: a hub with our CRDs, and the operator as a process."""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from knfleet.kube.client.verbs import Client
from testbed import hubs, small_release
from testbed.agent_process import Agent, Scene, bootstrap_token, prepare_spoke
from testbed.clusters import Lend, Lent
from testbed.operators import Hub, Operator
from testbed.small_rights import small_rights_file
from tests.support.fleets import Fleet, gather


@pytest.fixture(scope="session")
def small_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release files of a small Knative."""
    return small_release.write(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def small_rights_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `knfleet join` must give a hub that installs the small Knative."""
    return small_rights_file(tmp_path_factory.mktemp("rights"))


@pytest.fixture
async def lent(lend: Lend) -> Lent:
    """One cluster that is clean but for our CRDs, if they are there."""
    return (await lend(1, definitions=True))[0]


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
    async with gather(await lend(3, definitions=True), tmp_path, small_root) as fleet:
        yield fleet


@pytest.fixture
async def scene(lend: Lend, tmp_path: Path) -> AsyncIterator[Scene]:
    """A hub with our controllers, and a spoke whose agent knows how to reach it."""
    hub_lent, spoke_lent = await lend(2, definitions=True)
    async with Client(hub_lent.connection) as hub, Client(spoke_lent.connection) as spoke:
        await hubs.install(hub_lent.connection)
        await prepare_spoke(spoke)
        agent = Agent(spoke_lent, tmp_path)
        agent.point_to(hub_lent.connection.endpoint, await bootstrap_token(hub))
        async with AsyncExitStack() as running:
            await running.enter_async_context(hubs.running(hub_lent.connection))
            scene = Scene(hub, hub_lent, spoke, agent, running)
            try:
                yield scene
            finally:
                await agent.end(signal.SIGKILL)
