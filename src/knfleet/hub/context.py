"""What the hub's controllers share, and how they write about a cluster."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, field

from knfleet.api.cluster.managedcluster import CLUSTERS, ManagedCluster
from knfleet.api.meta import HUB, Key, Object, Request, Resource
from knfleet.hub.aws_account import HubAwsAccount
from knfleet.hub.clustermanager.configuration import HubConfiguration
from knfleet.hub.informers import HubInformers
from knfleet.hub.registration.lease import LeaseObservations
from knfleet.hub.tunnel.publication import TunnelPublication
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.runtime.events.recorder import Events
from knfleet.runtime.manager import Lifetime

Now = Callable[[], datetime]


def wall() -> datetime:
    """The time of day."""
    return datetime.now(UTC)


class HubContext(Struct, frozen=True):
    """What the controllers of the hub share."""

    client: Client
    informers: HubInformers
    events: Events
    configuration: HubConfiguration
    lease_observations: LeaseObservations
    lifetime: Callable[[str], Lifetime]
    """Begins a part of the process that can end alone."""
    now: Now = wall
    tunnel: TunnelPublication | None = None
    """The tunnel of this replica, if there is one."""
    aws: HubAwsAccount = field(default_factory=HubAwsAccount)
    loopback_gates: bool = False
    """Whether gates of KnativeFleets may ask addresses of the hub's own machine or pod."""

    def record_warning(self, cluster: ManagedCluster, reason: str, message: str) -> None:
        self.events.warning(regarding(cluster), reason, message)

    def record_event(self, cluster: ManagedCluster, reason: str, message: str) -> None:
        self.events.normal(regarding(cluster), reason, message)


def regarding(cluster: ManagedCluster) -> Object:
    """A cluster as Events in its namespace name it."""
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": CLUSTERS.kind,
        "metadata": {
            "name": cluster.name,
            "namespace": cluster.name,
            "uid": cluster.metadata.uid,
        },
    }


def cluster_request(cluster: str) -> Request:
    """The request to reconcile a cluster-scoped object of the hub, such as a ManagedCluster."""
    return Request(HUB, Key("", cluster))


def plain(value: object) -> Any:
    return msgspec.to_builtins(value)


async def patch_cluster(
    client: Client, cluster: ManagedCluster, patch: Object, *, subresource: str = ""
) -> Object:
    """Change a cluster in the state that we know it in; `Conflict` when it has another."""
    version = {"resourceVersion": cluster.metadata.resource_version}
    changed = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
    return await client.patch(CLUSTERS, Key("", cluster.name), changed, subresource=subresource)


async def remove(client: Client, resource: Resource, key: Key) -> None:
    """Delete an object, if it is there."""
    with suppress(NotFound):
        await client.delete(resource, key)
