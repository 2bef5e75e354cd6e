"""Registration by AWS roles: its part of ClusterManager and Klusterlet, and its annotations."""

import re
from typing import Annotated

from msgspec import Struct

from knfleet.api.cluster.managedcluster import AGENT_ANNOTATIONS
from knfleet.api.schema import doc

MANAGED_ARN = f"{AGENT_ANNOTATIONS}managed-cluster-arn"
"""Annotation of a cluster: its ARN; the agent writes it."""
ROLE_SUFFIX = f"{AGENT_ANNOTATIONS}managed-cluster-iam-role-suffix"
"""Annotation of a cluster: what the names of its roles end with; the agent writes it."""
AWS_ACCESS = "knfleet.dev/aws-access"
"""Annotation of a cluster: the ARNs of hub and cluster for which there may be a role; the hub
writes it before it makes one, and removes it after the role."""
AWS_ROLE_ACCESS = "AWSRoleAccess"
"""Condition of a cluster: whether it has a role and an access entry."""

ARN_PATTERN = "^(arn:aws[a-z-]*:eks:[a-z0-9-]+:[0-9]{12}:cluster/[0-9A-Za-z][0-9A-Za-z_-]*)?$"
LONGEST_PATTERN = 512


class HubAwsIrsa(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Registration by AWS roles."""

    hub_cluster_arn: Annotated[
        str, doc("ARN of the hub's EKS cluster.", pattern=ARN_PATTERN, maxLength=256)
    ] = ""
    auto_approved_identities: Annotated[
        list[str],
        doc(
            "Regular expressions; clusters whose whole ARN matches one are accepted by the feature"
            " ManagedClusterAutoApproval."
        ),
    ] = []
    tags: Annotated[list[str], doc("Tags of what is made in AWS, as name=value.")] = []


class AgentAwsIrsa(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Registration by an AWS role."""

    hub_cluster_arn: Annotated[
        str, doc("ARN of the hub's EKS cluster.", pattern=ARN_PATTERN, maxLength=256)
    ] = ""
    managed_cluster_arn: Annotated[
        str, doc("ARN of this EKS cluster.", pattern=ARN_PATTERN, maxLength=256)
    ] = ""


def pattern_problem(text: str) -> str:
    """Why a text is no pattern for ARNs; empty when it is one."""
    if len(text) > LONGEST_PATTERN:
        return f"it has more than {LONGEST_PATTERN} characters"
    try:
        re.compile(text)
    except re.error as error:
        return f"it is no regular expression: {error}"
    return ""


def is_approved(arn: str, patterns: list[str]) -> bool:
    """Whether one of some patterns matches a whole ARN; those that are none match nothing."""
    return any(
        not pattern_problem(pattern) and re.fullmatch(pattern, arn) is not None
        for pattern in patterns
    )


def tags_of(texts: list[str]) -> dict[str, str]:
    """Tags as name=value; raises `ValueError`."""
    found: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        problem = tag_problem(name, value) if mark else "write it as name=value"
        if problem:
            raise ValueError(f"tag {text[:200]}: {problem}")
        found[name] = value
    return found


def tag_problem(name: str, value: str) -> str:
    """Why AWS would not take a tag; empty when it would."""
    if not name or len(name) > 128 or len(value) > 256:
        return "a name has 1 to 128 characters, a value at most 256"
    if name.lower().startswith("aws:") or name.startswith("knfleet.dev/"):
        return "the name is reserved"
    if not re.fullmatch(r"[\w .:/=+@-]*", name + value):
        return "there may be letters, digits, spaces, and any of _.:/=+@- in it"
    return ""
