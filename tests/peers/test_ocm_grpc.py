"""gRPC with programs of Open Cluster Management on either side."""

import base64
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import DEFAULT_NAMESPACE
from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    JOINED,
    LEASE_NAME,
)
from knfleet.api.core import CRDS, LEASES, NAMESPACES, SECRETS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key, Object
from knfleet.api.operator import AGENT_NAMESPACE
from knfleet.hub.grpc.calls.access_check import AccessCheck
from knfleet.hub.registration.drivers.csr import approve
from knfleet.install.hub_manifests import named
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.yaml import dump_all
from testbed import grpc_servers, hubs
from testbed.agent_process import Agent, bootstrap_token, condition, kubeconfig, prepare_spoke
from testbed.clusters import Lend, Lent
from testbed.peers.ocm import OFTEN, OcmSpoke, ocm_agents
from testbed.peers.ocm_grpc import OcmGrpcSpoke, grpc_files, ocm_server, serving
from testbed.peers.ocm_hub import install_definitions, ocm_hub, prepare_hub, running
from testbed.printed import Printed
from testbed.waiting import until
from tests.support import addons
from tests.support.grpc_works import whole_life
from tests.support.pairs import accepted

pytestmark = [pytest.mark.xdist_group("peers"), pytest.mark.full]
NOWHERE = Endpoint("https://127.0.0.1:1")
"""Where no API server is: agents reach the gRPC server alone."""


@pytest.fixture
async def clusters(lend: Lend) -> AsyncIterator[tuple[Lent, Client, Lent, Client]]:
    """A hub and a spoke with their clients."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that Open Cluster Management cannot be built")
    hub_lent, spoke_lent = await lend(2)
    async with Client(hub_lent.connection) as hub, Client(spoke_lent.connection) as spoke:
        yield hub_lent, hub, spoke_lent, spoke


async def beats(hub: Client) -> None:
    """Wait until the Lease was renewed a few times."""
    await hub.patch(CLUSTERS, Key("", "c1"), {"spec": {"leaseDurationSeconds": 1}})
    renewals: set[str] = set()

    async def is_renewed() -> bool:
        renewals.add((await hub.get(LEASES, LEASE_NAME, "c1"))["spec"]["renewTime"])
        return len(renewals) > 3

    await until(is_renewed, "the Lease is renewed")


async def approved(hub: Client) -> None:
    """Approve and accept as `kubectl` does: their server asks as who runs it, not as the agent."""
    pending: list[Object] = []

    async def is_pending() -> bool:
        pending[:] = (await hub.list(CSRS, labels=f"{CLUSTER_NAME_LABEL}=c1")).items
        return bool(pending)

    await until(is_pending, "the agent asks for a certificate")
    await approve(hub, pending[0], reason="Test", message="by a test")
    await hub.patch(CLUSTERS, Key("", "c1"), {"spec": {"hubAcceptsClient": True}})
    await condition(hub, JOINED, "True")
    await condition(hub, AVAILABLE, "True")


async def test_real_agents_register_beat_and_work_through_our_server(
    clusters: tuple[Lent, Client, Lent, Client], tmp_path: Path
):
    hub_lent, hub, spoke_lent, spoke = clusters
    agents = await ocm_agents(Printed())
    await hubs.install(hub_lent.connection)
    await install_definitions(spoke, spoke=True)
    await spoke.apply(NAMESPACES, named("v1", "Namespace", AGENT_NAMESPACE))
    place = OcmSpoke("c1", spoke_lent, tmp_path)
    place.bootstrap.write_bytes(kubeconfig(NOWHERE, "nothing"))
    async with (
        hubs.running(hub_lent.connection),
        grpc_servers.running(hub_lent.connection, tmp_path) as server,
    ):
        there = OcmGrpcSpoke(place, server.config(await bootstrap_token(hub)))
        async with there.registering(agents):
            await accepted(hub)
            await beats(hub)
            async with there.working(agents, *OFTEN):
                await whole_life(hub, spoke, "w1")
    assert "PermissionDenied" not in place.log("work").read_text()


async def test_the_add_on_of_a_real_agent_gets_its_token_through_our_server(
    clusters: tuple[Lent, Client, Lent, Client], tmp_path: Path
):
    hub_lent, hub, spoke_lent, spoke = clusters
    agents = await ocm_agents(Printed())
    await hubs.install(hub_lent.connection)
    await install_definitions(spoke, spoke=True)
    for namespace in (AGENT_NAMESPACE, DEFAULT_NAMESPACE):
        await spoke.apply(NAMESPACES, named("v1", "Namespace", namespace))
    place = OcmSpoke("c1", spoke_lent, tmp_path)
    place.bootstrap.write_bytes(kubeconfig(NOWHERE, "nothing"))
    async with (
        hubs.running(hub_lent.connection),
        grpc_servers.running(hub_lent.connection, tmp_path) as server,
    ):
        there = OcmGrpcSpoke(place, server.config(await bootstrap_token(hub)))
        async with there.registering(agents, "--addon-kubeclient-registration-auth=token"):
            await accepted(hub)
            wanted: list[Object] = [{"type": "KubeClient", "kubeClient": {"hubPermissions": []}}]
            settings = addons.config_map("settings", "hello")
            template = addons.template("hello", settings, registration=wanted)
            await hub.create(ADDON_TEMPLATES, template)
            await hub.create(CLUSTER_ADDONS, addons.cluster_addon("hello"))
            await hub.create(ADDONS, addons.addon("hello", "c1"), "c1")

            await addons.is_said(hub, Key("c1", "hello"), "TokenRefreshed", "True")

            found = await spoke.get(SECRETS, "hello-hub-kubeconfig", DEFAULT_NAMESPACE)
            token = base64.b64decode(found["data"]["token"]).decode()
            reviewed = await AccessCheck(hub).caller(token)
            assert reviewed is not None
            assert reviewed.user == "system:serviceaccount:c1:hello-agent"


async def test_our_agent_registers_beats_and_works_through_the_real_server(
    clusters: tuple[Lent, Client, Lent, Client], tmp_path: Path
):
    hub_lent, hub, spoke_lent, spoke = clusters
    server_binary, binaries = await ocm_server(Printed()), await ocm_hub(Printed())
    await prepare_hub(hub)
    for each in spoke_definitions():
        await spoke.apply(CRDS, each)
        await hubs.established(spoke, each["metadata"]["name"])
    await prepare_spoke(spoke)
    files = grpc_files(tmp_path / "grpc")
    agent = Agent(spoke_lent, tmp_path, "c1")
    agent.point_to(NOWHERE, "")
    flags = files.controller_flags
    async with (
        running(binaries, hub_lent, tmp_path / "ocm-hub", registration_flags=flags),
        serving(server_binary, hub_lent, files) as server,
    ):
        config = {
            "url": server.url,
            "caData": base64.b64encode(server.ca).decode(),
            "token": await bootstrap_token(hub),
        }
        path = tmp_path / "bootstrap.yaml"
        path.write_text(dump_all([config]))
        await agent.start("--registration-auth", "grpc", "--grpc-bootstrap-config", str(path))
        try:
            await approved(hub)
            await beats(hub)
            await whole_life(hub, spoke, "w1")
        finally:
            await agent.end()
