"""The agent over gRPC, at a hub whose API server it cannot reach."""

import base64
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from knfleet.agent.registration import client_certificate
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import ADDON_LABEL, DEFAULT_NAMESPACE
from knfleet.api.certificate_requests import CSR_USER, CSRS, GRPC_SIGNER
from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CERTIFICATE_ROTATED,
    CLUSTERS,
    JOINED,
    LEASE_NAME,
    agent_user,
)
from knfleet.api.core import CONFIG_MAPS, CRDS, LEASES, SECRETS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key, Object
from knfleet.api.operator import (
    AGENT_NAMESPACE,
    GRPC_SERVER_USER,
    HUB_SECRET,
    KLUSTERLETS,
    OPERATOR_NAMESPACE,
)
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.grpc.calls.access_check import AccessCheck
from knfleet.install.hub_manifests import named
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import NotFound
from testbed import grpc_servers, hubs
from testbed.agent_process import (
    Agent,
    Scene,
    bootstrap_token,
    cluster_of,
    condition,
    hub_secret,
    prepare_spoke,
)
from testbed.clusters import Lend
from testbed.grpc_servers import RunningServer
from testbed.waiting import until
from tests.support import addons
from tests.support.grpc_calls import CertificateMaker
from tests.support.grpc_works import applied, whole_life, work

pytestmark = pytest.mark.xdist_group("agent")
NOWHERE = Endpoint("https://127.0.0.1:1")
"""Where no API server is."""


class GrpcScene(Scene):
    """A hub with a gRPC server, and a spoke whose agent knows only that server."""

    server: RunningServer
    token: str

    def flags(self) -> tuple[str, ...]:
        """What makes an agent use gRPC."""
        config = self.agent.folder / "grpc.yaml"
        config.write_bytes(self.server.config(self.token))
        return ("--registration-auth", "grpc", "--grpc-bootstrap-config", str(config))

    async def joined(self, *flags: str) -> None:
        """Start the agent, and have its cluster accepted and available."""
        await self.agent.start(*self.flags(), *flags)
        await self.accept()
        await condition(self.hub, AVAILABLE, "True")


@pytest.fixture
async def scene(lend: Lend, tmp_path: Path) -> AsyncIterator[GrpcScene]:
    """Everything that runs but the agent."""
    hub_lent, spoke_lent = await lend(2, definitions=True)
    async with Client(hub_lent.connection) as hub, Client(spoke_lent.connection) as spoke:
        await hubs.install(hub_lent.connection)
        for each in spoke_definitions():
            await spoke.apply(CRDS, each)
            await hubs.established(spoke, each["metadata"]["name"])
        await prepare_spoke(spoke)
        agent = Agent(spoke_lent, tmp_path, "c1")
        token = await bootstrap_token(hub)
        agent.point_to(NOWHERE, "")
        async with (
            hubs.running(hub_lent.connection),
            grpc_servers.running(hub_lent.connection, tmp_path) as server,
        ):
            made = GrpcScene(hub, hub_lent, spoke, agent, AsyncExitStack(), server, token)
            try:
                yield made
            finally:
                await agent.end()
                print(agent.said()[-6000:])


async def addon_secret(scene: GrpcScene) -> dict[str, bytes]:
    """What the add-on's agent got, as soon as it has."""

    async def exists() -> bool:
        try:
            await scene.spoke.get(SECRETS, "hello-hub-kubeconfig", DEFAULT_NAMESPACE)
        except NotFound:
            return False
        return True

    await until(exists, f"the add-on has credentials: {scene.agent.said()}")
    found = await scene.spoke.get(SECRETS, "hello-hub-kubeconfig", DEFAULT_NAMESPACE)
    return {key: base64.b64decode(text) for key, text in found["data"].items()}


