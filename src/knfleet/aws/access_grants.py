"""A role and an EKS access entry by which a managed cluster reaches its hub: made, and taken away.

Each step looks first, so a process that is killed between two goes on where it was. What does not
carry our tags is never changed.
"""

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from knfleet.aws.aws_client import AwsCall, AwsClient, KeySource, form, parse_xml, text_in
from knfleet.aws.aws_errors import AwsError
from knfleet.aws.eks_arns import RegistrationRoles
from knfleet.aws.signature import encoded

IAM_VERSION = "2010-05-08"
HUB_TAG, CLUSTER_TAG = "knfleet.dev/hub", "knfleet.dev/cluster"
JSON = "application/json"


class GrantConflict(AwsError):
    """Something of the same name was made by others, and stays as it is."""


class AccessGrant(Struct, frozen=True):
    """What a managed cluster gets in AWS."""

    roles: RegistrationRoles
    hub_uid: str
    """Tells this hub from others in the same account."""
    cluster: str
    group: str
    """The group that the role has on the hub."""
    tags: Mapping[str, str] = {}
    """Further tags, as configured."""

    @property
    def own_tags(self) -> dict[str, str]:
        """The tags by which we know what is ours."""
        return {HUB_TAG: self.hub_uid, CLUSTER_TAG: self.cluster}

    @property
    def all_tags(self) -> dict[str, str]:
        return {**self.tags, **self.own_tags}

    @property
    def trust_policy(self) -> dict[str, Any]:
        """Who may assume the role: the agent's role, if it is tagged for these two clusters."""
        hub, managed = self.roles.hub, self.roles.managed
        tags = {
            "hub_cluster_account_id": hub.account,
            "hub_cluster_name": hub.name,
            "managed_cluster_account_id": managed.account,
            "managed_cluster_name": managed.name,
        }
        return {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"AWS": self.roles.managed_role_arn},
                    "Action": "sts:AssumeRole",
                    "Condition": {
                        "StringEquals": {
                            f"aws:PrincipalTag/{name}": value for name, value in tags.items()
                        }
                    },
                }
            ],
        }


