"""Names of EKS clusters in AWS, and of the roles by which one cluster registers with another. Pure.

The names of roles are those of Open Cluster Management, so that roles made for it can be used.
"""

import hashlib
import re
from typing import Self

from msgspec import Struct

PATTERN = re.compile(
    r"arn:(aws(?:-[a-z]+)*):eks:([a-z0-9]+(?:-[a-z0-9]+)+):([0-9]{12})"
    r":cluster/([0-9A-Za-z][0-9A-Za-z_-]{0,99})"
)
LONGEST_ARN = 256


class ArnProblem(ValueError):
    """Why a text is not the ARN of an EKS cluster."""


class EksArn(Struct, frozen=True):
    """An EKS cluster."""

    partition: str
    region: str
    account: str
    name: str

    @classmethod
    def of(cls, text: str) -> Self:
        """The cluster that an ARN names; raises `ArnProblem`."""
        found = PATTERN.fullmatch(text) if len(text) <= LONGEST_ARN else None
        if found is None:
            raise ArnProblem(
                f"{text[:LONGEST_ARN]!r} is not the ARN of an EKS cluster;"
                " write it as arn:aws:eks:us-west-2:123456789012:cluster/name"
            )
        return cls(*found.groups())

    def __str__(self) -> str:
        return f"arn:{self.partition}:eks:{self.region}:{self.account}:cluster/{self.name}"

    def role(self, name: str) -> str:
        """The ARN of a role in the account of the cluster."""
        return f"arn:{self.partition}:iam::{self.account}:role/{name}"


class RegistrationRoles(Struct, frozen=True):
    """The roles by which a managed cluster reaches its hub."""

    hub: EksArn
    managed: EksArn

    @property
    def suffix(self) -> str:
        """What the names of both roles end with."""
        parts = (self.hub.account, self.hub.name, self.managed.account, self.managed.name)
        return hashlib.md5("#".join(parts).encode(), usedforsecurity=False).hexdigest()

    @property
    def hub_role(self) -> str:
        """The name of the role that the hub makes in its account."""
        return f"ocm-hub-{self.suffix}"

    @property
    def hub_role_arn(self) -> str:
        return self.hub.role(self.hub_role)

    @property
    def managed_role_arn(self) -> str:
        """The role of the agent, in the account of the managed cluster."""
        return self.managed.role(f"ocm-managed-cluster-{self.suffix}")