async def renewed(scene: GrpcScene) -> None:
    """Have the agent renew a certificate that nears its end, without a person."""
    kept = await hub_secret(scene.spoke)
    maker = await CertificateMaker.of(scene.hub)
    user = agent_user("c1", kept["agent-name"].decode())
    old = maker.identity("c1", user=user, ends=timedelta(hours=1))
    data = {"tls.crt": old.certificate, "tls.key": old.key}
    patch = {"data": {name: base64.b64encode(each).decode() for name, each in data.items()}}
    await scene.spoke.patch(SECRETS, Key(AGENT_NAMESPACE, HUB_SECRET), patch)

    async def is_renewed() -> bool:
        return (await hub_secret(scene.spoke))["tls.crt"] != old.certificate

    await until(is_renewed, "the certificate is renewed")
    assert (await hub_secret(scene.spoke))["tls.crt"] != kept["tls.crt"]


async def install_addon(scene: GrpcScene) -> None:
    """Install an add-on whose agent reaches the hub's API server."""
    registration: list[Object] = [{"type": "KubeClient", "kubeClient": {"hubPermissions": []}}]
    template = addons.template(
        "hello", addons.config_map("settings", "hello"), registration=registration
    )
    await scene.hub.create(ADDON_TEMPLATES, template)
    await scene.hub.create(CLUSTER_ADDONS, addons.cluster_addon("hello"))
    await scene.hub.create(ADDONS, addons.addon("hello", "c1"), "c1")


@pytest.mark.full
async def test_an_add_on_gets_its_token_over_grpc(scene: GrpcScene):
    await scene.joined("--addon-kubeclient-registration-auth=token")
    await install_addon(scene)

    await addons.is_said(scene.hub, Key("c1", "hello"), "TokenRefreshed", "True")

    token = (await addon_secret(scene))["token"].decode()
    reviewed = await AccessCheck(scene.hub).caller(token)
    assert reviewed is not None
    assert reviewed.user == "system:serviceaccount:c1:hello-agent"
    assert token not in scene.agent.said()


@pytest.mark.full
async def test_an_add_on_gets_its_certificate_and_reports_over_grpc(scene: GrpcScene):
    """The agent has no way to the API server: requests and statuses of add-ons are events."""
    await scene.joined()
    await install_addon(scene)

    await addons.is_said(scene.hub, Key("c1", "hello"), "ClusterCertificateRotated", "True")

    content = await addon_secret(scene)
    certificate = client_certificate.read(content["tls.crt"])
    assert certificate is not None
    user = "system:open-cluster-management:cluster:c1:addon:hello:agent:hello-agent"
    assert certificate.common_name == user
    (request,) = (await scene.hub.list(CSRS, labels=ADDON_LABEL)).items
    assert request["spec"]["username"] == GRPC_SERVER_USER
    assert request["metadata"]["annotations"][CSR_USER].startswith(agent_user("c1", ""))

    await scene.hub.delete(CLUSTER_ADDONS, Key("", "hello"))

    async def is_gone() -> bool:
        found = await scene.spoke.list(SECRETS, DEFAULT_NAMESPACE)
        return "hello-hub-kubeconfig" not in [each["metadata"]["name"] for each in found.items]

    await until(is_gone, "the credentials are deleted with the add-on")


async def test_a_cluster_joins_beats_reports_and_works_over_grpc(scene: GrpcScene):
    await scene.agent.start(*scene.flags())
    request = await scene.accept()

    assert request["spec"]["signerName"] == GRPC_SIGNER
    user = f"system:serviceaccount:{OPERATOR_NAMESPACE}:agent-registration-bootstrap"
    assert request["metadata"]["annotations"][CSR_USER] == user
    await condition(scene.hub, AVAILABLE, "True")
    await condition(scene.hub, JOINED, "True")
    await condition(scene.hub, CERTIFICATE_ROTATED, "True")
    assert (await cluster_of(scene.hub)).status.version.kubernetes == await scene.spoke.version()
    kept = await hub_secret(scene.spoke)
    assert "config.yaml" in kept
    assert scene.token.encode() not in b"".join(kept.values())

    await scene.hub.patch(CLUSTERS, Key("", "c1"), {"spec": {"leaseDurationSeconds": 1}})
    renewals: set[str] = set()

    async def is_renewed() -> bool:
        renewals.add((await scene.hub.get(LEASES, LEASE_NAME, "c1"))["spec"]["renewTime"])
        return len(renewals) > 3

    await until(is_renewed, "the Lease is renewed")

    await whole_life(scene.hub, scene.spoke, "w1")

    await renewed(scene)
    await whole_life(scene.hub, scene.spoke, "w2")

    await until(scene.handed, "a token is handed over")
    token = base64.b64decode((await scene.handed_over())["token"]).decode()
    assert token not in scene.agent.said()


