"""Registration over gRPC: certificates of the hub's own signer, for its gRPC server.

The library is loaded when the driver is first used: an agent without the extra does not need it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from knfleet.agent.grpc.grpc_config import GrpcConfig, read_config, target_of
from knfleet.agent.registration.drivers.csr import FEW_AT_ONCE, FIRST_CALLS, CSRDriver
from knfleet.agent.registration.identity import (
    HUB,
    Bootstrap,
    HubCredentials,
    hub_kubeconfig,
    is_moved,
)
from knfleet.api.certificate_requests import GRPC_SIGNER
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import ConfigError

if TYPE_CHECKING:
    from knfleet.agent.grpc.event_channel import EventChannel, GrpcIdentity
    from knfleet.agent.hub_session import CertificateHolder
    from knfleet.agent.work.source import WorkSource
    from knfleet.runtime.manager import Component

SESSION = replace(FEW_AT_ONCE, watch_backoff_limit_seconds=5.0)
"""No longer than the library waits between two connections, of which all subscriptions share one:
agents are back soon after their server is."""


class GrpcDriver(CSRDriver):
    """Gets client certificates for the gRPC server, from that server."""

    signer = GRPC_SIGNER

    async def bootstrap_client(self, bootstrap: Bootstrap, cluster: str) -> Client:
        """A client of the gRPC server, for the bootstrap identity."""
        from knfleet.agent.grpc.event_channel import GrpcIdentity
        from knfleet.agent.grpc.event_client import EventClient

        config = config_of(bootstrap)
        token = config.token
        if not token:
            token = (await bootstrap.connection.credentials.fetch()).token or ""
        if not token:
            raise ConfigError("the bootstrap Secret has no token, without which gRPC cannot begin")
        channel = channel_of(config, cluster, GrpcIdentity(token=token))
        return EventClient(bootstrap.connection, FIRST_CALLS, channel)

    def session_client(
        self, bootstrap: Bootstrap, cluster: str, identity: "CertificateHolder"
    ) -> Client:
        """A client of the gRPC server, for the agent."""
        from knfleet.agent.grpc.event_channel import EventChannel, GrpcIdentity
        from knfleet.agent.grpc.event_client import EventClient

        def current() -> GrpcIdentity:
            held = identity.credentials
            return GrpcIdentity(held.certificate, held.key)

        channel = EventChannel(config_of(bootstrap), cluster, f"{cluster}-agent", current)
        connection = Connection(HUB, bootstrap.address.endpoint, identity)
        return EventClient(connection, SESSION, channel)

    def components(self, hub: Client) -> "Sequence[Component]":
        """The informer of the Lease, so that a heartbeat is one call."""
        from knfleet.agent.grpc.event_client import EventClient

        assert isinstance(hub, EventClient)
        return (hub.leases,)

    def work_source(self, hub: Client, server: str, cluster: str) -> "WorkSource":
        """Works from the gRPC server."""
        from knfleet.agent.grpc.event_client import EventClient
        from knfleet.agent.grpc.event_works import EventWorkSource

        assert isinstance(hub, EventClient)
        return EventWorkSource(hub.channel, server)

    def located(
        self, credentials: HubCredentials, bootstrap: Bootstrap, folder: Path | None
    ) -> HubCredentials:
        """Credentials with a kubeconfig and a gRPC configuration for the hub."""
        moved = is_moved(credentials, bootstrap.address)
        kubeconfig = hub_kubeconfig(bootstrap.address) if moved else credentials.kubeconfig
        wanted = config_of(bootstrap)
        config = credentials.config
        if stored_config(credentials) != (wanted.url, wanted.ca):
            config = wanted.written("" if folder is None else str(folder.absolute()))
        return replace(credentials, kubeconfig=kubeconfig, config=config)


def channel_of(config: GrpcConfig, cluster: str, identity: "GrpcIdentity") -> "EventChannel":
    """A channel for an identity that does not change."""
    from knfleet.agent.grpc.event_channel import EventChannel

    return EventChannel(config, cluster, f"{cluster}-agent", lambda: identity)


def config_of(bootstrap: Bootstrap) -> GrpcConfig:
    """Where the gRPC server is: as configured, else where the bootstrap kubeconfig leads."""
    if bootstrap.grpc is not None:
        return bootstrap.grpc
    endpoint = bootstrap.address.endpoint
    return GrpcConfig(target_of(endpoint.server, "the bootstrap kubeconfig"), endpoint.ca or b"")


def stored_config(credentials: HubCredentials) -> tuple[str, bytes] | None:
    """Where credentials say that the gRPC server is."""
    try:
        found = read_config(credentials.config, "the kept configuration")
    except ConfigError:
        return None
    return found.url, found.ca
