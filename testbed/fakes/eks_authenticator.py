"""Does for API servers of tests what the authenticator of EKS does for those of AWS.

A token is a presigned call of STS. What it is must be exact, since the server is about to make the
call: host, action, expiry, and the cluster that the signature is for.
"""

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from msgspec import Struct

from testbed.fakes.aws import FakeAws, caller_of

PREFIX = "k8s-aws-v1."
LIFETIME = timedelta(minutes=15)
QUERY = {
    "Action",
    "Version",
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
}
ASSUMED = re.compile(r"arn:aws:sts::(\d{12}):assumed-role/([^/]+)/.+")


class TokenRefusal(Struct, frozen=True):
    """Why a token is not accepted."""

    why: str


class EksAuthenticator:
    """Answers TokenReviews."""

    def __init__(self, aws: FakeAws, region: str) -> None:
        self.aws = aws
        self.host = f"sts.{region}.amazonaws.com"
        self.refusals: list[str] = []
        self.tokens: set[str] = set()
        """Tokens of AWS that were accepted."""

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one TokenReview."""
        review: dict[str, Any] = await request.json()
        token = str(review["spec"].get("token", ""))
        status: dict[str, Any] = {"authenticated": False}
        if token.startswith(PREFIX):
            user = await self.user_of(token)
            if isinstance(user, str):
                self.refusals.append(user)
            else:
                self.tokens.add(token)
                status = {"authenticated": True, "user": user}
        kept = {name: review[name] for name in ("apiVersion", "kind")}
        return web.json_response({**kept, "status": status})

    async def user_of(self, token: str) -> dict[str, Any] | str:
        """Who a token is from, or why it is not accepted."""
        url = self.checked(token, datetime.now(UTC))
        if isinstance(url, TokenRefusal):
            return url.why
        headers = {"x-k8s-aws-id": self.aws.cluster, "Host": self.host}
        arn = await caller_of(self.aws, url, headers)
        if arn is None:
            return "STS does not know the caller"
        found = ASSUMED.fullmatch(arn)
        role = f"arn:aws:iam::{found[1]}:role/{found[2]}" if found else arn
        entry = self.aws.entries.get(role)
        if entry is None:
            return f"{role} has no access entry"
        return {"username": entry["username"], "groups": entry["kubernetesGroups"]}

    def checked(self, token: str, now: datetime) -> str | TokenRefusal:
        """The URL in a token, if all of it is as it must be."""
        try:
            padding = "=" * (-len(token.removeprefix(PREFIX)) % 4)
            url = base64.urlsafe_b64decode(token.removeprefix(PREFIX) + padding).decode()
        except (binascii.Error, UnicodeDecodeError):
            return TokenRefusal("it is not base64url")
        split = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        signed = query.get("X-Amz-SignedHeaders", "").split(";")
        checks = {
            "it has padding": not token.endswith("="),
            "it is not https": split.scheme == "https",
            "its host is another": split.netloc == self.host,
            "its path is not /": split.path == "/",
            "its action is another": query.get("Action") == "GetCallerIdentity",
            "it has parameters that none has": set(query) <= QUERY,
            "the cluster is not signed": "x-k8s-aws-id" in signed and "host" in signed,
            "it expires too late": 0 < int(query.get("X-Amz-Expires", "0")) <= 900,
            "it is too old": self.is_fresh(query.get("X-Amz-Date", ""), now),
        }
        wrong = [name for name, holds in checks.items() if not holds]
        return TokenRefusal(", ".join(wrong)) if wrong else url

    def is_fresh(self, text: str, now: datetime) -> bool:
        """Whether a token was signed lately."""
        try:
            at = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            return False
        return timedelta(minutes=-5) < now - at < LIFETIME
