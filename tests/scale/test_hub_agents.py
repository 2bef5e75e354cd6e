"""Many agents join one hub at once; set KNFLEET_AGENTS to let it be more of them."""

import asyncio
import base64
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from cryptography.hazmat.primitives import serialization
from msgspec.structs import replace

from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    LEASE_NAME,
    LEASE_SECONDS,
)
from knfleet.api.core import LEASES
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Key, Object
from knfleet.api.operator import BOOTSTRAP_ACCOUNT, CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.apply.observe.collection import Collection, follow
from knfleet.dev import processes
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.runtime.leader.lease_rules import microtime
from testbed import hubs, small_release
from testbed.clusters import Lent
from testbed.hub_process import HubProcess, kubeconfig
from tests.support.registration import Agent, csr, managed_cluster

pytestmark = pytest.mark.soak
AGENTS = int(os.environ.get("KNFLEET_AGENTS", "20"))
LIMIT_SECONDS = 120.0
LIMIT_BYTES = 150 * 1024 * 1024
SETTLE_SECONDS, IDLE_SECONDS = 10.0, 30.0
IDLE_PART = 0.10
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


async def come(client: Client, collection: Collection, is_so: Callable[[Object], bool]) -> None:
    """Wait by watch until all objects of a collection are so."""

    def are_so(found: Mapping[Key, Object]) -> bool:
        return len(found) == AGENTS and all(map(is_so, found.values()))

    found = await follow(client, collection, are_so, seconds=LIMIT_SECONDS)
    count = sum(map(is_so, found.values()))
    assert count == AGENTS, f"{count} of {AGENTS} after {LIMIT_SECONDS:.0f} s"


async def ask_all(agents: list[Agent]) -> dict[str, str]:
    """Have all agents ask at once; the certificates, by cluster."""
    certificates: dict[str, str] = {}
    async with Client(agents[0].bootstrap, ClientOptions(concurrency=16)) as client:

        async def ask(agent: Agent) -> None:
            await client.create(CLUSTERS, managed_cluster(agent.cluster))
            await client.create(CSRS, csr(agent.cluster, agent.pem))

        def is_issued(request: Object) -> bool:
            issued: str = request.get("status", {}).get("certificate", "")
            if issued:
                certificates[request["metadata"]["labels"][CLUSTER_NAME_LABEL]] = issued
            return bool(issued)

        await asyncio.gather(*(ask(agent) for agent in agents))
        await come(client, Collection(CSRS, labels=CLUSTER_NAME_LABEL), is_issued)
    return certificates


class Clocks:
    """Who used how much of the processors, and when what was reached."""

    def __init__(self, lent: Lent, process: HubProcess) -> None:
        assert process.process is not None
        servers = processes.recorded(lent.folder).items()
        self.watched = {"hub": psutil.Process(process.process.pid), "test": psutil.Process()}
        for name, each in servers:
            if name.startswith((f"{lent.name}.", "etcd")):
                self.watched[name.removeprefix(f"{lent.name}.")] = psutil.Process(each.pid)
        self.began = time.monotonic()
        self.used = self.seconds()

    def seconds(self) -> dict[str, float]:
        """Processor seconds of each so far."""
        return {name: sum(each.cpu_times()[:2]) for name, each in self.watched.items()}

    def tell(self, what: str) -> float:
        """Print what was reached, and what it took; the seconds since the beginning."""
        now, since = self.seconds(), time.monotonic() - self.began
        parts = [f"{name} {now[name] - self.used[name]:.1f}" for name in now]
        print(f"{AGENTS} agents {what} after {since:.1f} s; processor seconds: {', '.join(parts)}")
        return since


async def test_many_agents_join_at_once(lent: Lent, tmp_path: Path):
    """All become available, lose their taints and get profiles; the hub stays small."""
    async with Client(lent.connection) as admin:
        await hubs.install(lent.connection)
        account = await hubs.as_account(lent.connection, CLUSTER_MANAGER)
        releases = tmp_path / "releases"
        releases.mkdir()
        process = HubProcess(
            kubeconfig(tmp_path, account), small_release.write(releases), tmp_path / "hub.log"
        )
        await process.start("--auto-approved-csr-users", USER, SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)
        bootstrap = await hubs.as_bootstrap(lent.connection)
        agents = [Agent(bootstrap, f"c{number:03}") for number in range(AGENTS)]
        clocks = Clocks(lent, process)
        try:
            certificates = await ask_all(agents)
            clocks.tell("have certificates")
            await come(admin, Collection(CLUSTERS), is_in)
            clocks.tell("are accepted")
            few = asyncio.Semaphore(16)

            async def live(agent: Agent) -> None:
                async with few, Client(logged_in(agent, certificates[agent.cluster])) as own:
                    await agent.renew(own)
                    await agent.report(own)

            await asyncio.gather(*(live(agent) for agent in agents))
            clocks.tell("have reported")
            await come(admin, Collection(CLUSTERS), lambda each: not each["spec"].get("taints"))
            await come(admin, Collection(PROFILES, OPERATOR_NAMESPACE), is_healthy)
            clocks.tell(f"are published, hub {process.memory >> 20} MB")
            if "KNFLEET_AGENTS" in os.environ:
                await idle(admin, clocks.watched["hub"])
            assert process.memory < LIMIT_BYTES
        finally:
            await process.kill()
    assert "reconcile failed" not in process.said()


def is_healthy(profile: Object) -> bool:
    """Whether a profile says that its cluster is well."""
    said: list[Object] = profile.get("status", {}).get("conditions") or []
    return any(each["type"] == "ControlPlaneHealthy" and each["status"] == "True" for each in said)


async def idle(admin: Client, hub: psutil.Process) -> None:
    """Let all agents do nothing but be alive for a while; what the hub uses meanwhile."""
    await asyncio.sleep(SETTLE_SECONDS)
    before, began = sum(hub.cpu_times()[:2]), time.monotonic()
    for number in range(int(IDLE_SECONDS * AGENTS / LEASE_SECONDS)):
        key = Key(f"c{number % AGENTS:03}", LEASE_NAME)
        renewed = {"spec": {"renewTime": microtime(datetime.now(UTC))}}
        await admin.patch(LEASES, key, renewed)
        await asyncio.sleep(LEASE_SECONDS / AGENTS)
    took = time.monotonic() - began
    part = (sum(hub.cpu_times()[:2]) - before) / took
    print(f"{AGENTS} idle agents for {took:.0f} s: the hub uses {part:.1%} of a core")
    assert part <= IDLE_PART
