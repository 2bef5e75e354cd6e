"""What a consumer asks the front for, and the answers it gets. Pure.

The front is an HTTP proxy: `CONNECT host:port`, with the cluster's name as user and a routing key
or a token of the hub as password. Clients of Kubernetes show nothing of a refusal but the text in
its status line, so the reason is there; the body has the same as a Status.
"""

import base64
import binascii
import re
from http import HTTPStatus

import msgspec
from msgspec import Struct

HEAD_LIMIT = 16 * 1024
HEADER_COUNT = 64
AUTHORIZATION = "proxy-authorization"
FORWARDED = "Knfleet-Forwarded"
"""Header of requests that another replica of the hub sends."""
TARGET = re.compile(
    r"(?:[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):\d{1,5}"
)
CLUSTER = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
REALM = (
    'Basic realm="knfleet: user is the cluster, password is a routing key or a token of the hub"'
)


class ConnectRequest(Struct, frozen=True):
    """A well-formed request; never printed."""

    cluster: str
    password: str
    target: str
    authorization: str = ""
    """The header as it came."""
    is_forwarded: bool = False
    """Whether another replica of the hub sent it."""

    def __repr__(self) -> str:
        return f"ConnectRequest({self.cluster!r}, {self.target!r})"


class Refusal(Exception):
    """The front does not connect; with the HTTP status and a reason of Kubernetes."""

    def __init__(self, status: HTTPStatus, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    def answer(self) -> bytes:
        """The whole answer."""
        text = printable(str(self))
        body = msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Status",
                "metadata": {},
                "status": "Failure",
                "message": text,
                "reason": self.reason,
                "code": self.status.value,
            }
        )
        lines = [
            f"HTTP/1.1 {self.status.value} {text}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        if self.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            lines.append(f"Proxy-Authenticate: {REALM}")
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def printable(text: str) -> str:
    """A text that may stand in a status line."""
    return "".join(each if " " <= each <= "~" else "?" for each in text)[:400]


def parse(head: bytes) -> ConnectRequest:
    """What the head of a request asks for; raises `Refusal`."""
    try:
        first, *lines = head.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the request is not HTTP", "BadRequest") from None
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise Refusal(HTTPStatus.BAD_REQUEST, "the request is not HTTP/1.1", "BadRequest")
    method, target, _ = parts
    if method != "CONNECT":
        raise Refusal(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "this is an HTTP proxy for CONNECT: use it as proxy-url of a kubeconfig",
            "MethodNotAllowed",
        )
    if TARGET.fullmatch(target) is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the target is not host:port", "BadRequest")
    found = headers(lines)
    cluster, password = credentials(found)
    return ConnectRequest(
        cluster, password, target, found[AUTHORIZATION], FORWARDED.lower() in found
    )


def headers(lines: list[str]) -> dict[str, str]:
    """The headers of a request, by lower-case name; raises `Refusal`."""
    if len(lines) > HEADER_COUNT:
        raise Refusal(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers", "RequestEntityTooLarge"
        )
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or name.lower() in found:
            raise Refusal(HTTPStatus.BAD_REQUEST, "a header is malformed", "BadRequest")
        found[name.lower()] = value.strip()
    return found


def credentials(found: dict[str, str]) -> tuple[str, str]:
    """Cluster and password of the Proxy-Authorization header; raises `Refusal`."""
    scheme, _, encoded = found.get(AUTHORIZATION, "").partition(" ")
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("ascii")
    except (ValueError, binascii.Error):
        text = ""
    if scheme.lower() != "basic":
        text = ""
    cluster, _, password = text.partition(":")
    if not password or CLUSTER.fullmatch(cluster) is None:
        raise Refusal(
            HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
            "proxy-url must have the cluster as user, and a routing key or token as password",
            "Unauthorized",
        )
    return cluster, password
