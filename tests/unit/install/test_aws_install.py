"""What `init` and `join` install for clusters that register by AWS roles."""

from knfleet.api.aws_registration import HubAwsIrsa
from knfleet.api.operator import ClusterManager, Klusterlet
from knfleet.api.schema import decode
from knfleet.aws.eks_arns import EksArn, RegistrationRoles
from knfleet.install.agent_manifests import AgentInstall, home_objects
from knfleet.install.deployments import HubInstall, cluster_manager

HUB = "arn:aws:eks:us-west-2:123456789012:cluster/hub"
SPOKE = "arn:aws:eks:eu-west-1:111122223333:cluster/spoke"
ROLES = RegistrationRoles(EksArn.of(HUB), EksArn.of(SPOKE))


def test_the_agent_has_the_role_that_the_hub_trusts_and_knows_both_clusters():
    plan = AgentInstall(cluster="c1", bootstrap=b"", image="i", auth_type="awsirsa", roles=ROLES)

    *objects, klusterlet, deployment = home_objects(plan)

    (account,) = (
        each
        for each in objects
        if each["kind"] == "ServiceAccount" and each["metadata"]["name"] == plan.workload
    )
    role = account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
    assert role == ROLES.managed_role_arn
    registration = decode(klusterlet, Klusterlet).spec.registration_configuration
    assert registration.registration_driver.auth_type == "awsirsa"
    irsa = registration.registration_driver.aws_irsa
    assert (irsa.hub_cluster_arn, irsa.managed_cluster_arn) == (HUB, SPOKE)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    wanted = {
        "--registration-auth=awsirsa",
        f"--hub-cluster-arn={HUB}",
        f"--managed-cluster-arn={SPOKE}",
    }
    assert wanted <= set(container["args"])


def test_the_hub_is_told_its_arn_its_tags_and_whom_it_accepts():
    irsa = HubAwsIrsa(hub_cluster_arn=HUB, auto_approved_identities=["a.*"], tags=["team=x"])
    plan = HubInstall(image="i", aws=irsa, has_csr=False)

    manager = decode(cluster_manager(plan), ClusterManager)

    drivers = manager.spec.registration_configuration.registration_drivers
    assert [each.auth_type for each in drivers] == ["awsirsa"]
    assert manager.aws_irsa == irsa
