"""Whether a profile leads to its cluster directly or through the tunnel, and how. Pure.

The tunnel's front is an HTTP proxy, so a consumer needs nothing but the fields of a kubeconfig:
`proxy-url` has the cluster as user and a routing key as password, `server` is a name that the
certificate of the spoke's API server has, and both CAs are trusted.
"""

import base64

from msgspec import Struct
from msgspec.structs import replace
from yarl import URL

from knfleet.api.cluster.tunnel import (
    REACHED_BY,
    TUNNEL_MODE,
    TUNNEL_ROUND_TRIP,
    TUNNEL_SERVER,
    TUNNEL_SINCE,
    TunnelMode,
)
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Object
from knfleet.hub.profiles.cluster_profile import ClusterAccess, decoded
from knfleet.hub.tunnel.holder_lease import TunnelHolder

MODES: dict[str, TunnelMode] = {"always": "always", "auto": "auto", "never": "never"}


class TunnelRoute(Struct, frozen=True):
    """How consumers in a namespace get into a cluster's tunnel; never printed."""

    front: str
    """https://host:port"""
    user: str
    key: str
    authorities: bytes
    """PEM of the front's CA."""

    def __repr__(self) -> str:
        return f"TunnelRoute({self.front!r}, {self.user!r})"

    @property
    def proxy_url(self) -> str:
        """What the profile has as proxy-url."""
        return str(URL(self.front).with_user(self.user).with_password(self.key)).rstrip("/")


def tunnel_mode(secret: Object | None) -> TunnelMode:
    """How an agent wants its cluster to be reached; never when it does not say."""
    handed: dict[str, str] = (secret or {}).get("data") or {}
    if not tunnel_server(secret):
        return "never"
    return MODES.get(decoded(handed.get(TUNNEL_MODE, "")), "never")


def tunnel_server(secret: Object | None) -> str:
    """The URL of the API server at the other end of the tunnel; empty when it is none."""
    handed: dict[str, str] = (secret or {}).get("data") or {}
    server = decoded(handed.get(TUNNEL_SERVER, ""))
    return server if server.startswith("https://") else ""


def through_tunnel(
    access: ClusterAccess, secret: Object | None, route: TunnelRoute
) -> ClusterAccess:
    """The same access by way of the tunnel."""
    spoke = base64.b64decode(access.authorities)
    both = spoke.rstrip() + b"\n" + route.authorities
    return replace(
        access,
        server=tunnel_server(secret),
        authorities=base64.b64encode(both).decode(),
        proxy_url=route.proxy_url,
        tls_server_name="",
    )


def reach_properties(*, by_tunnel: bool, held: TunnelHolder | None) -> dict[str, str]:
    """How a cluster is reached, as properties of its profile."""
    found = {REACHED_BY: "tunnel" if by_tunnel else "direct"}
    if held is not None:
        found[TUNNEL_SINCE] = timestamp(held.since)
        if held.round_trip_milliseconds is not None:
            found[TUNNEL_ROUND_TRIP] = str(held.round_trip_milliseconds)
    return found
