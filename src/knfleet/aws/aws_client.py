"""Signed calls to AWS: bounded in time and bytes, repeated when AWS is busy.

A connection lasts for one call: calls are rare, some for each cluster that is accepted or denied,
and one an hour for an agent.
"""

import asyncio
import os
import random
import xml.etree.ElementTree as ET
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from knfleet.aws.aws_errors import THROTTLED, AwsError
from knfleet.aws.signature import AwsKeys, SigningScope, UnsignedRequest, signed_headers

CALL_SECONDS = 10.0
ATTEMPTS = 4
FIRST_PAUSE, LONGEST_PAUSE = 0.3, 5.0
MOST_BYTES = 1024 * 1024
AT_ONCE = 8
"""So many calls of a process are in progress at most."""
SUFFIXES = {"aws-cn": "amazonaws.com.cn", "aws-iso": "c2s.ic.gov", "aws-iso-b": "sc2s.sgov.gov"}
"""Where partitions beside the usual ones are."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")

Sleep = Callable[[float], Awaitable[None]]


class KeySource(Protocol):
    """Where credentials come from."""

    async def keys(self) -> AwsKeys:
        """Credentials that last a while; raises `AwsError`."""
        ...


class AwsCall(Struct, frozen=True):
    """A call of one service."""

    title: str
    """What is called and for what, for people."""
    service: str
    region: str
    partition: str = "aws"
    method: str = "POST"
    path: str = "/"
    """Percent-encoded, with the query."""
    body: bytes = b""
    content_type: str = "application/x-www-form-urlencoded; charset=utf-8"

    @property
    def host(self) -> str:
        """Where the service is; IAM has one place in each partition."""
        suffix = SUFFIXES.get(self.partition, "amazonaws.com")
        if self.service == "iam":
            inner = {"aws-cn": "cn-north-1.", "aws-us-gov": "us-gov."}.get(self.partition, "")
            return f"iam.{inner}{suffix}"
        return f"{self.service}.{self.region}.{suffix}"

    @property
    def signing_region(self) -> str:
        """The region that signatures name."""
        if self.service != "iam":
            return self.region
        regions = {"aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
        return regions.get(self.partition, "us-east-1")


class AwsAnswer(Struct, frozen=True):
    """What AWS answered; never printed, for there may be credentials in it."""

    status: int
    body: bytes

    def __repr__(self) -> str:
        return f"AwsAnswer({self.status})"


def form(action: str, version: str, **parameters: str) -> bytes:
    """The body of a call of IAM or STS."""
    return urlencode({"Action": action, "Version": version, **parameters}).encode()


def endpoint_of(call: AwsCall, environment: Mapping[str, str]) -> str:
    """The address of a service: as the variables of AWS's own tools say, else the usual one."""
    named = environment.get(f"AWS_ENDPOINT_URL_{call.service.upper()}")
    address = named or environment.get("AWS_ENDPOINT_URL") or f"https://{call.host}"
    split = urlsplit(address)
    if split.scheme != "https" and split.hostname not in LOOPBACK:
        raise AwsError(
            call.title,
            "",
            f"the endpoint {split.scheme}://{split.hostname} is not encrypted",
            remedy="set AWS_ENDPOINT_URL to an address that begins with https://",
        )
    return address.rstrip("/")


class AwsClient:
    """Calls AWS as one identity."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.environment = os.environ if environment is None else environment
        self.sleep = sleep
        self.slots = asyncio.Semaphore(AT_ONCE)

    async def call(self, call: AwsCall, source: KeySource | None) -> bytes:
        """The answer to a call; without a source of credentials it is not signed.

        Raises `AwsError`, when AWS is busy or not there only after some tries.
        """
        address = endpoint_of(call, self.environment)
        pause = FIRST_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            # Anew for each try: a signature is good for some minutes only.
            request = await self.request(call, address, source)
            try:
                answer = await self.send(call, request)
                if answer.status < 300:
                    return answer.body
                error = refusal(call, answer)
                is_worth_a_try = answer.status >= 500 or error.code in THROTTLED
            except (aiohttp.ClientError, OSError, TimeoutError) as failed:
                why = str(failed) or type(failed).__name__
                text = f"no answer from {urlsplit(address).netloc}: {why}"
                error, is_worth_a_try = AwsError(call.title, "", text), True
            if not is_worth_a_try or attempt == ATTEMPTS:
                raise error from None
            await self.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret
            pause = min(2 * pause, LONGEST_PAUSE)
        raise AssertionError("unreachable")

    async def request(
        self, call: AwsCall, address: str, source: KeySource | None
    ) -> UnsignedRequest:
        """A call as it is sent."""
        headers = {"Content-Type": call.content_type} if call.body else {}
        request = UnsignedRequest(call.method, address + call.path, headers, call.body)
        if source is None:
            return request
        scope = SigningScope(call.signing_region, call.service, datetime.now(UTC))
        signed = signed_headers(request, await source.keys(), scope)
        return UnsignedRequest(call.method, request.url, signed, call.body)

    async def send(self, call: AwsCall, request: UnsignedRequest) -> AwsAnswer:
        """Send a request once."""
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        async with (
            self.slots,
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=request.body or None,
                allow_redirects=False,
            ) as response,
        ):
            body = await response.content.read(MOST_BYTES + 1)
            while len(body) <= MOST_BYTES and (more := await response.content.read(MOST_BYTES)):
                body += more
            if len(body) > MOST_BYTES:
                raise AwsError(call.title, "", f"the answer has more than {MOST_BYTES} bytes")
            return AwsAnswer(response.status, body)


def refusal(call: AwsCall, answer: AwsAnswer) -> AwsError:
    """The error in an answer, of whichever format."""
    code = message = ""
    try:
        if answer.body.lstrip().startswith(b"<"):
            root = parse_xml(call, answer.body)
            code, message = text_in(root, "Code"), text_in(root, "Message")
        else:
            found = msgspec.json.decode(answer.body, type=dict[str, object])
            kind = str(found.get("__type") or found.get("code") or "")
            code = kind.rpartition("#")[2].partition(":")[0]
            message = str(found.get("message") or found.get("Message") or "")
    except (AwsError, msgspec.DecodeError, UnicodeDecodeError):
        message = "the answer is not one of AWS"
    return AwsError(call.title, code or f"HTTP {answer.status}", message)


def parse_xml(call: AwsCall, body: bytes) -> ET.Element:
    """An answer as XML; one that defines entities is refused."""
    if b"<!" in body:
        raise AwsError(call.title, "", "the answer is XML with declarations; AWS sends none")
    try:
        return ET.fromstring(body)  # noqa: S314 - without declarations it is harmless
    except ET.ParseError as error:
        raise AwsError(call.title, "", "the answer is not XML") from error


def text_in(root: ET.Element, name: str) -> str:
    """The text of the first element of a name, whatever its namespace; empty when there is none."""
    for element in root.iter():
        if element.tag.rpartition("}")[2] == name:
            return (element.text or "").strip()
    return ""
