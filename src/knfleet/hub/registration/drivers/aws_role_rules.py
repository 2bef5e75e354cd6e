"""What a cluster is to have in AWS, by its annotations and those of the hub. Pure."""

from typing import Literal

from msgspec import Struct

from knfleet.api.aws_registration import (
    AWS_ACCESS,
    MANAGED_ARN,
    ROLE_SUFFIX,
    HubAwsIrsa,
    is_approved,
)
from knfleet.api.cluster.managedcluster import AUTO_ACCEPTED, ManagedCluster
from knfleet.aws.eks_arns import ArnProblem, EksArn, RegistrationRoles

Wish = Literal["nothing", "grant", "withdraw", "accept", "refuse"]


class RoleDecision(Struct, frozen=True):
    """What to do about a cluster's access by a role."""

    wish: Wish
    roles: RegistrationRoles | None = None
    problem: str = ""
    """With refuse: what is wrong, and what to do."""


def decide_role(
    cluster: ManagedCluster, driver: HubAwsIrsa | None, *, auto_approves: bool
) -> RoleDecision:
    """What to do about a cluster.

    What was granted is withdrawn whatever the configuration says by now. A cluster that shows
    another ARN than it was accepted with gets nothing new: that takes a person.
    """
    recorded = recorded_roles(cluster)
    if recorded is not None and not cluster.spec.hub_accepts_client:
        return RoleDecision("withdraw", recorded)
    text = cluster.metadata.annotations.get(MANAGED_ARN, "")
    if driver is None or not text or cluster.metadata.deleting:
        return RoleDecision("nothing")
    roles = wanted_roles(cluster, text, driver)
    if isinstance(roles, str):
        return RoleDecision("refuse", problem=roles)
    return decide_wanted(
        cluster,
        recorded,
        roles,
        is_approved(text, driver.auto_approved_identities) and auto_approves,
    )


def decide_wanted(
    cluster: ManagedCluster,
    recorded: RegistrationRoles | None,
    roles: RegistrationRoles,
    is_auto_approved: bool,
) -> RoleDecision:
    """What to do about a cluster whose identity is in order."""
    if recorded is not None and recorded != roles:
        return RoleDecision(
            "refuse",
            problem=(
                f"access was granted to {recorded.managed} at hub {recorded.hub}, and now"
                f" {roles.managed} at hub {roles.hub} is asked for; if that is right, set"
                " hubAcceptsClient to false, and accept the cluster again"
            ),
        )
    if cluster.spec.hub_accepts_client:
        return RoleDecision("grant", roles)
    if is_auto_approved and AUTO_ACCEPTED not in cluster.metadata.annotations:
        return RoleDecision("accept", roles)
    return RoleDecision("nothing", roles)


def wanted_roles(cluster: ManagedCluster, text: str, driver: HubAwsIrsa) -> RegistrationRoles | str:
    """The roles of a cluster, or why there can be none."""
    try:
        hub = EksArn.of(driver.hub_cluster_arn)
    except ArnProblem as error:
        return (
            f"spec.registrationConfiguration.registrationDrivers of the ClusterManager has no"
            f" awsirsa.hubClusterArn that can be used: {error}"
        )
    try:
        roles = RegistrationRoles(hub, EksArn.of(text))
    except ArnProblem as error:
        return f"annotation {MANAGED_ARN}: {error}; join the cluster again"
    if roles.managed == hub:
        return f"annotation {MANAGED_ARN} names the hub itself; join the cluster again"
    if cluster.metadata.annotations.get(ROLE_SUFFIX, "") != roles.suffix:
        return (
            f"annotation {ROLE_SUFFIX} is not {roles.suffix}: the cluster was joined with another"
            f" --hub-cluster-arn than {hub}; join it again"
        )
    return roles


def recorded_roles(cluster: ManagedCluster) -> RegistrationRoles | None:
    """The roles for which there may be something in AWS."""
    hub, _, managed = cluster.metadata.annotations.get(AWS_ACCESS, "").partition(" ")
    try:
        return RegistrationRoles(EksArn.of(hub), EksArn.of(managed))
    except ArnProblem:
        return None


def record_of(roles: RegistrationRoles) -> str:
    """What the hub writes on a cluster before it makes a role."""
    return f"{roles.hub} {roles.managed}"
