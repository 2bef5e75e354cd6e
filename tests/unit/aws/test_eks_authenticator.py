"""Tokens, as the authenticator of EKS sees them: what is not exactly right is refused."""

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from knfleet.aws.access_grants import AccessGrant, AccessGrants
from knfleet.aws.aws_client import AwsClient
from knfleet.aws.aws_identity import ProcessIdentity, RoleIdentity
from knfleet.aws.eks_arns import EksArn, RegistrationRoles
from knfleet.aws.eks_tokens import eks_token
from knfleet.aws.signature import AwsKeys
from testbed.fakes.aws import FakeAws, fake_aws
from testbed.fakes.eks_authenticator import EksAuthenticator

ROLES = RegistrationRoles(
    EksArn.of("arn:aws:eks:us-west-2:123456789012:cluster/hub"),
    EksArn.of("arn:aws:eks:eu-west-1:111122223333:cluster/spoke"),
)
GRANT = AccessGrant(ROLES, "uid", "c1", "open-cluster-management:c1")


@pytest.fixture
async def aws() -> AsyncIterator[FakeAws]:
    """AWS with one EKS cluster."""
    async with fake_aws("hub") as made:
        yield made


async def keys_of(aws: FakeAws) -> AwsKeys:
    """The keys of the role of a cluster."""
    client = AwsClient(aws.environment)
    process = ProcessIdentity(client)
    await AccessGrants(client, process).ensure(GRANT)
    return await RoleIdentity(client, ROLES.hub_role_arn, "us-west-2", process).keys()


def changed(token: str, old: str, new: str) -> str:
    """A token with something else in its URL."""
    text = token.removeprefix("k8s-aws-v1.")
    url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    assert old in url
    made = base64.urlsafe_b64encode(url.replace(old, new).encode()).decode().rstrip("=")
    return f"k8s-aws-v1.{made}"


async def test_a_token_is_the_user_of_the_access_entry_and_nothing_else(aws: FakeAws):
    authenticator = EksAuthenticator(aws, "us-west-2")
    keys, now = await keys_of(aws), datetime.now(UTC)
    token = eks_token(keys, "hub", "us-west-2", now)

    user = {"username": "c1", "groups": ["open-cluster-management:c1"]}
    assert await authenticator.user_of(token) == user
    assert await authenticator.user_of(eks_token(keys, "hub", "us-west-2", now)) == user
    forged = AwsKeys(keys.access_key, "guessed", keys.session_token)
    refused = [
        eks_token(keys, "another", "us-west-2", now),
        eks_token(keys, "hub", "eu-west-1", now),
        eks_token(forged, "hub", "us-west-2", now),
        eks_token(keys, "hub", "us-west-2", now - timedelta(minutes=16)),
        changed(token, "GetCallerIdentity", "AssumeRole"),
        changed(token, "sts.us-west-2.amazonaws.com", "sts.us-west-2.evil.example"),
        changed(token, "X-Amz-Expires=60", "X-Amz-Expires=900"),
    ]
    for each in refused:
        assert isinstance(await authenticator.user_of(each), str)
    aws.entries.clear()
    assert "no access entry" in str(await authenticator.user_of(token))
