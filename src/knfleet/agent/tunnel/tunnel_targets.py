"""Where streams of the tunnel may lead: the cluster's own API server, and listed Services. Pure."""

import re
from collections.abc import Iterable

from msgspec import Struct
from yarl import URL

API_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
"""Names that the certificate of an API server has in every cluster."""
SERVICE = re.compile(
    r"(?P<namespace>[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)/"
    r"(?P<name>[a-z]([-a-z0-9]{0,61}[a-z0-9])?):(?P<port>[1-9][0-9]{0,4})"
)


class TargetAddress(Struct, frozen=True):
    """Where to connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TunnelTargets(Struct, frozen=True):
    """The allow list: what a stream may ask for, and where it leads."""

    addresses: dict[str, TargetAddress]

    def find(self, target: str) -> TargetAddress | None:
        """Where a target leads; None when it is not allowed."""
        return self.addresses.get(target.lower())


def tunnel_targets(api_server: str, services: Iterable[str] = ()) -> TunnelTargets:
    """The allow list of a cluster with its API server at a URL; raises `ValueError`."""
    url = URL(api_server)
    if url.scheme != "https" or not url.host or url.port is None:
        raise ValueError(f"{api_server!r} is not the https URL of an API server")
    own = TargetAddress(url.host, url.port)
    addresses = {f"{name}:443": own for name in API_NAMES}
    addresses[str(own).lower()] = own
    for text in services:
        address = service_address(text)
        addresses[str(address)] = address
        addresses[f"{address.host}.cluster.local:{address.port}"] = address
    return TunnelTargets(addresses)


def service_address(text: str) -> TargetAddress:
    """The address of a Service, given as namespace/name:port; raises `ValueError`."""
    found = SERVICE.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(f"{text!r} is not a Service as namespace/name:port")
    return TargetAddress(f"{found['name']}.{found['namespace']}.svc", int(found["port"]))
