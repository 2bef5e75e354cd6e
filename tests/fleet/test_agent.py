"""The agent on a real spoke, at a real hub."""

import base64
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from msgspec import Struct
from msgspec.structs import replace

from knfleet.agent import certificates
from knfleet.agent.certificates import REQUESTS
from knfleet.agent.identity import Held
from knfleet.agent.keeping import secret_of
from knfleet.api.cluster import (
    AVAILABLE,
    CERTIFICATE_ROTATED,
    CLOCK_SYNCED,
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    JOINED,
    LEASE_NAME,
)
from knfleet.api.core import LEASES, SECRETS
from knfleet.api.hub import AGENT_NAMESPACE, HUB_SECRET
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.spokeaccess import ACCESS_ACCOUNT, ACCESS_SECRET
from knfleet.apply.parts import items
from knfleet.dev import pki
from knfleet.fleet.approval import Request, examine
from knfleet.fleet.requests import approve
from knfleet.kube.client import Client
from tests.conftest import Lend
from tests.fleet.agents import (
    Agent,
    bootstrap_token,
    cluster_of,
    condition,
    hub_secret,
    prepare_spoke,
    remove_hub_secret,
)
from tests.ground import Lent
from tests.server.fleet import hubs
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("agent")
REVIEWS = Resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)


class Scene(Struct):
    """A hub that runs, and a spoke with an agent that does not yet."""

    hub: Client
    hub_lent: Lent
    spoke: Client
    agent: Agent
    running: AsyncExitStack

    async def pending(self, name: str = "c1") -> list[Object]:
        """Requests of a cluster that nobody answered."""
        found = await self.hub.list(REQUESTS, labels=f"{CLUSTER_NAME_LABEL}={name}")
        return [each for each in found.items if not items(each, "status", "conditions")]

    async def accept(self, name: str = "c1") -> Object:
        """Do what a person does who accepts a cluster; the request that was approved."""

        async def asked() -> bool:
            return bool(await self.pending(name))

        await until(asked, f"{name} asks for a certificate: {self.agent.said()}", seconds=30)
        (request,) = await self.pending(name)
        assert isinstance(examine(request), Request), examine(request)
        await approve(self.hub, request, reason="Test", message="by a test")
        await self.hub.patch(CLUSTERS, Key("", name), {"spec": {"hubAcceptsClient": True}})
        return request


@pytest.fixture
async def scene(lend: Lend, tmp_path: Path) -> AsyncIterator[Scene]:
    """A hub with our controllers, and a spoke whose agent knows how to reach it."""
    hub_lent, spoke_lent = await lend(2)
    async with Client(hub_lent.connection) as hub, Client(spoke_lent.connection) as spoke:
        await hubs.install(hub)
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


async def joined(scene: Scene) -> None:
    """Start the agent, and have its cluster accepted and available."""
    await scene.agent.start()
    await scene.accept()
    await condition(scene.hub, AVAILABLE, "True")


async def test_a_cluster_joins_is_heard_of_and_hands_over_access(scene: Scene):
    await scene.agent.start()
    request = await scene.accept()
    assert request["metadata"]["name"].startswith("c1-")
    assert request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client"

    await condition(scene.hub, AVAILABLE, "True")
    await condition(scene.hub, JOINED, "True")
    assert "valid from" in await condition(scene.hub, CERTIFICATE_ROTATED, "True")

    cluster = await cluster_of(scene.hub)
    assert cluster.status.version.kubernetes == await scene.spoke.version()
    assert cluster.status.capacity["cpu"]
    assert cluster.status.allocatable["memory"]
    kept = await hub_secret(scene.spoke)
    assert set(kept) == {"cluster-name", "agent-name", "kubeconfig", "tls.key", "tls.crt"}
    files = {path.name: path.read_bytes() for path in scene.agent.hub_folder.iterdir()}
    assert files == kept
    assert scene.agent.hub_folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in scene.agent.hub_folder.iterdir()} == {0o600}

    await until(lambda: handed(scene), "a token is handed over")
    token = base64.b64decode((await handed_over(scene))["token"]).decode()
    seen = hubs.with_token(scene.agent.spoke.connection, token)
    async with Client(seen) as visitor:
        asked = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind}
        who = (await visitor.create(REVIEWS, asked))["status"]["userInfo"]["username"]
    assert who == f"system:serviceaccount:{AGENT_NAMESPACE}:{ACCESS_ACCOUNT}"
    assert token not in scene.agent.said()
    assert scene.agent.memory < 60 * 2**20


async def handed_over(scene: Scene) -> dict[str, str]:
    """What the agent handed to the hub."""
    found = await scene.hub.list(SECRETS, "c1", fields=f"metadata.name={ACCESS_SECRET}")
    return (found.items[0].get("data") or {}) if found.items else {}


async def handed(scene: Scene) -> bool:
    """Whether the agent handed something to the hub."""
    return "token" in await handed_over(scene)


