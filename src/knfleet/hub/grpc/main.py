"""The gRPC server as a process: watches on the hub, and calls of agents."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import grpc.aio
from msgspec import Struct

from knfleet.api.addon.managedclusteraddon import ADDONS, ADDONS_BETA
from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL, CLUSTERS, LEASE_NAME
from knfleet.api.core import LEASES
from knfleet.api.operator import HUB_NAMESPACE
from knfleet.api.work.manifestwork import WORKS
from knfleet.cloudevents.cloud_event import MESSAGE_BYTES
from knfleet.cloudevents.event_types import TOKEN_REQUESTS
from knfleet.hub.grpc.broker import Broker
from knfleet.hub.grpc.calls.access_check import AccessCheck
from knfleet.hub.grpc.calls.publications import Publications
from knfleet.hub.grpc.event_service import EventService, ServiceLimits
from knfleet.hub.grpc.object_sources import (
    AnswerSource,
    BundleSource,
    ObjectSource,
    RequestSource,
    label_index,
    namespace_index,
    pack,
    uid_index,
    weight_of,
)
from knfleet.hub.grpc.server_certificates import ServerCertificates
from knfleet.hub.grpc.tls_relay import TlsRelay
from knfleet.kube.cache.informer import Informer, without_managed_fields
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.http.liveness import LivenessServer
from knfleet.runtime.manager import Manager

CLIENT = ClientOptions(concurrency=48, user_agent="knfleet-grpc-server")
STOP_SECONDS = 2.0


class GrpcServerSettings(Struct, frozen=True):
    """How the server was asked to run."""

    bind: ListenAddress
    health: ListenAddress | None = None
    namespace: str = HUB_NAMESPACE
    """Where its certificates are."""
    limits: ServiceLimits = ServiceLimits()


class GrpcServer:
    """Everything that the server is."""

    def __init__(self, client: Client, settings: GrpcServerSettings) -> None:
        self.client = client
        self.settings = settings
        indexed = {"cluster": namespace_index}
        self.works = Informer(
            client,
            WORKS,
            trim=pack,
            kept_weight=weight_of,
            indexes={**indexed, "uid": uid_index},
        )
        self.requests = Informer(
            client, CSRS, labels=CLUSTER_NAME_LABEL, indexes={"cluster": label_index}
        )
        self.clusters = Informer(client, CLUSTERS, trim=without_managed_fields)
        self.leases = Informer(
            client,
            LEASES,
            fields=f"metadata.name={LEASE_NAME}",
            trim=without_managed_fields,
            indexes=indexed,
        )
        self.addons = [
            Informer(client, each, trim=without_managed_fields, indexes=indexed)
            for each in (ADDONS, ADDONS_BETA)
        ]
        works = BundleSource(self.works, lambda: datetime.now(UTC))
        sources = [
            works,
            RequestSource(CSRS, self.requests, "cluster"),
            ObjectSource(CLUSTERS, self.clusters),
            ObjectSource(LEASES, self.leases, "cluster"),
            *(ObjectSource(each.resource, each, "cluster") for each in self.addons),
            AnswerSource(TOKEN_REQUESTS),
        ]
        self.broker = Broker({each.data_type: each for each in sources})
        self.relay = TlsRelay(settings.bind, 0)
        self.certificates = ServerCertificates(client, settings.namespace, self.relay.use)
        self.service = EventService(
            self.relay,
            AccessCheck(client),
            self.broker,
            Publications(client, works, self.broker),
            settings.limits,
        )

    @property
    def required(self) -> list[Informer]:
        """What must be known before a call is answered."""
        return [self.works, self.requests, self.clusters, self.leases]

    def start(self, manager: Manager) -> None:
        """Add everything to a manager."""
        watched = [*self.required, *self.addons]
        for each in (*watched, self.certificates.serving, self.certificates.bundle):
            manager.add(each, f"{each.resource.kind} informer")
        manager.add(self, "grpc")

    async def run(self) -> None:
        """Serve calls until cancelled, from when everything is known that they ask for."""
        await asyncio.gather(*(each.synced.wait() for each in self.required))
        limits = self.settings.limits
        server: Any = grpc.aio.server(
            options=server_options(),
            maximum_concurrent_rpcs=limits.streams + 4 * limits.publications_at_once,
        )
        server.add_generic_rpc_handlers((self.service.handlers(),))
        self.relay.target_port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            await self.relay.run()
        finally:
            await server.stop(STOP_SECONDS)

    def readiness_problem(self) -> str | None:
        """Why the server is of no use, if it is of none."""
        failing = next((each.failing for each in self.required if each.failing is not None), None)
        if failing is not None:
            return str(failing)
        return None if self.relay.listening.is_set() else "there is no certificate yet"


async def build(manager: Manager, *, connection: Connection, settings: GrpcServerSettings) -> None:
    """Fill a manager with everything that the server is."""
    start(manager, connection, settings)


def start(manager: Manager, connection: Connection, settings: GrpcServerSettings) -> GrpcServer:
    """A server that is part of a manager."""
    client = Client(connection, CLIENT)
    manager.close_last(client.close)
    server = GrpcServer(client, settings)
    if settings.health is not None:
        manager.add(LivenessServer(settings.health), "health")
    server.start(manager)
    return server


def server_options() -> list[tuple[str, int]]:
    """Limits that the gRPC library enforces."""
    return [
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", 2 * MESSAGE_BYTES),
        ("grpc.max_concurrent_streams", 128),
        ("grpc.max_metadata_size", 32 * 1024),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 5),
        ("grpc.so_reuseport", 0),
    ]
