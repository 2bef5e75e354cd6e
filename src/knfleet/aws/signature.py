"""Signature Version 4 of AWS: what must be sent with a request so that AWS knows who asks. Pure."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import parse_qsl, quote, urlsplit

from msgspec import Struct

ALGORITHM = "AWS4-HMAC-SHA256"


class AwsKeys(Struct, frozen=True):
    """Credentials of AWS; never printed."""

    access_key: str
    secret_key: str
    session_token: str = ""
    expires: datetime | None = None
    """None: they do not end."""

    def __repr__(self) -> str:
        return f"AwsKeys(expires={self.expires})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("held", repr(self))]


class SigningScope(Struct, frozen=True):
    """What a signature is good for."""

    region: str
    service: str
    at: datetime
    """In UTC."""

    @property
    def timestamp(self) -> str:
        return self.at.strftime("%Y%m%dT%H%M%SZ")

    @property
    def path(self) -> str:
        """The scope as a part of requests."""
        return f"{self.at:%Y%m%d}/{self.region}/{self.service}/aws4_request"


class UnsignedRequest(Struct, frozen=True):
    """A request before it is signed."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


def signed_headers(request: UnsignedRequest, keys: AwsKeys, scope: SigningScope) -> dict[str, str]:
    """The headers of a request, with its signature."""
    added = {"X-Amz-Date": scope.timestamp}
    if keys.session_token:
        added["X-Amz-Security-Token"] = keys.session_token
    headers = {**request.headers, **added}
    names = header_names(request.url, headers)
    digest = hashlib.sha256(request.body).hexdigest()
    signature = signature_of(canonical(request, headers, digest), keys, scope)
    return {
        **headers,
        "Authorization": (
            f"{ALGORITHM} Credential={keys.access_key}/{scope.path},"
            f" SignedHeaders={';'.join(names)}, Signature={signature}"
        ),
    }


def presigned_url(
    request: UnsignedRequest, keys: AwsKeys, scope: SigningScope, *, seconds: int
) -> str:
    """The URL of a request with the signature in it, for another to send with the same headers."""
    added = {
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{keys.access_key}/{scope.path}",
        "X-Amz-Date": scope.timestamp,
        "X-Amz-Expires": str(seconds),
        "X-Amz-SignedHeaders": ";".join(header_names(request.url, request.headers)),
    }
    if keys.session_token:
        added["X-Amz-Security-Token"] = keys.session_token
    mark = "&" if urlsplit(request.url).query else "?"
    url = request.url + mark + "&".join(f"{name}={encoded(added[name])}" for name in added)
    unsigned = UnsignedRequest(request.method, url, request.headers)
    digest = hashlib.sha256(request.body).hexdigest()
    signature = signature_of(canonical(unsigned, request.headers, digest), keys, scope)
    return f"{url}&X-Amz-Signature={signature}"


def encoded(text: str) -> str:
    """A text as AWS wants it in a URL."""
    return quote(text, safe="-_.~")


def header_names(url: str, headers: Mapping[str, str]) -> list[str]:
    """The headers that are signed, in order."""
    del url
    return sorted({"host", *(name.lower() for name in headers)})


def canonical(request: UnsignedRequest, headers: Mapping[str, str], digest: str) -> str:
    """A request in the one form that both sides sign."""
    split = urlsplit(request.url)
    values = {"host": split.netloc, **{name.lower(): text for name, text in headers.items()}}
    names = header_names(request.url, headers)
    pairs = sorted(
        (encoded(name), encoded(value))
        for name, value in parse_qsl(split.query, keep_blank_values=True)
    )
    return "\n".join(
        (
            request.method,
            quote(split.path or "/", safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join(values[name].split())}" for name in names),
            "",
            ";".join(names),
            digest,
        )
    )


def signature_of(text: str, keys: AwsKeys, scope: SigningScope) -> str:
    """The signature of a request in its canonical form."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    signed = f"{ALGORITHM}\n{scope.timestamp}\n{scope.path}\n{digest}"
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.path.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, signed.encode(), "sha256").hexdigest()
