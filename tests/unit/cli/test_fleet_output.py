"""What the commands of a fleet print and install, without a cluster."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.api.meta import Key, Object
from knfleet.api.schema import decode
from knfleet.cli.fleet.get import age, row
from knfleet.cli.main import knfleet
from knfleet.hub.registration.drivers.csr_rules import AgentCertificateRequest
from knfleet.install.agent_manifests import (
    ADDON_ROLE,
    WORK_ROLE,
    AgentInstall,
    home_objects,
    managed_objects,
)
from knfleet.install.deployments import (
    HubInstall,
    PodProfile,
    cluster_manager,
    hub_deployment,
    image_of,
)
from knfleet.kube.yaml import load_all
from knfleet.workflows.accept_clusters import AcceptOptions, NotAcceptable, PendingCluster, choose
from knfleet.workflows.diagnosis import DiagnosisInput, diagnose
from knfleet.workflows.join_token import JoinToken

NOW = datetime(2030, 1, 1, tzinfo=UTC)
PLAN = AgentInstall(cluster="c1", bootstrap=b"kubeconfig", image="x/knfleet:1")

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: hub
clusters: [{name: hub, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: abc}}]
contexts: [{name: hub, context: {cluster: hub, user: me}}]
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """A kubeconfig of a cluster that is not there."""
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return str(path)


def rules_of(objects: list[Object], *kinds: str) -> list[Object]:
    """All rules of roles."""
    return [rule for each in objects if each["kind"] in kinds for rule in each["rules"]]


def test_the_join_command_is_that_of_the_document():
    invitation = JoinToken("https://hub:6443", "abc", "sha256:00")

    assert invitation.command() == (
        "knfleet join --hub-token abc --hub-apiserver https://hub:6443 --wait"
        " --cluster-name <cluster_name> --hub-ca-hash sha256:00"
    )
    assert set(invitation.fields()) >= {"hub-token", "hub-apiserver", "join-command"}
    assert "abc" not in repr(invitation)


def test_init_prints_what_it_would_apply_without_a_cluster(kubeconfig: str):
    flags = ["--dry-run", "--kubeconfig", kubeconfig, "--bundle-version", "1.2.3"]
    flags += ["--resource-qos-class", "ResourceRequirement", "--resource-limits", "cpu=1"]
    printed = CliRunner().invoke(knfleet, ["init", *flags])

    assert printed.exit_code == 0, printed.output
    objects = load_all(printed.stdout)
    manager = next(each for each in objects if each["kind"] == "ClusterManager")
    assert manager["spec"]["resourceRequirement"] == {
        "type": "ResourceRequirement",
        "resourceRequirements": {"limits": {"cpu": "1"}},
    }
    deployment = next(each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith("knfleet:v1.2.3")
    assert container["resources"] == {"limits": {"cpu": "1"}}


def test_what_init_and_join_apply_can_be_printed_for_kubectl(kubeconfig: str):
    flags = ["--dry-run", "--kubeconfig", kubeconfig]
    applied = load_all(CliRunner().invoke(knfleet, ["init", *flags]).stdout)
    hub = load_all(CliRunner().invoke(knfleet, ["manifests", "--for", "hub"]).stdout)
    asked = ["manifests", "--for", "spoke", "--cluster-name", "c1", "--image", PLAN.image]
    spoke = load_all(CliRunner().invoke(knfleet, asked).stdout)

    of_the_address = ("cluster-info", "knfleet:cluster-info")
    assert hub == [each for each in applied if each["metadata"]["name"] not in of_the_address]
    assert spoke == [each for each in home_objects(PLAN) if each["kind"] != "Secret"]


def test_features_of_the_agent_reach_its_pod_and_the_klusterlet():
    plan = replace(PLAN, feature_gates=(("ClusterProperty", True), ("ClusterClaim", False)))
    *_, klusterlet, deployment = home_objects(plan)

    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--feature-gates=ClusterProperty=true,ClusterClaim=false" in container["args"]
    assert klusterlet["spec"]["registrationConfiguration"]["featureGates"] == [
        {"feature": "ClusterProperty", "mode": "Enable"},
        {"feature": "ClusterClaim", "mode": "Disable"},
    ]


def test_how_add_ons_reach_the_hub_is_said_by_the_klusterlet():
    plan = replace(PLAN, addon_tokens=True, addon_token_seconds=3600)
    *_, klusterlet, _ = home_objects(plan)

    registration = klusterlet["spec"]["registrationConfiguration"]
    assert registration["addOnKubeClientRegistrationDriver"] == {
        "authType": "token",
        "token": {"expirationSeconds": 3600},
    }


ARN = "arn:aws:eks:us-west-2:123456789012:cluster/hub"
AWS_INIT = ("init", "--registration-drivers", "csr,awsirsa")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init", "--registration-drivers", "csr,awsirsa"], "needs --hub-cluster-arn"),
        (["init", "--registration-drivers", "grpc"], "csr or awsirsa must be one"),
        (["init", "--registration-drivers", "carrier-pigeon"], "no such driver"),
        (["init", "--grpc-server", "x"], "need --registration-drivers csr,grpc"),
        (
            [
                *("init", "--registration-drivers", "csr,grpc"),
                *("--grpc-endpoint-type", "hostname"),
            ],
            "needs --grpc-server",
        ),
        (["init", "--auto-approved-grpc-identities", "me"], "ManagedClusterAutoApproval=true"),
        (["init", "--hub-cluster-arn", "x"], "need --registration-drivers awsirsa"),
        ([*AWS_INIT, "--hub-cluster-arn", "x"], "is not the ARN of an EKS cluster"),
        ([*AWS_INIT, "--hub-cluster-arn", ARN, "--aws-resource-tags", "x"], "as name=value"),
        (
            [*AWS_INIT, "--hub-cluster-arn", ARN, "--auto-approved-arn-patterns", "a"],
            "--auto-approved-arn-patterns needs --feature-gates",
        ),
        (
            [
                *(*AWS_INIT, "--hub-cluster-arn", ARN, "--auto-approved-arn-patterns", "("),
                *("--feature-gates", "ManagedClusterAutoApproval=true"),
            ],
            "no regular expression",
        ),
        (["init", "--enable-sync-labels"], "labels are not copied"),
        (["init", "--bundle-version-overrides", "x"], "there is one image"),
        (["agent", "--spoke-cluster-name", "c1", "--feature-gates", "X"], "write it as X=true"),
        (["init", "--auto-approved-csr-identities", "me"], "ManagedClusterAutoApproval=true"),
        (["init", "--feature-gates", "X"], "write it as X=true"),
        (["init", "--resource-limits", "cpu=1"], "need --resource-qos-class ResourceRequirement"),
        (["accept"], "--clusters is missing"),
        (["agent", "--spoke-cluster-name", "C1"], "a-z, 0-9 and -"),
        (["agent"], "--spoke-cluster-name is missing"),
        (
            ["agent", "--spoke-cluster-name", "c1", "--registration-auth", "awsirsa"],
            "needs --hub-cluster-arn and --managed-cluster-arn",
        ),
        (
            ["agent", "--spoke-cluster-name", "c1", "--hub-cluster-arn", ARN],
            "need --registration-auth awsirsa",
        ),
        (
            [
                *("agent", "--spoke-cluster-name", "c1", "--registration-auth", "awsirsa"),
                *("--hub-cluster-arn", ARN, "--managed-cluster-arn", ARN),
            ],
            "is the hub itself",
        ),
        (
            ["agent", "--spoke-cluster-name", "c1", "--registration-auth", "carrier-pigeon"],
            "not supported",
        ),
        (
            ["agent", "--spoke-cluster-name", "c1", "--client-cert-expiration-seconds", "60"],
            "at least 3600",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    arguments: list[str], words: str, kubeconfig: str
):
    refused = CliRunner().invoke(knfleet, [*arguments, "--kubeconfig", kubeconfig])

    assert refused.exit_code == 2, refused.output
    assert words in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("quality", "resources"),
    [
        (PodProfile("BestEffort"), {}),
        (PodProfile("ResourceRequirement", {"cpu": "1"}), {"limits": {"cpu": "1"}}),
    ],
)
def test_quality_of_service_reaches_the_pods(quality: PodProfile, resources: Object):
    deployment = hub_deployment(HubInstall("x/knfleet:1", quality=quality))

    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == resources
    manager = cluster_manager(HubInstall("x/knfleet:1", quality=quality))
    assert manager["spec"]["resourceRequirement"]["type"] == quality.qos


def test_images_are_named_by_registry_and_release():
    assert image_of("r/", "latest") == "r/knfleet:latest"
    assert image_of("r", "v1.0.0") == "r/knfleet:v1.0.0"


def test_the_agent_may_do_what_it_does_and_no_more():
    objects = home_objects(PLAN)
    roles = [
        each
        for each in objects
        if each["metadata"]["name"].startswith("knfleet:agent")
        # Works carry objects of any kind, add-ons have Secrets: these are roles of their own.
        and each["metadata"]["name"] not in (WORK_ROLE, ADDON_ROLE)
    ]
    rules = rules_of(roles, "Role", "ClusterRole")

    assert not any("*" in each.get("resources", []) + each["verbs"] for each in rules)
    everywhere = rules_of(roles, "ClusterRole")
    assert not any("secrets" in each.get("resources", []) for each in everywhere)
    writes = {"create", "update", "patch", "delete"}
    written = {
        resource
        for each in everywhere
        if writes & set(each["verbs"])
        for resource in each["resources"]
    }
    assert written == {"klusterlets/status", "namespaces"}


def test_a_hosted_agent_leaves_no_pod_on_the_managed_cluster():
    plan = AgentInstall(
        cluster="c1",
        bootstrap=b"",
        image="x/knfleet:1",
        mode="Hosted",
        klusterlet="klusterlet-hosted-abc",
        namespace="klusterlet-hosted-abc",
        managed_kubeconfig=b"kubeconfig",
    )

    managed = managed_objects(plan)
    assert "Deployment" not in {each["kind"] for each in managed}
    deployment = home_objects(plan)[-1]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--spoke-kubeconfig=/spoke/config/kubeconfig" in container["args"]
    keys = {(each["kind"], Key.of(each)) for each in home_objects(plan)}
    assert ("Secret", Key("klusterlet-hosted-abc", "external-managed-kubeconfig")) in keys


def test_a_singleton_is_the_same_agent_under_another_name():
    plan = AgentInstall(cluster="c1", bootstrap=b"", image="x/knfleet:1", mode="Singleton")

    assert home_objects(plan)[-1]["metadata"]["name"] == "klusterlet-agent"
    assert home_objects(PLAN)[-1]["metadata"]["name"] == "klusterlet-registration-agent"


def cluster(**spec: Any) -> ManagedCluster:
    """A ManagedCluster."""
    meta = {"name": "c1", "creationTimestamp": "2029-12-31T23:55:00Z"}
    return decode({"metadata": meta, "spec": spec}, ManagedCluster)


def test_a_cluster_is_a_line_of_a_table():
    configs = [{"url": "https://c1:6443"}]
    line = row(cluster(hubAcceptsClient=True, managedClusterClientConfigs=configs), NOW)

    assert line == ["c1", "true", "https://c1:6443", "", "", "5m"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5s"), (119, "119s"), (300, "5m"), (7200, "2h"), (172800, "2d")]
)
def test_ages_are_written_as_kubectl_writes_them(seconds: int, text: str):
    made = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    assert age(made, NOW) == text


def pending(agent: str, user: str = "system:bootstrap:ocmhub") -> PendingCluster:
    """A request that waits."""
    from knfleet.agent.registration import client_certificate
    from knfleet.agent.registration.cluster_names import AgentNames
    from knfleet.agent.registration.drivers import csr

    names = AgentNames("c1", agent)
    pem = csr.request_pem(client_certificate.new_key(), names)
    manifest = csr.request_manifest(pem, names)
    manifest["metadata"]["name"] = f"c1-{agent}"
    return PendingCluster(manifest, AgentCertificateRequest("c1", agent, user))


@pytest.mark.parametrize("agents", [("one", "two"), ("one", "one")])
def test_a_person_must_choose_between_keys_that_ask_for_one_name(agents: tuple[str, str]):
    """Whatever agents they are said to be of: a name is easily said."""
    asked = [pending(each) for each in agents]

    with pytest.raises(NotAcceptable, match="several keys") as caught:
        choose(asked, "c1", AcceptOptions())
    assert all(each.fingerprint in str(caught.value) for each in asked)
    assert choose(asked, "c1", AcceptOptions(key=asked[1].fingerprint)) == [asked[1]]
    again = [asked[0], asked[0]]
    assert choose(again, "c1", AcceptOptions()) == again


def test_an_agent_may_be_chosen_by_its_name():
    asked = [pending("one"), pending("two")]

    assert choose(asked, "c1", AcceptOptions(agent="two")) == [asked[1]]
    with pytest.raises(NotAcceptable, match="several keys"):
        choose([*asked, pending("two")], "c1", AcceptOptions(agent="two"))


def test_a_key_that_nobody_asks_with_is_refused():
    asked = pending("one")

    with pytest.raises(NotAcceptable, match="none of the requests") as caught:
        choose([asked], "c1", AcceptOptions(key="sha256:00"))
    assert asked.fingerprint in str(caught.value)


def test_only_requests_of_those_who_may_ask_are_approved():
    stranger = pending("one", "system:serviceaccount:default:default")

    assert choose([stranger], "c1", AcceptOptions()) == []
    known = ("system:serviceaccount:default:default",)
    assert choose([stranger], "c1", AcceptOptions(requesters=known)) == [stranger]


def test_the_doctor_says_what_to_do():
    found = diagnose(DiagnosisInput("c1", cluster(), pending=1), NOW)

    lines = "\n".join(each.line() for each in found)
    assert "1 certificate requests wait" in lines
    assert "knfleet accept --clusters c1" in lines
    assert "there is no Lease" in lines
    assert "--spoke-context" in lines


def test_the_doctor_sees_a_silent_agent():
    seen = DiagnosisInput("c1", cluster(), renewed=NOW - timedelta(seconds=301))

    (heartbeat,) = [each for each in diagnose(seen, NOW) if each.what == "heartbeat"]
    assert heartbeat.grade == "bad"
    assert "renewed 301 s ago" in heartbeat.seen
