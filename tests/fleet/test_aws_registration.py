"""Registration by AWS roles: API servers that ask an authenticator as those of EKS do, and moto."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from knfleet.api.aws_registration import AWS_ACCESS, AWS_ROLE_ACCESS, MANAGED_ARN, ROLE_SUFFIX
from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import AVAILABLE, CLUSTERS, DELETING, LEASE_NAME
from knfleet.api.conditions import find
from knfleet.api.core import CONFIG_MAPS, CRDS, LEASES, SECRETS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key, Object
from knfleet.api.operator import AGENT_NAMESPACE, CLUSTER_MANAGERS, HUB_SECRET, KLUSTERLETS
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.aws.aws_client import AwsClient
from knfleet.aws.eks_arns import EksArn, RegistrationRoles
from knfleet.hub.aws_account import HubAwsAccount
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed import hubs
from testbed.agent_process import (
    Agent,
    Scene,
    bootstrap_token,
    cluster_of,
    condition,
    hub_secret,
    prepare_spoke,
)
from testbed.clusters import Pool
from testbed.fakes.aws import AwsFault, FakeAws, fake_aws, serving
from testbed.fakes.eks_authenticator import EksAuthenticator
from testbed.waiting import until
from tests.support.commands import done
from tests.support.grpc_works import applied, whole_life, work

pytestmark = pytest.mark.xdist_group("aws")
HUB = "arn:aws:eks:us-west-2:123456789012:cluster/hub"
SPOKE = "arn:aws:eks:eu-west-1:111122223333:cluster/spoke"
ROLES = RegistrationRoles(EksArn.of(HUB), EksArn.of(SPOKE))


class AwsScene(Scene):
    """A hub that is an EKS cluster, and a spoke that is one in another account."""

    aws: FakeAws
    authenticator: EksAuthenticator

    async def start(self) -> None:
        """Start the agent."""
        arns = ("--hub-cluster-arn", HUB, "--managed-cluster-arn", SPOKE)
        await self.agent.start("--registration-auth", "awsirsa", *arns)

    async def accepts(self, *, accepted: bool) -> None:
        """Do what a person does who accepts or denies the cluster."""
        patch: Object = {"spec": {"hubAcceptsClient": accepted}}
        await self.hub.patch(CLUSTERS, Key("", "c1"), patch)

    async def asked(self) -> None:
        """Wait until the cluster asks to register."""

        async def is_there() -> bool:
            try:
                return (await cluster_of(self.hub)).name == "c1"
            except NotFound:
                return False

        await until(is_there, f"c1 asks to register: {self.agent.said()}")

    async def heartbeats(self) -> None:
        """Wait until the Lease was renewed some times."""
        renewals: set[str] = set()

        async def is_renewed() -> bool:
            renewals.add((await self.hub.get(LEASES, LEASE_NAME, "c1"))["spec"]["renewTime"])
            return len(renewals) > 3

        await until(is_renewed, "the Lease is renewed")

    async def reason(self, wanted: str) -> str:
        """Wait until the cluster's access in AWS has a reason; the message."""
        message = ""

        async def has_reason() -> bool:
            nonlocal message
            found = find((await cluster_of(self.hub)).status.conditions, AWS_ROLE_ACCESS)
            message = "" if found is None else found.message
            return found is not None and found.reason == wanted

        await until(has_reason, f"the access in AWS is {wanted}")
        return message


def manager(*patterns: str) -> Object:
    """A ClusterManager whose clusters register by roles."""
    driver = {"hubClusterArn": HUB, "autoApprovedIdentities": list(patterns), "tags": ["team=a"]}
    gates = [{"feature": "ManagedClusterAutoApproval", "mode": "Enable"}]
    registration = {
        "registrationDrivers": [{"authType": "csr"}, {"authType": "awsirsa", "awsirsa": driver}],
        "featureGates": gates,
    }
    return {
        "apiVersion": CLUSTER_MANAGERS.api_version,
        "kind": CLUSTER_MANAGERS.kind,
        "metadata": {"name": "cluster-manager"},
        "spec": {"registrationConfiguration": registration},
    }


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AwsScene]:
    """Everything that runs but the agent; the clusters ask the authenticator about tokens."""
    async with AsyncExitStack() as stack:
        aws = await stack.enter_async_context(fake_aws("hub"))
        authenticator = EksAuthenticator(aws, "us-west-2")
        webhook = await stack.enter_async_context(serving(authenticator.answer))
        pool = Pool(tmp_path / "dev")
        pool.ground.token_webhook = webhook
        stack.callback(pool.close)
        hub_lent, spoke_lent = await pool.lend(2)
        hub = await stack.enter_async_context(Client(hub_lent.connection))
        spoke = await stack.enter_async_context(Client(spoke_lent.connection))
        await hubs.install(hub_lent.connection)
        await hub.apply(CLUSTER_MANAGERS, manager())
        for each in spoke_definitions():
            await spoke.apply(CRDS, each)
            await hubs.established(spoke, each["metadata"]["name"])
        await prepare_spoke(spoke)
        identity = tmp_path / "web-identity-token"
        identity.write_text("a.web.token")
        monkeypatch.setenv("AWS_ENDPOINT_URL", aws.address)
        monkeypatch.setenv("AWS_ROLE_ARN", ROLES.managed_role_arn)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(identity))
        agent = Agent(spoke_lent, tmp_path, "c1")
        agent.point_to(hub_lent.connection.endpoint, await bootstrap_token(hub))
        account = HubAwsAccount(AwsClient(aws.environment))
        await stack.enter_async_context(hubs.running(hub_lent.connection, aws=account))
        made = AwsScene(hub, hub_lent, spoke, agent, AsyncExitStack(), aws, authenticator)
        try:
            yield made
        finally:
            await agent.end()
            print(agent.said()[-6000:], authenticator.refusals[-5:])


