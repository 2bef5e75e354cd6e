"""Who this process is in AWS: by its environment, by a web identity token, or by pod identity.

Keys are fetched when they are first needed, and again before they end; many that need them at once
cause one fetch.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from knfleet.aws.aws_client import (
    CALL_SECONDS,
    LOOPBACK,
    AwsCall,
    AwsClient,
    KeySource,
    form,
    parse_xml,
    text_in,
)
from knfleet.aws.aws_errors import AwsError, NoAwsCredentials
from knfleet.aws.signature import AwsKeys

STS_VERSION = "2011-06-15"
SESSION_SECONDS = 3600
LEFT = timedelta(minutes=10)
"""Keys with less time left are renewed."""
MOST_TOKEN_BYTES = 64 * 1024
POD_IDENTITY_HOSTS = (*LOOPBACK, "169.254.170.23", "fd00:ec2::23")
"""Where the agent of EKS Pod Identity may be: on the node itself."""
PARTITIONS = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
}
NO_IDENTITY = (
    "annotate the ServiceAccount with eks.amazonaws.com/role-arn, or give the pod an identity by"
    " EKS Pod Identity, and restart the pod"
)


class PodKeys(Struct, frozen=True, rename="pascal"):
    """What the agent of EKS Pod Identity answers; never printed."""

    access_key_id: str
    secret_access_key: str
    token: str
    expiration: datetime

    def __repr__(self) -> str:
        return "PodKeys()"


class CachedKeys(ABC):
    """Keys that are fetched anew before they end."""

    def __init__(self) -> None:
        self.held: AwsKeys | None = None
        self.lock = asyncio.Lock()

    async def keys(self) -> AwsKeys:
        """Keys that last a while."""
        async with self.lock:
            if self.held is None or is_ending(self.held, datetime.now(UTC)):
                self.held = await self.fetch()
            return self.held

    @abstractmethod
    async def fetch(self) -> AwsKeys:
        """New keys; raises `AwsError`."""


def is_ending(keys: AwsKeys, now: datetime) -> bool:
    """Whether keys have so little time left that they are renewed."""
    return keys.expires is not None and keys.expires - now < LEFT


class ProcessIdentity(CachedKeys):
    """The identity that the environment gives to this process."""

    def __init__(self, client: AwsClient, region: str = "") -> None:
        super().__init__()
        self.client = client
        self.region = region
        """Where STS is called unless the environment says."""

    async def fetch(self) -> AwsKeys:
        """Keys by the first way that is configured."""
        environment = self.client.environment
        if environment.get("AWS_ACCESS_KEY_ID"):
            return AwsKeys(
                environment["AWS_ACCESS_KEY_ID"],
                environment.get("AWS_SECRET_ACCESS_KEY", ""),
                environment.get("AWS_SESSION_TOKEN", ""),
            )
        if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environment.get("AWS_ROLE_ARN"):
            return await self.by_web_identity(environment)
        if environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
            return await by_pod_identity(environment)
        raise NoAwsCredentials("credentials of AWS", "", "the process has none", remedy=NO_IDENTITY)

    async def by_web_identity(self, environment: Mapping[str, str]) -> AwsKeys:
        """Keys of the role that the ServiceAccount of the pod has."""
        role = environment["AWS_ROLE_ARN"]
        token = token_in(environment["AWS_WEB_IDENTITY_TOKEN_FILE"])
        region = environment.get("AWS_REGION") or self.region or "us-east-1"
        call = AwsCall(
            f"STS AssumeRoleWithWebIdentity of role {role}",
            "sts",
            region,
            partition_of(region),
            body=form(
                "AssumeRoleWithWebIdentity",
                STS_VERSION,
                RoleArn=role,
                RoleSessionName="knfleet",
                WebIdentityToken=token,
            ),
        )
        return keys_in(call, await self.client.call(call, None))


class RoleIdentity(CachedKeys):
    """The identity of a role that another identity assumes."""

    def __init__(self, client: AwsClient, role: str, region: str, base: KeySource) -> None:
        super().__init__()
        self.client = client
        self.role = role
        self.region = region
        self.base = base

    async def fetch(self) -> AwsKeys:
        """Keys of the role, for an hour."""
        call = AwsCall(
            f"STS AssumeRole of role {self.role}",
            "sts",
            self.region,
            partition_of(self.region),
            body=form(
                "AssumeRole",
                STS_VERSION,
                RoleArn=self.role,
                RoleSessionName="knfleet-agent",
                DurationSeconds=str(SESSION_SECONDS),
            ),
        )
        return keys_in(call, await self.client.call(call, self.base))


def partition_of(region: str) -> str:
    """The partition that a region is in."""
    found = [name for prefix, name in PARTITIONS.items() if region.startswith(prefix)]
    return found[0] if found else "aws"


def token_in(path: str) -> str:
    """The token in a file."""
    title = f"token file {path}"
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_TOKEN_BYTES + 1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise AwsError(title, "", f"it cannot be read: {why}", remedy=NO_IDENTITY) from error
    text = content.decode("ascii", "replace").strip()
    if not text or len(content) > MOST_TOKEN_BYTES or not text.isprintable():
        raise AwsError(title, "", "it holds no token", remedy=NO_IDENTITY)
    return text


def keys_in(call: AwsCall, body: bytes) -> AwsKeys:
    """The keys in an answer of STS."""
    root = parse_xml(call, body)
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
    access, secret, token, expiration = (text_in(root, name) for name in names)
    try:
        expires = datetime.fromisoformat(expiration).astimezone(UTC)
    except ValueError:
        expires = None
    if not access or not secret or not token or expires is None:
        raise AwsError(call.title, "", "the answer has no complete credentials")
    return AwsKeys(access, secret, token, expires)


async def by_pod_identity(environment: Mapping[str, str]) -> AwsKeys:
    """Keys from the agent of EKS Pod Identity on the node."""
    address = environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    title = "credentials of EKS Pod Identity"
    if urlsplit(address).hostname not in POD_IDENTITY_HOSTS:
        raise AwsError(
            title, "", "AWS_CONTAINER_CREDENTIALS_FULL_URI is not an address of the node"
        )
    headers: dict[str, str] = {}
    if file := environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        headers["Authorization"] = token_in(file)
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(address, headers=headers, allow_redirects=False) as response,
        ):
            body = await response.content.read(MOST_TOKEN_BYTES)
            if response.status != 200:
                raise AwsError(title, f"HTTP {response.status}", "the node's agent gave none")
        found = msgspec.json.decode(body, type=PodKeys)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        text = f"no answer from the node's agent: {str(error) or type(error).__name__}"
        raise AwsError(title, "", text) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AwsError(title, "", "the node's agent gave none that can be read") from error
    return AwsKeys(
        found.access_key_id, found.secret_access_key, found.token, found.expiration.astimezone(UTC)
    )


def jitter(seconds: float) -> float:
    """A time that differs between agents, so that they do not all call at once."""
    return seconds * random.uniform(0.75, 1.0)  # noqa: S311 - not a secret
