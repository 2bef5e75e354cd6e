"""The agent on a real spoke, at a real hub."""

import base64
import signal
from pathlib import Path

import pytest

from knfleet.api.cluster.access import ACCESS_ACCOUNT, ACCESS_SECRET
from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CERTIFICATE_ROTATED,
    CLUSTERS,
    JOINED,
    LEASE_NAME,
)
from knfleet.api.core import LEASES, SECRETS
from knfleet.api.meta import Key, Resource
from knfleet.api.operator import AGENT_NAMESPACE, HUB_SECRET
from knfleet.dev import ports
from knfleet.kube.client.verbs import Client
from testbed import hubs
from testbed.agent_process import (
    Agent,
    Scene,
    bootstrap_token,
    cluster_of,
    condition,
    hub_secret,
    remove_hub_secret,
)
from testbed.waiting import until

pytestmark = pytest.mark.xdist_group("agent")
REVIEWS = Resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)


async def test_a_cluster_joins_is_heard_of_and_hands_over_access(scene: Scene):
    (port,) = ports.reserve(1, ports.DEFAULT_RANGE, scene.agent.folder / "ports")
    await scene.agent.start("--listen", f"127.0.0.1:{port}")
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

    await until(scene.handed, "a token is handed over")
    token = base64.b64decode((await scene.handed_over())["token"]).decode()
    seen = hubs.with_token(scene.agent.spoke.connection, token)
    async with Client(seen) as visitor:
        asked = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind}
        who = (await visitor.create(REVIEWS, asked))["status"]["userInfo"]["username"]
    assert who == f"system:serviceaccount:{AGENT_NAMESPACE}:{ACCESS_ACCOUNT}"
    assert token not in scene.agent.said()
    print(f"the agent has {scene.agent.memory / 2**20:.1f} MB of its own")
    assert scene.agent.memory < 40 * 2**20


async def test_everything_is_found_again_after_restarts_and_losses(scene: Scene):
    await scene.joined()
    before = await hub_secret(scene.spoke)
    await scene.agent.end(signal.SIGKILL)
    await scene.agent.start()
    await until(scene.handed, "a token is handed over")
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
    await until(scene.handed, "the token is back")
    await scene.hub.patch(CLUSTERS, Key("", "c1"), {"spec": {"leaseDurationSeconds": 1}})
    await scene.hub.delete(LEASES, Key("c1", LEASE_NAME))

    async def beats() -> bool:
        found = await scene.hub.list(LEASES, "c1", fields=f"metadata.name={LEASE_NAME}")
        times = [each["spec"]["renewTime"] for each in found.items]
        made = [each["metadata"]["creationTimestamp"] for each in found.items]
        return bool(times) and times[0][:19] > made[0][:19]

    await until(beats, "the Lease is back, and renewed")


@pytest.mark.full
async def test_a_name_that_is_taken_is_not_given_to_another_agent(scene: Scene, tmp_path: Path):
    await scene.joined()
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = Agent(scene.hub_lent, other_folder)
    other.point_to(scene.hub_lent.connection.endpoint, await bootstrap_token(scene.hub))
    try:
        await other.start("--agent-id", "thief")
        await other.says("registration refused", "choose another")
    finally:
        await other.end(signal.SIGKILL)
    await condition(scene.hub, AVAILABLE, "True")


@pytest.mark.full
async def test_a_wrong_token_is_told_with_what_to_do(scene: Scene):
    scene.agent.point_to(scene.hub_lent.connection.endpoint, "wrong")

    await scene.agent.start()

    await scene.agent.says("the token is wrong or expired", "knfleet get token")
    scene.agent.point_to(scene.hub_lent.connection.endpoint, await bootstrap_token(scene.hub))
    await scene.accept()
    await condition(scene.hub, AVAILABLE, "True")