class AccessGrants:
    """Makes and removes grants, as an identity of the hub's account."""

    def __init__(self, client: AwsClient, source: KeySource) -> None:
        self.client = client
        self.source = source

    async def ensure(self, grant: AccessGrant) -> None:
        """Have the role and the access entry there."""
        await self.ensure_role(grant)
        await self.ensure_entry(grant)

    async def remove(self, grant: AccessGrant) -> None:
        """Remove the access entry and the role; the entry first, for it is what gives access."""
        entry = await self.entry(grant)
        if entry is not None:
            check_tags(
                grant, entry.get("tags") or {}, f"access entry of {grant.roles.hub_role_arn}"
            )
            await self.absent(
                self.eks(grant, "DeleteAccessEntry", "DELETE", self.entry_path(grant))
            )
        tags = await self.role_tags(grant)
        if tags is not None:
            check_tags(grant, tags, f"role {grant.roles.hub_role_arn}")
            await self.absent(self.iam(grant, "DeleteRole"))

    async def ensure_role(self, grant: AccessGrant) -> None:
        """Have the role there, with its trust policy."""
        policy = json.dumps(grant.trust_policy)
        root = await self.found(self.iam(grant, "GetRole"))
        if root is None:
            named = {
                f"Tags.member.{i}.{part}": text
                for i, pair in enumerate(grant.all_tags.items(), 1)
                for part, text in zip(("Key", "Value"), pair, strict=True)
            }
            text = f"for managed cluster {grant.cluster}, made by knfleet"
            call = self.iam(
                grant, "CreateRole", AssumeRolePolicyDocument=policy, Description=text, **named
            )
            if await self.created(call):
                return
            root = await self.found(self.iam(grant, "GetRole"))
        tags = await self.role_tags(grant)
        if root is None or tags is None:
            raise AwsError(
                f"IAM GetRole of role {grant.roles.hub_role_arn}", "", "it is gone again"
            )
        check_tags(grant, tags, f"role {grant.roles.hub_role_arn}")
        if policy_in(root) != grant.trust_policy:
            call = self.iam(grant, "UpdateAssumeRolePolicy", PolicyDocument=policy)
            await self.client.call(call, self.source)

    async def ensure_entry(self, grant: AccessGrant) -> None:
        """Have the access entry there, with the user and the group of the cluster."""
        wanted = {"kubernetesGroups": [grant.group], "username": grant.cluster}
        entry = await self.entry(grant)
        if entry is None:
            body = {
                **wanted,
                "principalArn": grant.roles.hub_role_arn,
                "type": "STANDARD",
                "tags": grant.all_tags,
            }
            path = self.entries_path(grant)
            call = self.eks(grant, "CreateAccessEntry", "POST", path, body)
            if await self.created(call):
                return
            entry = await self.entry(grant) or {}
        check_tags(grant, entry.get("tags") or {}, f"access entry of {grant.roles.hub_role_arn}")
        if {name: entry.get(name) for name in wanted} != wanted:
            path = self.entry_path(grant)
            call = self.eks(grant, "UpdateAccessEntry", "POST", path, wanted)
            await self.client.call(call, self.source)

    # Reads

    async def role_tags(self, grant: AccessGrant) -> dict[str, str] | None:
        """The tags of the role; None when there is no role."""
        root = await self.found(self.iam(grant, "ListRoleTags"))
        if root is None:
            return None
        members = [each for each in root.iter() if each.tag.rpartition("}")[2] == "member"]
        return {text_in(each, "Key"): text_in(each, "Value") for each in members}

    async def entry(self, grant: AccessGrant) -> dict[str, Any] | None:
        """The access entry; None when there is none."""
        call = self.eks(grant, "DescribeAccessEntry", "GET", self.entry_path(grant))
        try:
            body = await self.client.call(call, self.source)
        except AwsError as error:
            if error.is_absent:
                return None
            raise
        try:
            return msgspec.json.decode(body, type=dict[str, dict[str, Any]])["accessEntry"]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
            raise AwsError(call.title, "", "the answer has no access entry") from error

    async def found(self, call: AwsCall) -> ET.Element | None:
        """The answer of IAM about something; None when it is not there."""
        try:
            return parse_xml(call, await self.client.call(call, self.source))
        except AwsError as error:
            if error.is_absent:
                return None
            raise

    async def created(self, call: AwsCall) -> bool:
        """Make a call that creates; False when another process was faster."""
        try:
            await self.client.call(call, self.source)
        except AwsError as error:
            if not error.is_present:
                raise
            return False
        return True

    async def absent(self, call: AwsCall) -> None:
        """Make a call that deletes; that there is nothing to delete is fine."""
        try:
            await self.client.call(call, self.source)
        except AwsError as error:
            if not error.is_absent:
                raise

    # Calls

    def iam(self, grant: AccessGrant, action: str, **parameters: str) -> AwsCall:
        """A call of IAM about the role."""
        hub = grant.roles.hub
        return AwsCall(
            f"IAM {action} of role {grant.roles.hub_role_arn}",
            "iam",
            hub.region,
            hub.partition,
            body=form(action, IAM_VERSION, RoleName=grant.roles.hub_role, **parameters),
        )

    def eks(
        self,
        grant: AccessGrant,
        action: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
    ) -> AwsCall:
        """A call of EKS about the access entry."""
        hub = grant.roles.hub
        content = b"" if body is None else json.dumps(body).encode()
        title = f"EKS {action} on {hub} for role {grant.roles.hub_role_arn}"
        return AwsCall(title, "eks", hub.region, hub.partition, method, path, content, JSON)

    def entries_path(self, grant: AccessGrant) -> str:
        return f"/clusters/{encoded(grant.roles.hub.name)}/access-entries"

    def entry_path(self, grant: AccessGrant) -> str:
        return f"{self.entries_path(grant)}/{encoded(grant.roles.hub_role_arn)}"


def check_tags(grant: AccessGrant, tags: Mapping[str, str], what: str) -> None:
    """Refuse to touch what another made."""
    if {name: tags.get(name) for name in grant.own_tags} != grant.own_tags:
        named = ", ".join(f"{name}={value}" for name, value in grant.own_tags.items())
        raise GrantConflict(
            what,
            "",
            "it was not made by this hub for this cluster",
            remedy=f"delete it, or hand it over by the tags {named}",
        )


def policy_in(root: ET.Element) -> object:
    """The trust policy in an answer of IAM; None when there is none that can be read."""
    text = unquote(text_in(root, "AssumeRolePolicyDocument"))
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
