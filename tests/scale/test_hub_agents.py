"""Many agents join one hub at once; set KNFLEET_AGENTS to let it be more of them."""

import asyncio
import base64
import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from msgspec.structs import replace
from tests.fleet import small_release
from tests.fleet.test_hub_process import HubProcess, kubeconfig
from tests.ground import Lent
from tests.server.fleet import hubs
from tests.server.fleet.agents import Agent, csr, managed_cluster
from tests.waiting import until

from knfleet.api.cluster import ACCEPTED, CLUSTERS
from knfleet.api.hub import BOOTSTRAP_ACCOUNT, CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Object
from knfleet.fleet.views import CSRS
from knfleet.kube.client import Client, Options
from knfleet.kube.credentials import Credential, StaticCredential
from knfleet.kube.endpoint import Connection

AGENTS = int(os.environ.get("KNFLEET_AGENTS", "20"))
LIMIT_SECONDS = 120.0
LIMIT_BYTES = 150 * 1024 * 1024
USER = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{BOOTSTRAP_ACCOUNT}"


def logged_in(agent: Agent, certificate: str) -> Connection:
    """The connection of an agent that has its certificate."""
    key = agent.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    own = Credential(client_certificate=base64.b64decode(certificate), client_key=key)
    return replace(agent.bootstrap, credentials=StaticCredential(own))


def is_in(cluster: Object) -> bool:
    """Whether a cluster is accepted."""
    said: list[Object] = cluster.get("status", {}).get("conditions") or []
    return any(each["type"] == ACCEPTED and each["status"] == "True" for each in said)


async def ask_all(agents: list[Agent]) -> dict[str, str]:
    """Have all agents ask at once; the certificates, by cluster."""
    requests: dict[str, str] = {}
    certificates: dict[str, str] = {}
    async with Client(agents[0].bootstrap, Options(concurrency=16)) as client:

        async def ask(agent: Agent) -> None:
            await client.create(CLUSTERS, managed_cluster(agent.cluster))
            made = await client.create(CSRS, csr(agent.cluster, agent.pem))
            requests[made["metadata"]["name"]] = agent.cluster

        async def are_issued() -> bool:
            for each in (await client.list(CSRS)).items:
                issued = each.get("status", {}).get("certificate")
                if issued:
                    certificates[requests[each["metadata"]["name"]]] = issued
            return len(certificates) == len(agents)

        await asyncio.gather(*(ask(agent) for agent in agents))
        await until(are_issued, "all have certificates", seconds=LIMIT_SECONDS)
    return certificates


async def test_many_agents_join_at_once(lent: Lent, tmp_path: Path):
    """All become available, lose their taints and get profiles; the hub stays small."""
    async with Client(lent.connection) as admin:
        await hubs.install(admin)
        account = await hubs.as_account(lent.connection, CLUSTER_MANAGER)
        releases = tmp_path / "releases"
        releases.mkdir()
        process = HubProcess(
            kubeconfig(tmp_path, account), small_release.write(releases), tmp_path / "hub.log"
        )
        await process.start("--auto-approved-csr-users", USER, SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)
        bootstrap = await hubs.as_bootstrap(lent.connection)
        agents = [Agent(bootstrap, f"c{number:03}") for number in range(AGENTS)]
        try:
            certificates = await ask_all(agents)

            async def are_accepted() -> bool:
                return all(map(is_in, (await admin.list(CLUSTERS)).items))

            await until(are_accepted, "all are accepted", seconds=LIMIT_SECONDS)
            few = asyncio.Semaphore(16)

            async def live(agent: Agent) -> None:
                async with few, Client(logged_in(agent, certificates[agent.cluster])) as own:
                    await agent.renew(own)
                    await agent.report(own)

            await asyncio.gather(*(live(agent) for agent in agents))

            async def are_published() -> bool:
                found = (await admin.list(CLUSTERS)).items
                profiles = (await admin.list(PROFILES, OPERATOR_NAMESPACE)).items
                tainted = [each for each in found if each["spec"].get("taints")]
                return not tainted and len(profiles) == AGENTS

            await until(are_published, "all are published", seconds=LIMIT_SECONDS)
            assert process.memory < LIMIT_BYTES
        finally:
            await process.kill()
    assert "reconcile failed" not in process.said()
