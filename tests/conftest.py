"""Fixtures for all tests: real clusters, lent for one test each."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest

from knfleet.dev.network import network_namespace
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.release.source.sources import GoModuleSource
from testbed.clusters import Lend, Lent, Pool

# The same examples each time, so that a red run means a change; `make soak` draws others.
hypothesis.settings.register_profile("fixed", derandomize=True)
hypothesis.settings.register_profile("random", derandomize=False)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """The control planes of this worker; nothing of them is left afterwards."""
    # Programs that live for minutes save CPU when they collect their garbage less often.
    os.environ.setdefault("GOGC", "400")
    pool = Pool(tmp_path_factory.mktemp("ground") / "dev")
    yield pool
    pool.close()


@pytest.fixture
def lend(pool: Pool) -> Lend:
    """Lends as many clean clusters as a test asks for, the hub first."""
    return pool.lend


@pytest.fixture
async def isolated(pool: Pool) -> list[Lent]:
    """A hub, and a spoke that nothing can connect to."""
    if problem := network_namespace.problem():
        pytest.skip(f"there are no network namespaces on this machine: {problem}")
    return await pool.lend_isolated()


@pytest.fixture
async def lent(lend: Lend) -> Lent:
    """One clean cluster, with its files and processes."""
    return (await lend(1))[0]


@pytest.fixture
def hub_connection(lent: Lent) -> Connection:
    """The administrator's connection to one clean cluster."""
    return lent.connection


@pytest.fixture
async def hub(hub_connection: Connection) -> AsyncIterator[Client]:
    """A client with administrator rights for one clean cluster."""
    async with Client(hub_connection) as client:
        yield client


@pytest.fixture(scope="session")
def bundle_root() -> Path:
    """The real release files, from the Go module that carries them."""
    if shutil.which("go") is None:
        pytest.skip(f"go is not installed, so that {GoModuleSource()} cannot be fetched")
    return asyncio.run(GoModuleSource().fetch())
