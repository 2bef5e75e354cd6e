"""Which clusters get a role in AWS, and which lose it."""

from typing import Any

import pytest

from knfleet.api.aws_registration import (
    AWS_ACCESS,
    MANAGED_ARN,
    ROLE_SUFFIX,
    HubAwsIrsa,
    is_approved,
    pattern_problem,
    tags_of,
)
from knfleet.api.cluster.managedcluster import AUTO_ACCEPTED, ManagedCluster, ManagedClusterSpec
from knfleet.api.schema import ObjectMeta
from knfleet.aws.eks_arns import EksArn, RegistrationRoles
from knfleet.hub.registration.drivers.aws_role_rules import (
    RoleDecision,
    decide_role,
    record_of,
    recorded_roles,
)

HUB = "arn:aws:eks:us-west-2:123456789012:cluster/hub"
SPOKE = "arn:aws:eks:us-west-2:111122223333:cluster/spoke"
OTHER = "arn:aws:eks:us-west-2:444455556666:cluster/other"
ROLES = RegistrationRoles(EksArn.of(HUB), EksArn.of(SPOKE))
DRIVER = HubAwsIrsa(hub_cluster_arn=HUB, auto_approved_identities=[r"arn:.*:111122223333:.*"])


def asked(annotations: dict[str, str] | None = None, *, accepted: bool = False) -> ManagedCluster:
    """A cluster that asks to register by a role."""
    own = {MANAGED_ARN: SPOKE, ROLE_SUFFIX: ROLES.suffix}
    every = {name: text for name, text in (own | (annotations or {})).items() if text}
    return ManagedCluster(
        metadata=ObjectMeta(name="c1", annotations=every),
        spec=ManagedClusterSpec(hub_accepts_client=accepted),
    )


def decided(cluster: ManagedCluster, driver: HubAwsIrsa | None = DRIVER, **given: Any) -> str:
    """The decision about a cluster, as one word."""
    return decide_role(cluster, driver, **({"auto_approves": False} | given)).wish


def test_an_accepted_cluster_gets_a_role_and_no_other_does():
    assert decided(asked()) == "nothing"
    assert decide_role(asked(accepted=True), DRIVER, auto_approves=False) == RoleDecision(
        "grant", ROLES
    )
    assert decided(asked({MANAGED_ARN: ""}, accepted=True)) == "nothing"
    assert decided(asked(accepted=True), None) == "nothing"


def test_what_was_granted_is_withdrawn_whatever_the_configuration_and_the_agent_say():
    recorded = {AWS_ACCESS: record_of(ROLES)}

    assert decided(asked(recorded)) == "withdraw"
    assert decided(asked(recorded), None) == "withdraw"
    lied = decide_role(asked(recorded | {MANAGED_ARN: OTHER}), DRIVER, auto_approves=True)
    assert lied == RoleDecision("withdraw", ROLES)


def test_a_cluster_that_shows_another_arn_later_gets_nothing_for_it():
    other = RegistrationRoles(EksArn.of(HUB), EksArn.of(OTHER))
    changed = {
        AWS_ACCESS: record_of(ROLES),
        MANAGED_ARN: OTHER,
        ROLE_SUFFIX: other.suffix,
    }

    found = decide_role(asked(changed, accepted=True), DRIVER, auto_approves=True)

    assert found.wish == "refuse"
    assert "accept the cluster again" in found.problem


@pytest.mark.parametrize(
    ("annotations", "driver", "words"),
    [
        ({MANAGED_ARN: "x"}, DRIVER, "is not the ARN of an EKS cluster"),
        ({MANAGED_ARN: HUB}, DRIVER, "names the hub itself"),
        ({ROLE_SUFFIX: "0" * 32}, DRIVER, "another --hub-cluster-arn than"),
        ({ROLE_SUFFIX: ""}, DRIVER, f"is not {ROLES.suffix}"),
        ({}, HubAwsIrsa(), "awsirsa.hubClusterArn"),
    ],
)
def test_what_cannot_be_is_refused_with_the_cause(
    annotations: dict[str, str], driver: HubAwsIrsa, words: str
):
    found = decide_role(asked(annotations, accepted=True), driver, auto_approves=True)

    assert found.wish == "refuse"
    assert words in found.problem


def test_a_cluster_is_accepted_by_its_whole_arn_once():
    assert decided(asked(), auto_approves=True) == "accept"
    assert decided(asked()) == "nothing"
    assert decided(asked({AUTO_ACCEPTED: "2026-01-01T00:00:00Z"}), auto_approves=True) == "nothing"
    part = HubAwsIrsa(hub_cluster_arn=HUB, auto_approved_identities=["111122223333", "(", OTHER])
    assert decided(asked(), part, auto_approves=True) == "nothing"


def test_patterns_and_tags_are_checked():
    assert is_approved(SPOKE, [r"arn:aws:eks:us-west-2:\d{12}:cluster/spoke"])
    assert not is_approved(SPOKE + "x", [SPOKE])
    assert "no regular expression" in pattern_problem("(")
    assert pattern_problem("a" * 600)
    assert tags_of(["a=b", "c="]) == {"a": "b", "c": ""}
    for wrong in ("a", "=b", "aws:x=1", "knfleet.dev/hub=1", "a=" + "b" * 300, "a=<"):
        with pytest.raises(ValueError, match="tag"):
            tags_of([wrong])


def test_a_record_that_is_damaged_is_none():
    assert recorded_roles(asked({AWS_ACCESS: "x y"})) is None
    assert recorded_roles(asked({AWS_ACCESS: record_of(ROLES)})) == ROLES
