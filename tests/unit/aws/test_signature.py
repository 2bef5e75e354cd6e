"""Signatures, compared with those of AWS's own library."""

import base64
import importlib
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.aws.eks_arns import ArnProblem, EksArn, RegistrationRoles
from knfleet.aws.eks_tokens import eks_token
from knfleet.aws.signature import (
    AwsKeys,
    SigningScope,
    UnsignedRequest,
    encoded,
    presigned_url,
    signed_headers,
)

KEYS = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "token/with+signs==")
AT = datetime(2026, 11, 18, 20, 0, 1, tzinfo=UTC)
# The library has no types.
auth: Any = importlib.import_module("botocore.auth")
requests: Any = importlib.import_module("botocore.awsrequest")
credentials: Any = importlib.import_module("botocore.credentials")
CREDENTIALS = credentials.Credentials(KEYS.access_key, KEYS.secret_key, KEYS.session_token)
HUB = EksArn.of("arn:aws:eks:us-west-2:123456789012:cluster/hub")
MANAGED = EksArn.of("arn:aws:eks:eu-west-1:111122223333:cluster/spoke")


def by_library(method: str, url: str, body: bytes, service: str, region: str) -> str:
    """The header of the library."""
    request = requests.AWSRequest(method, url, {"Content-Type": "x/y"}, body)
    request.context["timestamp"] = f"{AT:%Y%m%dT%H%M%SZ}"
    request.headers["X-Amz-Date"] = request.context["timestamp"]
    request.headers["X-Amz-Security-Token"] = KEYS.session_token
    signer = auth.SigV4Auth(CREDENTIALS, service, region)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    names = signer.signed_headers(signer.headers_to_sign(request))
    return (
        f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names},"
        f" Signature={signer.signature(text, request)}"
    )


def ours(method: str, url: str, body: bytes, service: str, region: str) -> str:
    """Our header."""
    request = UnsignedRequest(method, url, {"Content-Type": "x/y"}, body)
    return signed_headers(request, KEYS, SigningScope(region, service, AT))["Authorization"]


@pytest.mark.parametrize(
    ("method", "url", "body", "service"),
    [
        ("POST", "https://iam.amazonaws.com/", b"Action=GetRole&RoleName=a%2Fb", "iam"),
        ("GET", "https://sts.us-west-2.amazonaws.com/?b=2&a=1&a=%2F&c=", b"", "sts"),
        ("GET", "https://eks.us-west-2.amazonaws.com/clusters/h", b"", "eks"),
        (
            "DELETE",
            f"https://eks.us-west-2.amazonaws.com/clusters/h/access-entries/{encoded('arn:a:b/c')}",
            b"",
            "eks",
        ),
        ("POST", "http://127.0.0.1:10000/clusters/h", b'{"a": "\xc3\xa4"}', "eks"),
    ],
)
def test_requests_are_signed_as_aws_own_library_signs_them(
    method: str, url: str, body: bytes, service: str
):
    wanted = by_library(method, url, body, service, "us-west-2")

    assert ours(method, url, body, service, "us-west-2") == wanted


@given(st.binary(max_size=40), st.text("abz/%&=+ ~-._äß", max_size=12))
def test_any_body_and_any_query_are_signed_as_by_the_library(body: bytes, value: str):
    url = f"https://eks.us-west-2.amazonaws.com/a?x={encoded(value)}"
    wanted = by_library("POST", url, body, "eks", "us-west-2")

    assert ours("POST", url, body, "eks", "us-west-2") == wanted


def test_presigned_urls_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch):
    """The order of parameters is free, so they are compared one by one."""
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: AT.replace(tzinfo=None))
    request = requests.AWSRequest(
        "GET",
        "https://sts.us-west-2.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15",
        {"x-k8s-aws-id": "hub"},
    )
    auth.SigV4QueryAuth(CREDENTIALS, "sts", "us-west-2", expires=60).add_auth(request)
    plain = UnsignedRequest(
        "GET",
        "https://sts.us-west-2.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15",
        {"x-k8s-aws-id": "hub"},
    )

    made = presigned_url(plain, KEYS, SigningScope("us-west-2", "sts", AT), seconds=60)

    assert parse_qs(urlsplit(made).query) == parse_qs(urlsplit(str(request.url)).query)


def test_a_token_has_the_form_that_eks_reads():
    token = eks_token(KEYS, "hub", "us-west-2", AT)

    assert token.startswith("k8s-aws-v1.")
    assert "=" not in token
    text = token.removeprefix("k8s-aws-v1.")
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert (url.scheme, url.netloc, url.path) == ("https", "sts.us-west-2.amazonaws.com", "/")
    assert query["X-Amz-Expires"] == "60"
    assert query["X-Amz-SignedHeaders"] == "host;x-k8s-aws-id"
    assert query["Action"] == "GetCallerIdentity"


def test_keys_are_never_printed():
    keys = AwsKeys("AKID", "secret-part", "session-part", AT + timedelta(hours=1))

    assert "secret-part" not in repr(keys)
    assert "session-part" not in repr(keys)


def test_roles_are_called_as_open_cluster_management_calls_them():
    """So roles that were made for it, by hand or by other tools, fit."""
    roles = RegistrationRoles(HUB, MANAGED)

    assert roles.suffix == "fb3113977376c75bc90eb344f9273095"
    assert roles.hub_role_arn == f"arn:aws:iam::123456789012:role/ocm-hub-{roles.suffix}"
    managed = f"arn:aws:iam::111122223333:role/ocm-managed-cluster-{roles.suffix}"
    assert roles.managed_role_arn == managed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "arn:aws:eks:us-west-2:123:cluster/a",
        "arn:aws:iam::123456789012:role/a",
        "arn:aws:eks:us-west-2:123456789012:cluster/a/../b",
        "arn:aws:eks:us-west-2:123456789012:cluster/a\n",
        "arn:aws:eks:us-west-2.evil.example:123456789012:cluster/a",
        "arn:aws:eks:us-west-2:123456789012:cluster/" + "a" * 300,
    ],
)
def test_what_is_no_arn_of_a_cluster_is_refused_with_an_example(text: str):
    with pytest.raises(ArnProblem, match="arn:aws:eks:us-west-2:123456789012:cluster/name"):
        EksArn.of(text)
