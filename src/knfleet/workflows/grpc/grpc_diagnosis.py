"""What is wrong with registration over gRPC, for `knfleet doctor`.

`observe_grpc` looks; `grpc_findings` is pure, in the order in which things depend on each other.
"""

import base64
from collections.abc import Mapping
from datetime import datetime

from cryptography import x509
from msgspec import Struct

from knfleet.agent.grpc.grpc_config import GrpcConfig, read_config
from knfleet.api.core import CONFIG_MAPS, PODS, SECRETS, SERVICES
from knfleet.api.operator import (
    BOOTSTRAP_SECRET,
    CLUSTER_MANAGER,
    CLUSTER_MANAGERS,
    GRPC_SERVER,
    HUB_NAMESPACE,
    ClusterManager,
)
from knfleet.api.schema import decode
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.certificates.port_certificates import served_names
from knfleet.hub.grpc.exposure import exposure, is_enabled
from knfleet.hub.grpc.grpc_names import BUNDLE_CONFIG_MAP, BUNDLE_KEY, SERVING_SECRET
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import ConfigError, KubeError, NotFound

DRIVER = "spec.registrationConfiguration.registrationDrivers of the ClusterManager"


class GrpcState(Struct, frozen=True):
    """What was seen of gRPC on the hub, and of the agent's way to it on the spoke."""

    enabled: bool = False
    problem: str = ""
    """What is wrong with the endpoints in the ClusterManager."""
    pods: Mapping[str, str] = {}
    service: str = ""
    """The type of the Service; empty when there is none."""
    addresses: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """What the server's certificate is valid for."""
    ends: datetime | None = None
    bundle: bytes = b""
    config: GrpcConfig | None = None
    """What the agent was given."""


class GrpcFinding(Struct, frozen=True):
    """One thing that was looked at; without a remedy it is as it should be."""

    what: str
    seen: str
    remedy: str = ""


async def observe_grpc(hub: Client) -> GrpcState:
    """What the hub shows of its gRPC server."""
    try:
        manager = decode(await hub.get(CLUSTER_MANAGERS, CLUSTER_MANAGER), ClusterManager)
    except NotFound:
        return GrpcState()
    if not is_enabled(manager):
        return GrpcState()
    pods = (await hub.list(PODS, HUB_NAMESPACE, labels=f"app={GRPC_SERVER}")).items
    services = await hub.list(SERVICES, HUB_NAMESPACE, fields=f"metadata.name={GRPC_SERVER}")
    service = services.items[0] if services.items else {}
    ingress = items(service, "status", "loadBalancer", "ingress")
    certificate = await serving_certificate(hub)
    return GrpcState(
        enabled=True,
        problem=exposure(manager).problem,
        pods={each["metadata"]["name"]: part(each, "status").get("phase", "") for each in pods},
        service=str(part(service, "spec").get("type", "")),
        addresses=tuple(str(each.get("hostname") or each.get("ip") or "") for each in ingress),
        names=() if certificate is None else tuple(served_names(certificate)),
        ends=None if certificate is None else certificate.not_valid_after_utc,
        bundle=await published_bundle(hub),
    )


async def serving_certificate(hub: Client) -> x509.Certificate | None:
    """The server's certificate."""
    try:
        found = await hub.get(SECRETS, SERVING_SECRET, HUB_NAMESPACE)
        return x509.load_pem_x509_certificate(base64.b64decode(part(found, "data")["tls.crt"]))
    except (KubeError, KeyError, ValueError):
        return None


async def published_bundle(hub: Client) -> bytes:
    """The CA that agents are to trust; empty when there is none."""
    try:
        found = await hub.get(CONFIG_MAPS, BUNDLE_CONFIG_MAP, HUB_NAMESPACE)
    except KubeError:
        return b""
    return str(part(found, "data").get(BUNDLE_KEY, "")).encode()


