"""Roles and access entries, made and removed at moto's IAM: whatever happens in between."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from knfleet.aws.access_grants import AccessGrant, AccessGrants, GrantConflict
from knfleet.aws.aws_client import ATTEMPTS, AwsAnswer, AwsCall, AwsClient
from knfleet.aws.aws_errors import AwsError
from knfleet.aws.aws_identity import ProcessIdentity, RoleIdentity
from knfleet.aws.eks_arns import EksArn, RegistrationRoles
from knfleet.aws.signature import UnsignedRequest
from testbed.fakes.aws import AwsFault, FakeAws, fake_aws

ROLES = RegistrationRoles(
    EksArn.of("arn:aws:eks:us-west-2:123456789012:cluster/hub"),
    EksArn.of("arn:aws:eks:eu-west-1:111122223333:cluster/spoke"),
)
GRANT = AccessGrant(ROLES, "uid-of-hub", "c1", "open-cluster-management:c1", {"team": "fleet"})
OTHER_HUB = replace(GRANT, hub_uid="uid-of-another")


class Killed(Exception):
    """The process ended."""


class MortalClient(AwsClient):
    """Ends after so many calls, of which the last was made and its answer never read."""

    left = 1000

    async def send(self, call: AwsCall, request: UnsignedRequest) -> AwsAnswer:
        answer = await super().send(call, request)
        self.left -= 1
        if self.left < 0:
            raise Killed
        return answer


async def at_once(_seconds: float) -> None:
    """No test waits."""


@pytest.fixture
async def aws() -> AsyncIterator[FakeAws]:
    """AWS with one EKS cluster."""
    async with fake_aws("hub") as made:
        yield made


def grants(aws: FakeAws, *, calls: int = 1000) -> AccessGrants:
    """Grants of a process that makes at most so many calls."""
    client = MortalClient(aws.environment, at_once)
    client.left = calls
    return AccessGrants(client, ProcessIdentity(client))


async def test_a_role_and_an_entry_are_made_once_and_removed(aws: FakeAws):
    await grants(aws).ensure(GRANT)

    assert aws.entries[ROLES.hub_role_arn]["username"] == "c1"
    assert aws.entries[ROLES.hub_role_arn]["kubernetesGroups"] == ["open-cluster-management:c1"]
    assert GRANT.trust_policy["Statement"][0]["Principal"] == {"AWS": ROLES.managed_role_arn}
    assert aws.entries[ROLES.hub_role_arn]["tags"] == GRANT.all_tags
    aws.calls.clear()
    await grants(aws).ensure(GRANT)
    assert aws.calls == ["iam:GetRole", "iam:ListRoleTags", "eks:GET"]

    await grants(aws).remove(GRANT)

    assert (aws.roles(), aws.entries) == ({}, {})
    await grants(aws).remove(GRANT)


async def test_a_kill_at_any_call_is_made_good_by_the_next_run(aws: FakeAws):
    """Nothing is doubled and nothing is left behind, wherever the process ended."""
    for calls in range(4):
        aws.reset()
        with pytest.raises(Killed):
            await grants(aws, calls=calls).ensure(GRANT)
        await grants(aws).ensure(GRANT)
        assert list(aws.roles()) == [ROLES.hub_role]
        assert list(aws.entries) == [ROLES.hub_role_arn]
        with pytest.raises(Killed):
            await grants(aws, calls=calls).remove(GRANT)
        await grants(aws).remove(GRANT)
        assert (aws.roles(), aws.entries) == ({}, {})


async def test_what_another_hub_made_is_neither_used_nor_removed(aws: FakeAws):
    await grants(aws).ensure(OTHER_HUB)
    entry = dict(aws.entries[ROLES.hub_role_arn])

    with pytest.raises(GrantConflict, match=r"role/ocm-hub-.*not made by this hub.*uid-of-hub"):
        await grants(aws).ensure(GRANT)
    with pytest.raises(GrantConflict, match="access entry"):
        await grants(aws).remove(GRANT)

    assert aws.entries == {ROLES.hub_role_arn: entry}
    del aws.entries[ROLES.hub_role_arn]
    with pytest.raises(GrantConflict, match="role/ocm-hub-"):
        await grants(aws).remove(GRANT)
    assert list(aws.roles()) == [ROLES.hub_role]


async def test_what_another_tool_changed_is_put_right(aws: FakeAws):
    await grants(aws).ensure(GRANT)
    aws.entries[ROLES.hub_role_arn]["kubernetesGroups"] = ["system-masters"]
    aws.roles()[ROLES.hub_role].assume_role_policy_document = '{"Version": "2012-10-17"}'

    await grants(aws).ensure(GRANT)

    assert aws.entries[ROLES.hub_role_arn]["kubernetesGroups"] == [GRANT.group]
    assert ROLES.managed_role_arn in aws.roles()[ROLES.hub_role].assume_role_policy_document


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (AwsFault(400, "Throttling"), ATTEMPTS),
        (AwsFault(503, "ServiceUnavailable"), ATTEMPTS),
        (AwsFault(403, "AccessDenied"), 1),
    ],
)
async def test_calls_are_repeated_when_aws_is_busy_and_only_then(
    aws: FakeAws, fault: AwsFault, tries: int
):
    aws.fault = lambda action: fault if action == "iam:CreateRole" else None

    with pytest.raises(AwsError) as raised:
        await grants(aws).ensure(GRANT)

    assert aws.calls.count("iam:CreateRole") == tries
    text = str(raised.value)
    assert text.startswith(f"IAM CreateRole of role {ROLES.hub_role_arn}: {fault.code}: by a test")
    if tries == 1:
        assert "permit the call in IAM, as docs/aws.md lists it" in text
    aws.fault = lambda _: None
    await grants(aws).ensure(GRANT)


async def test_an_error_about_a_signature_does_not_repeat_the_request(aws: FakeAws):
    """AWS sends back what was to be signed, and there are session tokens in that."""
    fault = AwsFault(403, "SignatureDoesNotMatch", "x-amz-security-token:SECRET")
    aws.fault = lambda _: fault

    with pytest.raises(AwsError) as raised:
        await grants(aws).ensure(GRANT)

    assert "SECRET" not in str(raised.value)
    assert "the clock is off" in str(raised.value)


async def test_an_answer_that_is_too_large_or_not_of_aws_is_refused(aws: FakeAws):
    aws.fault = lambda _: AwsFault(200, "x", "y" * 2_000_000)
    with pytest.raises(AwsError, match="more than 1048576 bytes"):
        await grants(aws).ensure(GRANT)

    aws.fault = lambda _: AwsFault(200, '<!DOCTYPE a [<!ENTITY b "c">]>')
    with pytest.raises(AwsError, match="declarations"):
        await grants(aws).ensure(GRANT)


async def test_a_process_gets_keys_by_its_web_identity_and_assumes_a_role(
    aws: FakeAws, tmp_path_factory: pytest.TempPathFactory
):
    """As on EKS with IRSA: a token file, and roles of two accounts."""
    file = tmp_path_factory.mktemp("irsa") / "token"
    environment = {
        "AWS_ENDPOINT_URL": aws.address,
        "AWS_ROLE_ARN": ROLES.managed_role_arn,
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(file),
    }
    client = AwsClient(environment, at_once)
    base = ProcessIdentity(client, "us-west-2")
    identity = RoleIdentity(client, ROLES.hub_role_arn, "us-west-2", base)
    with pytest.raises(AwsError, match=r"token: it cannot be read: No such file"):
        await identity.keys()
    file.write_text("a.web.token\n")

    keys = await identity.keys()

    assert keys.session_token
    assert await identity.keys() is keys
    assert aws.calls == ["sts:AssumeRoleWithWebIdentity", "sts:AssumeRole"]


async def test_without_an_identity_the_next_step_is_named():
    client = AwsClient({}, at_once)

    with pytest.raises(AwsError, match=r"annotate the ServiceAccount with eks\.amazonaws\.com"):
        await ProcessIdentity(client).keys()


async def test_signed_requests_do_not_leave_unencrypted():
    environment = {
        "AWS_ENDPOINT_URL": "http://aws.example",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    client = AwsClient(environment, at_once)

    with pytest.raises(AwsError, match="is not encrypted"):
        await AccessGrants(client, ProcessIdentity(client)).ensure(GRANT)
