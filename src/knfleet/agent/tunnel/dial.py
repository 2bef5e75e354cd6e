"""Opens the agent's connection to the hub: TCP, through an HTTP proxy if there is one, then TLS."""

import asyncio
import socket
import ssl
from collections.abc import Callable

from msgspec import Struct

from knfleet.kube.auth.tls import load_pair, trusting
from knfleet.kube.client.proxy import Proxy, proxy_for
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import ConfigError
from knfleet.runtime.mux.protocol_name import ALPN

DIAL_SECONDS = 15.0
PROXY_ANSWER_LIMIT = 16 * 1024


class TunnelEndpoint(Struct, frozen=True):
    """Where a hub accepts tunnels."""

    host: str
    port: int
    authorities: bytes
    """PEM."""
    server_name: str = ""
    """The name that the hub's certificate has; the host when empty."""
    proxy_url: str | None = None

    def __repr__(self) -> str:
        return f"TunnelEndpoint({self.host}:{self.port})"


class DialError(ConnectionError):
    """The hub cannot be reached; the message says why."""


def agent_context(authorities: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """The TLS context of an agent: it trusts one CA, and shows its registration certificate."""
    context = trusting(authorities)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([ALPN])
    load_pair(context, certificate, key)
    return context


async def dial(
    endpoint: TunnelEndpoint, context: ssl.SSLContext, protocol: Callable[[], asyncio.Protocol]
) -> None:
    """Connect a protocol to a hub; raises `OSError`, `TimeoutError` or `ConfigError`."""
    url = f"https://{authority(endpoint)}"
    proxy = proxy_for(Endpoint(url, proxy_url=endpoint.proxy_url))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DIAL_SECONDS):
        if proxy is None:
            connected = await connect_tcp(endpoint.host, endpoint.port)
        else:
            connected = await connect_through(proxy, endpoint)
        try:
            await loop.create_connection(
                protocol,
                sock=connected,
                ssl=context,
                server_hostname=endpoint.server_name or endpoint.host,
                ssl_handshake_timeout=DIAL_SECONDS,
            )
        except BaseException:
            connected.close()
            raise


def authority(endpoint: TunnelEndpoint) -> str:
    """Host and port as a URL has them."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


async def connect_tcp(host: str, port: int) -> socket.socket:
    """A connection to the first address of a host that answers."""
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    for family, type_, number, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        made = socket.socket(family, type_, number)
        made.setblocking(False)
        try:
            await loop.sock_connect(made, address)
        except OSError as error:
            made.close()
            problem = error
        except BaseException:
            made.close()
            raise
        else:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made
    raise problem or DialError(f"{host} has no address")


async def connect_through(proxy: Proxy, endpoint: TunnelEndpoint) -> socket.socket:
    """A connection to a hub through an HTTP proxy."""
    if proxy.url.scheme != "http":
        raise ConfigError(
            f"the proxy {proxy} is reached by TLS, which the tunnel does not support;"
            " use an http:// proxy"
        )
    assert proxy.url.host is not None
    made = await connect_tcp(proxy.url.host, proxy.url.port or 80)
    try:
        await ask_proxy(made, proxy, authority(endpoint))
    except BaseException:
        made.close()
        raise
    return made


async def ask_proxy(connected: socket.socket, proxy: Proxy, target: str) -> None:
    """Have a proxy connect to a target."""
    loop = asyncio.get_running_loop()
    headers = {"Host": target, **proxy.headers}
    lines = [f"CONNECT {target} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
    await loop.sock_sendall(connected, "\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        # Byte by byte would be slow, but nothing follows before we send: the hub speaks TLS.
        received = await loop.sock_recv(connected, 4096)
        answer += received
        if not received or len(answer) > PROXY_ANSWER_LIMIT:
            raise DialError(f"the proxy {proxy} did not answer CONNECT")
    status = answer.split(b"\r\n", 1)[0].decode(errors="replace")
    if status.split(" ")[1:2] != ["200"]:
        raise DialError(f"the proxy {proxy} answered: {status[:200]}")
