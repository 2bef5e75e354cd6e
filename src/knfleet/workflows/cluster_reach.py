"""How clusters are reached: directly or through the tunnel, since when, and how far they are. Pure.

Made of what the hub publishes: the ClusterProfiles in a namespace, and the Leases of tunnels.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct
from yarl import URL

from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.api.cluster.tunnel import REACHED_BY, TUNNEL_LEASE
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.profiles.cluster_profile import PROVIDER
from knfleet.hub.tunnel.holder_lease import TunnelHolder, holder
from knfleet.kube.yaml import dump_all

Way = Literal["direct", "tunnel", "none"]


class ClusterReach(Struct, frozen=True):
    """How one cluster is reached."""

    cluster: str
    way: Way
    """How its profile leads there."""
    is_open: bool
    """Whether its agent has a tunnel open."""
    since: datetime | None = None
    round_trip_milliseconds: int | None = None

    @property
    def by_tunnel(self) -> bool:
        """Whether the profile leads through the tunnel."""
        return self.way == "tunnel"

    @property
    def problem(self) -> str:
        """Why the cluster cannot be reached; empty when it can, as far as the hub knows."""
        if self.way == "tunnel" and not self.is_open:
            return "its profile leads through the tunnel, but the agent has none open"
        if self.way == "none":
            return "its profile offers no access"
        return ""


class NoAccess(Exception):
    """A cluster's profile offers no access; the message says what to do."""


def provider_of(profile: Object | None) -> Object | None:
    """The access provider of ours in a profile, as a cluster of a kubeconfig."""
    offered = items(profile or {}, "status", "accessProviders")
    return next((part(each, "cluster") for each in offered if each.get("name") == PROVIDER), None)


def is_by_tunnel(profile: Object | None) -> bool:
    """Whether a profile leads through the tunnel; a direct way may have a proxy, too."""
    found = items(profile or {}, "status", "properties")
    return any((each.get("name"), each.get("value")) == (REACHED_BY, "tunnel") for each in found)


def reaches(
    clusters: Iterable[ManagedCluster], profiles: Iterable[Object], leases: Iterable[Object]
) -> list[ClusterReach]:
    """How all accepted clusters are reached."""
    published = {each["metadata"]["name"]: each for each in profiles}
    held = {
        key.namespace: holder(each) for each in leases if (key := Key.of(each)).name == TUNNEL_LEASE
    }
    return [
        reach(each.name, published.get(each.name), held.get(each.name))
        for each in clusters
        if each.spec.hub_accepts_client
    ]


def reach(cluster: str, profile: Object | None, held: TunnelHolder | None) -> ClusterReach:
    """How one cluster is reached."""
    offered = provider_of(profile)
    way: Way = "none" if offered is None else "tunnel" if is_by_tunnel(profile) else "direct"
    if held is None:
        return ClusterReach(cluster, way, is_open=False)
    return ClusterReach(cluster, way, True, held.since, held.round_trip_milliseconds)


def cluster_kubeconfig(
    profile: Object, environment: dict[str, str], *, front: str = "", command: str = "knfleet"
) -> str:
    """A kubeconfig for the cluster of a profile; its token is read from the hub when needed.

    `front` replaces the address of the tunnel's front, for people who reach it elsewhere.
    Raises `NoAccess`.
    """
    meta = profile["metadata"]
    offered = provider_of(profile)
    if offered is None:
        raise NoAccess(
            f"ClusterProfile {meta['namespace']}/{meta['name']} offers no access; see"
            f" `knfleet doctor {meta['name']}`"
        )
    cluster = dict(offered)
    if front and cluster.get("proxy-url"):
        old, new = URL(cluster["proxy-url"]), URL(front)
        cluster["proxy-url"] = str(
            old.with_scheme(new.scheme).with_host(new.host or "").with_port(new.port)
        ).rstrip("/")
    name = meta["name"]
    user: Object = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": command,
        "args": ["plugin", "secretreader"],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    return dump_all(
        [
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": name,
                "clusters": [{"name": name, "cluster": cluster}],
                "users": [{"name": name, "user": {"exec": user}}],
                "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            }
        ]
    )