async def test_a_cluster_registers_by_its_role_and_loses_it(scene: AwsScene):
    """Without a certificate request: joined, accepted, denied, accepted again, deleted."""
    await scene.start()
    await scene.asked()
    annotations = (await cluster_of(scene.hub)).metadata.annotations
    assert (annotations[MANAGED_ARN], annotations[ROLE_SUFFIX]) == (SPOKE, ROLES.suffix)
    assert scene.aws.roles() == {}
    printed = await done(scene.hub_lent.kubeconfig, "accept", "--clusters", "c1")
    assert "joined the Hub successfully" in printed

    await condition(scene.hub, AVAILABLE, "True")
    assert ROLES.hub_role_arn in await scene.reason("AWSAccessGranted")
    entry = scene.aws.entries[ROLES.hub_role_arn]
    assert (entry["username"], entry["kubernetesGroups"]) == ("c1", ["open-cluster-management:c1"])
    assert entry["tags"]["team"] == "a"
    assert not (await scene.hub.list(CSRS)).items
    kept = await hub_secret(scene.spoke)
    assert {"tls.key", "tls.crt", "config.yaml"}.isdisjoint(kept)
    assert b"get-token" in kept["kubeconfig"]
    assert b"k8s-aws-v1" not in kept["kubeconfig"]
    await scene.hub.patch(CLUSTERS, Key("", "c1"), {"spec": {"leaseDurationSeconds": 1}})
    await scene.heartbeats()
    await whole_life(scene.hub, scene.spoke, "w1")

    await scene.accepts(accepted=False)
    await scene.reason("AWSAccessWithdrawn")
    assert (scene.aws.roles(), scene.aws.entries) == ({}, {})

    await scene.accepts(accepted=True)
    await scene.reason("AWSAccessGranted")
    await scene.heartbeats()

    await scene.hub.delete(CLUSTERS, Key("", "c1"))

    async def is_gone() -> bool:
        try:
            await cluster_of(scene.hub)
        except NotFound:
            return True
        return False

    await scene.agent.end()
    await until(is_gone, "c1 is gone")
    assert (scene.aws.roles(), scene.aws.entries) == ({}, {})
    said = scene.agent.said()
    assert "k8s-aws-v1" not in said
    assert "a.web.token" not in said


def klusterlet(auth_type: str) -> Object:
    """A Klusterlet that asks for a driver, with both ARNs for when it is awsirsa."""
    arns = {"hubClusterArn": HUB, "managedClusterArn": SPOKE}
    driver = {"authType": auth_type, **({"awsIrsa": arns} if auth_type == "awsirsa" else {})}
    return {
        "apiVersion": KLUSTERLETS.api_version,
        "kind": KLUSTERLETS.kind,
        "metadata": {"name": "klusterlet"},
        "spec": {"clusterName": "c1", "registrationConfiguration": {"registrationDriver": driver}},
    }


