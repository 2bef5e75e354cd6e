"""The proxy on the way to a server: the endpoint's own, or the one of the environment.

The environment is read as Go's programs read it: HTTPS_PROXY and HTTP_PROXY by the server's scheme,
NO_PROXY with names, domains, addresses and networks, and never a proxy to this machine itself.
"""

import ipaddress
import os
from collections.abc import Mapping

from aiohttp import encode_basic_auth, hdrs
from msgspec import Struct
from yarl import URL

from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import ConfigError


class Proxy(Struct, frozen=True):
    """A proxy, and the headers that it needs."""

    url: URL
    headers: dict[str, str]

    def __str__(self) -> str:
        return f"{self.url.host}:{self.url.port}"


def proxy_for(endpoint: Endpoint, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy through which an endpoint is reached, if any."""
    address = endpoint.proxy_url or environment_proxy(URL(endpoint.server), environment)
    if not address:
        return None
    url = parse(address)
    if url.user is None:
        return Proxy(url, {})
    secret = encode_basic_auth(url.user, url.password or "")
    return Proxy(url.with_user(None), {hdrs.PROXY_AUTHORIZATION: secret})


def parse(address: str) -> URL:
    """The URL of a proxy that we can use."""
    try:
        url = URL(address if "://" in address else f"http://{address}")
    except ValueError:
        raise ConfigError("the proxy URL cannot be read") from None
    if url.scheme not in {"http", "https"}:
        raise ConfigError(
            f"a proxy of the kind {url.scheme}:// is unsupported: use an http:// or https:// proxy"
        )
    if not url.host:
        raise ConfigError("the proxy URL names no host")
    return url


def environment_proxy(server: URL, environment: Mapping[str, str]) -> str:
    """The proxy that the environment wants for a server; empty when none."""
    name = f"{server.scheme}_proxy"
    address = environment.get(name.upper()) or environment.get(name) or ""
    exceptions = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if not address or is_direct(server.host or "", exceptions):
        return ""
    return address


def is_direct(host: str, exceptions: str) -> bool:
    """Whether a host is reached without a proxy."""
    address = ip_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(
        matches(host, address, exception.strip().lower()) for exception in exceptions.split(",")
    )


def matches(
    host: str,
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None,
    exception: str,
) -> bool:
    """Whether an entry of NO_PROXY is about a host."""
    if exception in {"", "*"}:
        return exception == "*"
    if address is not None:
        try:
            return address in ipaddress.ip_network(exception, strict=False)
        except ValueError:
            return False
    domain = exception.removeprefix("*").partition(":")[0]
    return host == domain.removeprefix(".") or host.endswith("." + domain.removeprefix("."))


def ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
