"""Tokens by which EKS knows who asks: a presigned call of STS that the API server makes. Pure."""

import base64
from datetime import datetime, timedelta

from knfleet.aws.aws_client import AwsCall
from knfleet.aws.aws_identity import STS_VERSION, partition_of
from knfleet.aws.signature import AwsKeys, SigningScope, UnsignedRequest, presigned_url

PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
PRESIGNED_SECONDS = 60
LIFETIME = timedelta(minutes=10)
"""EKS accepts a token for fifteen minutes; ours are not used that long."""


def eks_token(keys: AwsKeys, cluster: str, region: str, now: datetime) -> str:
    """A token for an EKS cluster, that proves who holds the keys."""
    call = AwsCall("", "sts", region, partition_of(region))
    request = UnsignedRequest(
        "GET",
        f"https://{call.host}/?Action=GetCallerIdentity&Version={STS_VERSION}",
        {CLUSTER_HEADER: cluster},
    )
    scope = SigningScope(region, "sts", now)
    url = presigned_url(request, keys, scope, seconds=PRESIGNED_SECONDS)
    return PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
