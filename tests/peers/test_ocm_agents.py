"""The agents of Open Cluster Management on a hub that `knfleet init` installed."""

import base64
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Struct

from knfleet.agent.registration.identity import HubCredentials
from knfleet.api.cluster.managedcluster import (
    AGENT_NAME,
    AVAILABLE,
    CERTIFICATE_ROTATED,
    CLAIMS,
    CLUSTERS,
    JOINED,
    LEASE_NAME,
    SET_LABEL,
)
from knfleet.api.core import CONFIG_MAPS, CRDS, LEASES, NAMESPACES, SECRETS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key, Object
from knfleet.api.operator import AGENT_NAMESPACE, BOOTSTRAP_SECRET, CLUSTER_MANAGERS, HUB_SECRET
from knfleet.api.work.manifestwork import WORKS
from knfleet.install.deployments import HubInstall, cluster_manager
from knfleet.install.hub_manifests import named
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.workflows import accept_clusters
from testbed import hubs
from testbed.agent_process import (
    bootstrap_token,
    cluster_of,
    condition,
    hub_secret,
    kubeconfig,
    lasting,
)
from testbed.clusters import Lend, Lent
from testbed.peers.ocm import OFTEN, OcmAgents, OcmSpoke, ocm_agents
from testbed.printed import Printed
from testbed.waiting import until

pytestmark = [pytest.mark.xdist_group("peers"), pytest.mark.full]
REFUSED = ("ValidatingAdmissionPolicy", "is forbidden")


class Pair(Struct, frozen=True):
    """Our hub, which runs, and a spoke for agents of Open Cluster Management."""

    hub: Client
    hub_lent: Lent
    spoke: Client
    place: OcmSpoke
    agents: OcmAgents

    def refusals(self, agent: str) -> list[str]:
        """What the hub refused an agent."""
        lines = self.place.log(agent).read_text().splitlines()
        return [line for line in lines if any(word in line for word in REFUSED)]


@pytest.fixture
async def pair(lend: Lend, tmp_path: Path) -> AsyncIterator[Pair]:
    """A hub with everything that `init` installs, and a spoke with what the agents need."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that Open Cluster Management cannot be built")
    agents = await ocm_agents(Printed())
    hub_lent, spoke_lent = await lend(2)
    async with Client(hub_lent.connection) as hub, Client(spoke_lent.connection) as spoke:
        await hubs.install(hub_lent.connection)
        await hub.apply(CLUSTER_MANAGERS, cluster_manager(HubInstall(image="")))
        for each in spoke_definitions():
            await spoke.apply(CRDS, each)
            await hubs.established(spoke, each["metadata"]["name"])
        await spoke.apply(NAMESPACES, named("v1", "Namespace", AGENT_NAMESPACE))
        place = OcmSpoke("c1", spoke_lent, tmp_path)
        config = kubeconfig(hub_lent.connection.endpoint, await bootstrap_token(hub))
        place.bootstrap.write_bytes(config)
        await spoke.apply(SECRETS, secret(BOOTSTRAP_SECRET, {"kubeconfig": config}))
        async with hubs.running(hub_lent.connection):
            yield Pair(hub, hub_lent, spoke, place, agents)


def secret(name: str, files: dict[str, bytes]) -> Object:
    """A Secret of the agents' namespace."""
    made = named("v1", "Secret", name, AGENT_NAMESPACE)
    return {**made, "data": {key: base64.b64encode(each).decode() for key, each in files.items()}}


async def joined(pair: Pair) -> None:
    """Have the cluster accepted as a person does, and wait until its agent says that it joined."""

    async def is_asked() -> bool:
        return bool(await accept_clusters.pending_requests(pair.hub, "c1"))

    await until(is_asked, f"the agent asks; see {pair.place.log('registration')}")
    await accept_clusters.accept(pair.hub, "c1")
    await condition(pair.hub, JOINED, "True")
    await condition(pair.hub, AVAILABLE, "True")