async def test_everything_is_found_again_after_restarts_and_losses(scene: Scene):
    await joined(scene)
    before = await hub_secret(scene.spoke)
    await scene.agent.end(signal.SIGKILL)
    await scene.agent.start()
    await until(lambda: handed(scene), "a token is handed over")
    assert (await hub_secret(scene.spoke)) == before
    assert await scene.pending() == []

    await remove_hub_secret(scene.spoke)

    async def is_back() -> bool:
        found = await scene.spoke.list(
            SECRETS, AGENT_NAMESPACE, fields=f"metadata.name={HUB_SECRET}"
        )
        return bool(found.items)

    await until(is_back, "the Secret is back")
    assert (await hub_secret(scene.spoke)) == before

    await scene.hub.delete(SECRETS, Key("c1", ACCESS_SECRET))
    await until(lambda: handed(scene), "the token is back")
    await scene.hub.patch(CLUSTERS, Key("", "c1"), {"spec": {"leaseDurationSeconds": 1}})
    await scene.hub.delete(LEASES, Key("c1", LEASE_NAME))

    async def beats() -> bool:
        found = await scene.hub.list(LEASES, "c1", fields=f"metadata.name={LEASE_NAME}")
        times = [each["spec"]["renewTime"] for each in found.items]
        made = [each["metadata"]["creationTimestamp"] for each in found.items]
        return bool(times) and times[0][:19] > made[0][:19]

    await until(beats, "the Lease is back, and renewed")


async def test_a_certificate_is_renewed_before_it_ends(scene: Scene):
    await joined(scene)
    held = Held.of(await hub_secret(scene.spoke))
    old = replace(held, certificate=near_its_end(scene.hub_lent, held))
    secret = secret_of(old, Key(AGENT_NAMESPACE, HUB_SECRET))
    await scene.spoke.apply(SECRETS, secret, manager="knfleet-agent")

    async def is_new() -> bool:
        found = (await hub_secret(scene.spoke))["tls.crt"]
        return found not in (held.certificate, old.certificate)

    await until(is_new, f"a new certificate: {scene.agent.said()}")
    renewed = certificates.read((await hub_secret(scene.spoke))["tls.crt"])
    assert renewed is not None
    assert renewed.ends > datetime.now(UTC) + timedelta(hours=1)
    await condition(scene.hub, CERTIFICATE_ROTATED, "True")
    assert await scene.pending() == []


def near_its_end(hub: Lent, held: Held) -> bytes:
    """The agent's certificate, as if it had been issued long ago."""
    authority = pki.Authority.load(hub.folder.pki(hub.name), "ca")
    old = x509.load_pem_x509_certificate(held.certificate)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(authority.certificate.subject)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(minutes=5))
        .add_extension(
            x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .sign(authority.key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


async def test_a_hub_that_moved_is_followed_without_a_person(scene: Scene):
    await joined(scene)
    before = await hub_secret(scene.spoke)
    endpoint = scene.hub_lent.connection.endpoint
    moved = replace(endpoint, server=endpoint.server.replace("127.0.0.1", "localhost"))

    scene.agent.point_to(moved, "a-token-that-is-not-needed")

    await scene.agent.says("the hub has moved")

    async def is_kept() -> bool:
        return moved.server in (await hub_secret(scene.spoke))["kubeconfig"].decode()

    await until(is_kept, "the new address is kept")
    await until(lambda: handed(scene), "access is handed over again")
    after = await hub_secret(scene.spoke)
    assert after["tls.crt"] == before["tls.crt"]
    assert await scene.pending() == []


async def test_a_name_that_is_taken_is_not_given_to_another_agent(scene: Scene, tmp_path: Path):
    await joined(scene)
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = Agent(scene.hub_lent, other_folder)
    other.point_to(scene.hub_lent.connection.endpoint, await bootstrap_token(scene.hub))
    try:
        await other.start("--agent-id", "thief")
        await other.says("certificate request refused", "choose another")
    finally:
        await other.end(signal.SIGKILL)
    await condition(scene.hub, AVAILABLE, "True")


async def test_a_wrong_token_is_told_with_what_to_do(scene: Scene):
    scene.agent.point_to(scene.hub_lent.connection.endpoint, "wrong")

    await scene.agent.start()

    await scene.agent.says("the token is wrong or expired", "knfleet get token")
    scene.agent.point_to(scene.hub_lent.connection.endpoint, await bootstrap_token(scene.hub))
    await scene.accept()
    await condition(scene.hub, AVAILABLE, "True")


async def test_a_clock_that_is_off_is_told(scene: Scene):
    await joined(scene)
    off: Object = {
        "type": CLOCK_SYNCED,
        "status": "False",
        "reason": "ManagedClusterClockOutOfSync",
        "message": "an hour off",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 0,
    }
    cluster = await scene.hub.get(CLUSTERS, "c1")
    conditions = [each for each in cluster["status"]["conditions"] if each["type"] != CLOCK_SYNCED]
    patch = {"status": {"conditions": [*conditions, off]}}
    await scene.hub.patch(CLUSTERS, Key("", "c1"), patch, subresource="status")

    await scene.agent.says("out of step", "synchronise the clocks")
