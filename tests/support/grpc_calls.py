"""Calls to a gRPC server by any identity, also by those that it must refuse."""

import base64
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from knfleet.agent.grpc.event_channel import EventChannel, GrpcIdentity, ResyncEnd
from knfleet.agent.grpc.grpc_config import GrpcConfig
from knfleet.api.cluster.managedcluster import (
    CLUSTERS,
    GROUP_PREFIX,
    LEASE_NAME,
    MANAGED_CLUSTERS,
    agent_user,
)
from knfleet.api.core import LEASES, SECRETS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import HUB_NAMESPACE
from knfleet.cloudevents.cloud_event import CloudEvent
from knfleet.cloudevents.event_types import SPEC, DataType, EventType, data_type
from knfleet.cloudevents.object_events import object_event
from knfleet.hub.certificates.port_certificates import key_of
from knfleet.hub.grpc.grpc_names import SIGNER_SECRET
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound
from testbed.grpc_servers import RunningServer
from testbed.waiting import until

DAY = timedelta(days=1)


class CertificateMaker:
    """Signs client certificates by the CA of a hub, or by one of its own."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self.key = key

    @classmethod
    async def of(cls, hub: Client) -> "CertificateMaker":
        """With the CA of a hub."""
        found = await hub.get(SECRETS, SIGNER_SECRET, HUB_NAMESPACE)
        pair = [base64.b64decode(found["data"][name]) for name in ("tls.crt", "tls.key")]
        return cls(x509.load_pem_x509_certificate(pair[0]), key_of(pair[1]))

    def identity(
        self,
        cluster: str,
        *,
        user: str = "",
        groups: tuple[str, ...] | None = None,
        ends: timedelta = DAY,
    ) -> GrpcIdentity:
        """The identity of a cluster's agent, or one with another name or other groups."""
        if groups is None:
            groups = (f"{GROUP_PREFIX}{cluster}", MANAGED_CLUSTERS)
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
            name = user or agent_user(cluster, "a1")
            parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
            made = (
                x509.CertificateBuilder()
                .subject_name(x509.Name(parts))
                .issuer_name(self.certificate.subject)
                .public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - 2 * DAY)
                .not_valid_after(now + ends)
                .add_extension(
                    x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
                )
                .sign(self.key, hashes.SHA256())
            )
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return GrpcIdentity(made.public_bytes(serialization.Encoding.PEM), pem)


@asynccontextmanager
async def calling(
    server: RunningServer, identity: GrpcIdentity, cluster: str = "c1"
) -> AsyncGenerator[EventChannel]:
    """A client of the server with an identity."""
    channel = EventChannel(GrpcConfig(server.url, server.ca), cluster, "test", lambda: identity)
    try:
        yield channel
    finally:
        await channel.close()


def event_of(
    resource: Resource, action: str, manifest: Object, *, cluster: str = "c1", part: str = SPEC
) -> CloudEvent:
    """An event with an object, for a cluster."""
    kind = EventType(data_type(resource), part, action)
    return object_event(kind, resource, manifest, source="test", cluster=cluster)


async def refusal(channel: EventChannel, event: CloudEvent) -> str:
    """Why an event is refused; empty when it is taken."""
    try:
        await channel.publish(event)
    except KubeError as error:
        return str(error) or type(error).__name__
    return ""


async def subscription_refusal(channel: EventChannel, wanted: DataType) -> str:
    """Why a subscription is refused; empty when it is answered."""
    try:
        async with channel.following(wanted, {}) as events:
            async for each in events:
                if isinstance(each, ResyncEnd):
                    return ""
    except KubeError as error:
        return str(error) or type(error).__name__
    return ""


async def accepted_cluster(hub: Client, name: str) -> None:
    """A cluster that the hub has accepted, and given rights to."""
    meta = {"name": name}
    manifest = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": meta}
    await hub.create(CLUSTERS, {**manifest, "spec": {"hubAcceptsClient": False}})
    await hub.patch(CLUSTERS, Key("", name), {"spec": {"hubAcceptsClient": True}})

    async def has_lease() -> bool:
        try:
            await hub.get(LEASES, LEASE_NAME, name)
        except NotFound:
            return False
        return True

    await until(has_lease, f"{name} has a Lease")