@pytest.mark.full
async def test_an_agent_that_was_killed_gets_what_is_new_and_writes_nothing_else(scene: GrpcScene):
    await scene.joined()
    await scene.hub.create(WORKS, work("w1"))
    await applied(scene.hub, scene.spoke, "w1")
    before = await scene.spoke.get(CONFIG_MAPS, "w1", "default")
    status = (await scene.hub.get(WORKS, "w1", "c1"))["status"]
    await scene.agent.end(signal.SIGKILL)
    await scene.hub.create(WORKS, work("w2"))

    await scene.agent.start(*scene.flags())

    await applied(scene.hub, scene.spoke, "w2")
    after = await scene.spoke.get(CONFIG_MAPS, "w1", "default")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert (await scene.hub.get(WORKS, "w1", "c1"))["status"] == status


@pytest.mark.full
async def test_a_cluster_changes_its_driver_both_ways_and_keeps_its_works(
    scene: GrpcScene, monkeypatch: pytest.MonkeyPatch
):
    """By the Klusterlet alone, without a person and without a new token; no work is evicted."""
    monkeypatch.setenv("KNFLEET_KLUSTERLET", "klusterlet")
    spec = {"clusterName": "c1", "registrationConfiguration": driver("csr")}
    await scene.spoke.apply(
        KLUSTERLETS,
        {**named(KLUSTERLETS.api_version, KLUSTERLETS.kind, "klusterlet"), "spec": spec},
    )
    scene.agent.point_to(scene.hub_lent.connection.endpoint, scene.token)
    await scene.agent.start(*scene.flags()[2:])
    await scene.accept()
    await condition(scene.hub, AVAILABLE, "True")
    await scene.hub.create(WORKS, work("w1"))
    await applied(scene.hub, scene.spoke, "w1")
    (owner,) = (await scene.spoke.list(APPLIED_WORKS)).items
    uid = (await scene.spoke.get(CONFIG_MAPS, "w1", "default"))["metadata"]["uid"]

    for auth_type, data in (("grpc", "c"), ("csr", "d")):
        patch = {"spec": {"registrationConfiguration": driver(auth_type)}}
        await scene.spoke.patch(KLUSTERLETS, Key("", "klusterlet"), patch)

        async def is_changed(wanted: str = auth_type) -> bool:
            return ("config.yaml" in await hub_secret(scene.spoke)) == (wanted == "grpc")

        await until(is_changed, f"the driver is {auth_type}: {scene.agent.said()}")
        await scene.hub.patch(WORKS, Key("c1", "w1"), {"spec": work("w1", data)["spec"]})
        await applied(scene.hub, scene.spoke, "w1", data)
        (kept,) = (await scene.spoke.list(APPLIED_WORKS)).items
        assert kept["metadata"]["uid"] == owner["metadata"]["uid"]
        assert "evictionStartTime" not in kept["status"]
        found = await scene.spoke.get(CONFIG_MAPS, "w1", "default")
        assert found["metadata"]["uid"] == uid
    requests = (await scene.hub.list(CSRS)).items
    assert len(requests) == 3, [each["metadata"] for each in requests]


def driver(auth_type: str) -> Object:
    """The configuration of a registration driver."""
    return {"registrationDriver": {"authType": auth_type}}
