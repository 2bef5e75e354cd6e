"""Sends a stream to the replica of the hub that has the agent's connection.

The request goes there as it came, marked as forwarded: the other replica authorises it again, and
never forwards a request that is marked, so that there are no loops.
"""

import asyncio
import ssl
from http import HTTPStatus

from knfleet.hub.tunnel.front.connect_request import FORWARDED, HEAD_LIMIT, ConnectRequest, Refusal
from knfleet.runtime.mux.splice import SpliceSide

FORWARD_SECONDS = 15.0


class ForwardConnection(asyncio.Protocol):
    """The connection to another replica until that has answered."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.head = bytearray()
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.head += data
        if (b"\r\n\r\n" in self.head or len(self.head) > HEAD_LIMIT) and not self.answered.done():
            self.answered.set_result(bytes(self.head))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_exception(exc or ConnectionError("connection closed"))


async def forward(
    request: ConnectRequest,
    address: str,
    context: ssl.SSLContext,
    server_name: str,
    side: SpliceSide,
) -> None:
    """Connect a side of a splice through another replica; raises `Refusal`."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    made = ForwardConnection()
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(FORWARD_SECONDS):
            transport, _ = await loop.create_connection(
                lambda: made, host.strip("[]"), int(port), ssl=context, server_hostname=server_name
            )
            transport.write(forwarded_head(request))
            answer = await made.answered
    except (OSError, ValueError, TimeoutError) as error:
        if transport is not None:
            transport.abort()
        raise Refusal(
            HTTPStatus.BAD_GATEWAY,
            f"the replica of the hub with the tunnel of cluster {request.cluster}"
            f" does not answer: {str(error) or type(error).__name__}",
            "ServiceUnavailable",
        ) from error
    except BaseException:
        # The consumer went away, or the process ends.
        if transport is not None:
            transport.abort()
        raise
    head, _, rest = answer.partition(b"\r\n\r\n")
    status, text = status_of(head)
    if status != HTTPStatus.OK:
        transport.abort()
        raise Refusal(status, text, "ServiceUnavailable")
    transport.set_protocol(side)
    side.connection_made(transport)
    if rest:
        side.data_received(rest)


def forwarded_head(request: ConnectRequest) -> bytes:
    """The request as it is sent on."""
    lines = [
        f"CONNECT {request.target} HTTP/1.1",
        f"Proxy-Authorization: {request.authorization}",
        f"{FORWARDED}: 1",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(head: bytes) -> tuple[HTTPStatus, str]:
    """Status and text of an answer; a bad gateway when it is none."""
    parts = head.split(b"\r\n", 1)[0].decode("ascii", errors="replace").split(" ", 2)
    try:
        return HTTPStatus(int(parts[1])), parts[2] if len(parts) > 2 else ""
    except (IndexError, ValueError):
        return HTTPStatus.BAD_GATEWAY, "the other replica of the hub did not answer with HTTP"
