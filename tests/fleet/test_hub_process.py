"""`knfleet hub` as a process, with exactly the rights that `init` gives it."""

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from knfleet.api.cluster import CLUSTERS
from knfleet.api.conditions import timestamp
from knfleet.api.core import NAMESPACES, SECRETS
from knfleet.api.hub import BOOTSTRAP_ACCOUNT, CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.api.knative import SERVINGS
from knfleet.api.meta import Key
from knfleet.fleet.grants import ACCESS_SECRET
from knfleet.kube.client import Client
from knfleet.kube.credentials import StaticCredential
from knfleet.kube.endpoint import Connection
from knfleet.kube.yaml import dump_all
from tests.conftest import Lend
from tests.fleet.commands import done
from tests.fleet.fleets import SMALL, SpokeCluster, write
from tests.fleet.operators import Hub, Operator
from tests.ground import Lent
from tests.server.fleet import hubs
from tests.server.fleet.agents import Agent
from tests.waiting import until


class HubProcess(Operator):
    """`knfleet hub`, started as often as a test wants."""

    command: ClassVar[str] = "hub"


def kubeconfig(folder: Path, connection: Connection) -> Path:
    """A file that connects as the hub's ServiceAccount."""
    assert isinstance(connection.credentials, StaticCredential)
    ca = base64.b64encode(connection.endpoint.ca or b"").decode()
    cluster = {"server": connection.endpoint.server, "certificate-authority-data": ca}
    context = {"cluster": "hub", "user": "hub", "namespace": OPERATOR_NAMESPACE}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "hub",
        "contexts": [{"name": "hub", "context": context}],
        "clusters": [{"name": "hub", "cluster": cluster}],
        "users": [
            {"name": "hub", "user": {"token": connection.credentials.credential.token}},
        ],
    }
    path = folder / "hub.kubeconfig"
    write(path, dump_all([config]))
    return path


@pytest.fixture
async def clusters(lend: Lend) -> list[Lent]:
    """A hub and a spoke."""
    return await lend(2)


@pytest.fixture
async def hub(clusters: list[Lent]) -> AsyncIterator[Hub]:
    """The hub, with all that `init` makes."""
    async with Client(clusters[0].connection) as client:
        await hubs.install(client)
        serving = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "knative-serving"}}
        await client.apply(NAMESPACES, serving)
        yield Hub(clusters[0], client)


@pytest.fixture
async def process(hub: Hub, small_root: Path, tmp_path: Path) -> AsyncIterator[HubProcess]:
    """The hub's process, running."""
    account = await hubs.as_account(hub.lent.connection, CLUSTER_MANAGER)
    process = HubProcess(kubeconfig(tmp_path, account), small_root, tmp_path / "hub.log")
    await process.start(SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)
    yield process
    await process.kill()


async def test_serving_is_installed_on_a_cluster_that_joined_by_itself(
    clusters: list[Lent], hub: Hub, process: HubProcess, tmp_path: Path
):
    """With nothing but an accept: profile and access are there, also after a restart."""
    bootstrap = await hubs.as_account(hub.lent.connection, BOOTSTRAP_ACCOUNT)
    agent = Agent(bootstrap, "north")
    async with Client(clusters[1].connection) as client:
        spoke = SpokeCluster(clusters[1], client, tmp_path)
        await spoke.enter()
        endpoint = clusters[1].connection.endpoint
        printed = (tmp_path / f"{spoke.name}.json").read_text()
        token = printed.split('"token": "')[1].split('"')[0]
        handed = {
            "token": token.encode(),
            "server": endpoint.server.encode(),
            "ca.crt": endpoint.ca or b"",
            "expiration": timestamp(datetime.now(UTC) + timedelta(hours=1)).encode(),
        }
        data = {name: base64.b64encode(value).decode() for name, value in handed.items()}
        async with Client(await agent.join(hub.client)) as own:
            await agent.renew(own)
            await agent.report(own, version={"kubernetes": "v1.35.0"})
            await own.patch(SECRETS, Key("north", ACCESS_SECRET), {"data": data})
            profile = {"name": "north", "namespace": OPERATOR_NAMESPACE}
            await hub.create(SERVINGS, clusterProfileRef=profile, **SMALL)
            await hub.ready(SERVINGS, "1.23.0")
            assert token not in process.said()
            # A person needs no flag: our own plugin reads the token that the agent handed over.
            config = hub.lent.kubeconfig
            planned = await done(config, "plan", "--all", "--dir", str(process.releases))
            assert "north (1.23.0)" in planned
            assert "Nothing to do." in planned

            assert await process.stop() == 0
            await process.start(SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)
            await agent.report(own, "False")
            await hub.says(SERVINGS, "TargetClusterResolved", seconds=30)
            await agent.report(own)
            await hub.says(SERVINGS, "TargetClusterResolved", status="True", seconds=30)
            await hub.delete(SERVINGS)
            await hub.gone(SERVINGS)
        await hub.client.delete(CLUSTERS, Key("", "north"))

        async def is_gone() -> bool:
            return not (await hub.client.list(CLUSTERS)).items

        await until(is_gone, "the cluster is gone", seconds=20)
    assert "reconcile failed" not in process.said()