async def given_config(spoke: Client, namespace: str) -> GrpcConfig | None:
    """The address of the gRPC server in the configuration of a spoke's agent."""
    try:
        found = await spoke.get(SECRETS, BOOTSTRAP_SECRET, namespace)
        text = base64.b64decode(part(found, "data").get("config.yaml", ""))
        return read_config(text, BOOTSTRAP_SECRET)
    except (KubeError, ConfigError, ValueError):
        return None


def grpc_findings(seen: GrpcState, auth_type: str, now: datetime) -> list[GrpcFinding]:
    """Everything that there is to say; nothing when gRPC is neither offered nor asked for."""
    if not seen.enabled:
        if auth_type != "grpc":
            return []
        text = "the Klusterlet asks for it, and the hub does not offer it"
        return [GrpcFinding("gRPC driver", text, f"add authType grpc to {DRIVER}")]
    return [
        GrpcFinding("gRPC driver", "the hub offers it"),
        endpoint(seen),
        server(seen),
        certificate(seen, now),
        *agent_way(seen, auth_type),
    ]


def endpoint(seen: GrpcState) -> GrpcFinding:
    """Whether agents find the server."""
    if seen.problem:
        return GrpcFinding("gRPC endpoint", seen.problem, "correct the ClusterManager")
    if not seen.service:
        remedy = "check the log of the hub; run `knfleet init` again if rights are missing"
        return GrpcFinding("gRPC endpoint", f"there is no Service {GRPC_SERVER}", remedy)
    if seen.service == "LoadBalancer" and not seen.addresses:
        remedy = f"kubectl -n {HUB_NAMESPACE} describe service {GRPC_SERVER}"
        return GrpcFinding("gRPC endpoint", "the load balancer has no address yet", remedy)
    return GrpcFinding("gRPC endpoint", ", ".join(seen.addresses) or seen.service)


def server(seen: GrpcState) -> GrpcFinding:
    """How the server's pods are."""
    text = ", ".join(f"{name} {state}" for name, state in sorted(seen.pods.items()))
    if not any(state == "Running" for state in seen.pods.values()):
        remedy = f"kubectl -n {HUB_NAMESPACE} describe deployment {GRPC_SERVER}, and see its log"
        return GrpcFinding("gRPC server", text or "it has no pods", remedy)
    return GrpcFinding("gRPC server", text)


def certificate(seen: GrpcState, now: datetime) -> GrpcFinding:
    """Whether the server's certificate and its CA are there and valid."""
    if seen.ends is None or not seen.bundle:
        remedy = f"check the log of the hub, and Secret signer-secret in {HUB_NAMESPACE}"
        return GrpcFinding("gRPC certificate", "certificate or CA is missing", remedy)
    text = f"for {', '.join(seen.names)} until {seen.ends:%Y-%m-%d %H:%M:%S} UTC"
    if seen.ends <= now:
        return GrpcFinding("gRPC certificate", text, "it has expired: check the log of the hub")
    return GrpcFinding("gRPC certificate", text)


def agent_way(seen: GrpcState, auth_type: str) -> list[GrpcFinding]:
    """Whether what the agent was given leads to the server."""
    config = seen.config
    if auth_type != "grpc" or config is None:
        return []
    host = config.url.rpartition(":")[0].strip("[]")
    if seen.names and host not in seen.names:
        remedy = "join again with a --grpc-server that the certificate has, or add it as a host"
        text = f"the agent calls {host}, which is not in the certificate"
        return [GrpcFinding("gRPC address", text, remedy)]
    if seen.bundle and not set(split(config.ca)) & set(split(seen.bundle)):
        remedy = f"join again with --grpc-ca-file of ConfigMap {BUNDLE_CONFIG_MAP}"
        return [GrpcFinding("gRPC address", "the agent trusts another CA", remedy)]
    return [GrpcFinding("gRPC address", config.url)]


def split(bundle: bytes) -> list[bytes]:
    """The certificates of a bundle."""
    return [each.strip() for each in bundle.split(b"-----END CERTIFICATE-----") if each.strip()]