async def beats(pair: Pair) -> None:
    """Wait until the Lease was renewed a few times."""
    renewals: set[str] = set()

    async def is_renewed() -> bool:
        renewals.add((await pair.hub.get(LEASES, LEASE_NAME, "c1"))["spec"]["renewTime"])
        return len(renewals) > 3

    await until(is_renewed, "the Lease is renewed")


async def test_the_registration_agent_joins_reports_and_renews(pair: Pair):
    """With the admission policies of `init`, none of which refuses it anything."""
    claim = {**named(CLAIMS.api_version, CLAIMS.kind, "id.k8s.io"), "spec": {"value": "mine"}}
    await pair.spoke.create(CLAIMS, claim)
    async with pair.place.registering(
        pair.agents,
        *("--spoke-external-server-urls", "https://127.0.0.1:1"),
        *("--cluster-annotations", "agent.open-cluster-management.io/region=here"),
    ):
        await joined(pair)
        await pair.hub.patch(CLUSTERS, Key("", "c1"), {"spec": {"leaseDurationSeconds": 1}})
        await beats(pair)

        async def is_reported() -> bool:
            status = (await cluster_of(pair.hub)).status
            return bool(status.cluster_claims) and bool(status.version.kubernetes)

        await until(is_reported, "claims and version are reported")
        cluster = await cluster_of(pair.hub)
        assert [(each.name, each.value) for each in cluster.status.cluster_claims] == [
            ("id.k8s.io", "mine")
        ]
        assert cluster.status.version.kubernetes == await pair.spoke.version()
        assert cluster.metadata.labels[SET_LABEL] == "default"
        assert cluster.metadata.annotations["agent.open-cluster-management.io/region"]
        assert AGENT_NAME in cluster.metadata.annotations

        await renewed(pair)
        await beats(pair)
    assert pair.refusals("registration") == []


async def renewed(pair: Pair) -> None:
    """Have the agent renew its certificate, which nears its end, without a person."""
    files = await hub_secret(pair.spoke)
    held = HubCredentials.of(files)
    old = lasting(pair.hub_lent, held, timedelta(minutes=30), age=timedelta(hours=4))
    await pair.spoke.apply(SECRETS, secret(HUB_SECRET, {**files, "tls.crt": old}))

    async def is_new() -> bool:
        return (await hub_secret(pair.spoke))["tls.crt"] not in (old, files["tls.crt"])

    await until(is_new, "the certificate is renewed")
    await condition(pair.hub, CERTIFICATE_ROTATED, "True")
    assert await accept_clusters.pending_requests(pair.hub, "c1") == []


async def test_the_work_agent_applies_works_and_removes_them(pair: Pair):
    """What it applied goes with the work; then the cluster leaves."""
    made = {**named("v1", "ConfigMap", "from-hub", "default"), "data": {"a": "b"}}
    work = {
        **named(WORKS.api_version, WORKS.kind, "w", "c1"),
        "spec": {"workload": {"manifests": [made]}},
    }

    async def is_applied() -> bool:
        try:
            await pair.spoke.get(CONFIG_MAPS, "from-hub", "default")
        except NotFound:
            return False
        return True

    async def is_told() -> bool:
        found = await pair.hub.get(WORKS, "w", "c1")
        said: list[Object] = found.get("status", {}).get("conditions") or []
        return {"Applied", "Available"} <= {each["type"] for each in said}

    async def is_gone() -> bool:
        return not (await pair.hub.list(CLUSTERS)).items and not await is_applied()

    async with pair.place.registering(pair.agents):
        await joined(pair)
        async with pair.place.working(pair.agents, *OFTEN):
            await pair.hub.create(WORKS, work)
            await until(is_applied, f"the work is applied; see {pair.place.log('work')}")
            await until(is_told, "the work's status tells so")
            await pair.hub.delete(CLUSTERS, Key("", "c1"))
            await until(is_gone, "cluster and work are gone")
    assert pair.refusals("work") == []