@pytest.mark.full
async def test_a_running_cluster_changes_to_a_role_and_back_and_keeps_its_works(
    scene: AwsScene, monkeypatch: pytest.MonkeyPatch
):
    """By the Klusterlet alone: nobody accepts it again, and no new token is needed."""
    monkeypatch.setenv("KNFLEET_KLUSTERLET", "klusterlet")
    await scene.spoke.apply(KLUSTERLETS, klusterlet("csr"))
    await scene.agent.start()
    await scene.accept()
    await condition(scene.hub, AVAILABLE, "True")
    await scene.hub.create(WORKS, work("w1"))
    await applied(scene.hub, scene.spoke, "w1")
    (owner,) = (await scene.spoke.list(APPLIED_WORKS)).items
    uid = (await scene.spoke.get(CONFIG_MAPS, "w1", "default"))["metadata"]["uid"]
    token = json.loads(scene.agent.bootstrap.read_bytes())["users"][0]["user"]["token"]
    gone = scene.agent.bootstrap.read_bytes().replace(token.encode(), b"expired")
    scene.agent.bootstrap.write_bytes(gone)

    for auth_type, data in (("awsirsa", "c"), ("csr", "d")):
        await scene.spoke.apply(KLUSTERLETS, klusterlet(auth_type))

        async def is_changed(wanted: str = auth_type) -> bool:
            kept = await hub_secret(scene.spoke)
            is_role = b"get-token" in kept["kubeconfig"] and "tls.crt" not in kept
            return is_role == (wanted == "awsirsa")

        await until(is_changed, f"the driver is {auth_type}: {scene.agent.said()[-3000:]}")
        await scene.hub.patch(WORKS, Key("c1", "w1"), {"spec": work("w1", data)["spec"]})
        await applied(scene.hub, scene.spoke, "w1", data)
        (kept,) = (await scene.spoke.list(APPLIED_WORKS)).items
        assert kept["metadata"]["uid"] == owner["metadata"]["uid"]
        assert "evictionStartTime" not in kept["status"]
        found = await scene.spoke.get(CONFIG_MAPS, "w1", "default")
        assert found["metadata"]["uid"] == uid
        assert await scene.reason("AWSAccessGranted")
    assert (await cluster_of(scene.hub)).spec.hub_accepts_client
    assert len((await scene.hub.list(CSRS)).items) == 2


@pytest.mark.full
async def test_an_agent_that_is_killed_goes_on_by_its_role(scene: AwsScene):
    await scene.hub.apply(CLUSTER_MANAGERS, manager("arn:aws:eks:.*:111122223333:cluster/spoke"))
    await scene.start()
    await scene.asked()
    await condition(scene.hub, AVAILABLE, "True")
    await scene.hub.patch(CLUSTERS, Key("", "c1"), {"spec": {"leaseDurationSeconds": 1}})
    await scene.heartbeats()
    await scene.agent.end()
    scene.agent.bootstrap.write_bytes(
        scene.agent.bootstrap.read_bytes().replace(b'"token":"', b'"token":"x')
    )

    await scene.start()

    await scene.heartbeats()
    await scene.spoke.delete(SECRETS, Key(AGENT_NAMESPACE, HUB_SECRET))

    async def is_back() -> bool:
        try:
            return b"get-token" in (await hub_secret(scene.spoke))["kubeconfig"]
        except NotFound:
            return False

    await until(is_back, "the Secret is there again")
    await scene.heartbeats()


@pytest.mark.full
async def test_what_aws_refuses_is_on_the_cluster_with_the_next_step(scene: AwsScene):
    """The cluster is not left half accepted: access comes when AWS permits it."""
    fault = AwsFault(403, "AccessDenied", "not authorized to perform: iam:CreateRole")
    scene.aws.fault = lambda action: fault if action == "iam:CreateRole" else None
    await scene.start()
    await scene.asked()
    await scene.accepts(accepted=True)

    message = await scene.reason("AWSCallFailed")

    assert f"IAM CreateRole of role {ROLES.hub_role_arn}: AccessDenied" in message
    assert "docs/aws.md" in message
    assert (await cluster_of(scene.hub)).metadata.annotations[AWS_ACCESS] == f"{HUB} {SPOKE}"
    scene.aws.fault = lambda _: None
    await condition(scene.hub, AVAILABLE, "True")

    scene.aws.fault = lambda action: fault if action == "iam:DeleteRole" else None
    await scene.hub.delete(CLUSTERS, Key("", "c1"))
    await scene.agent.end()
    assert "IAM DeleteRole" in await deleting(scene)
    assert scene.aws.entries == {}
    scene.aws.fault = lambda _: None

    async def is_gone() -> bool:
        try:
            await cluster_of(scene.hub)
        except NotFound:
            return True
        return False

    await until(is_gone, "c1 is gone")
    assert scene.aws.roles() == {}


async def deleting(scene: AwsScene) -> str:
    """Wait until the deletion says that AWS refused; the message."""
    message = ""

    async def is_refused() -> bool:
        nonlocal message
        found = find((await cluster_of(scene.hub)).status.conditions, DELETING)
        message = "" if found is None else found.message
        return "AccessDenied" in message

    await until(is_refused, "the deletion reports what AWS refuses")
    return message
