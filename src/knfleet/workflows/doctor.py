"""Looks at a cluster from both sides, for `knfleet doctor`."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from knfleet.api.cluster.access import ACCESS_SECRET
from knfleet.api.cluster.managedcluster import CLUSTERS, LEASE_NAME, ManagedCluster
from knfleet.api.cluster.tunnel import TUNNEL_LEASE
from knfleet.api.core import LEASES, NAMESPACES, PODS, SECRETS
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import ClusterName, Object
from knfleet.api.operator import HUB_SECRET, KLUSTERLETS, OPERATOR_NAMESPACE, Klusterlet
from knfleet.api.schema import decode
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.tunnel.holder_lease import holder
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import KubeError, NotFound
from knfleet.kube.untrusted_json import decode_json
from knfleet.workflows.accept_clusters import pending_requests
from knfleet.workflows.cluster_reach import ClusterReach, reach
from knfleet.workflows.detach import listed, plan_for
from knfleet.workflows.diagnosis import DiagnosisInput
from knfleet.workflows.grpc.grpc_diagnosis import given_config, observe_grpc
from knfleet.workflows.hub_discovery import BRIEF

LOG_LINES = 200
SPOKE = ClusterName("spoke")


async def observe_hub(hub: Client, name: str) -> DiagnosisInput:
    """What the hub shows of a cluster."""
    try:
        cluster = decode(await hub.get(CLUSTERS, name), ManagedCluster)
    except NotFound:
        return DiagnosisInput(name, grpc=await observe_grpc(hub))
    leases = await hub.list(LEASES, name, fields=f"metadata.name={LEASE_NAME}")
    times = [part(each, "spec").get("renewTime") for each in leases.items]
    access = await hub.list(SECRETS, name, fields=f"metadata.name={ACCESS_SECRET}")
    reached = await reach_of(hub, name)
    # Through the tunnel, the address that was handed over is of no use from here.
    is_tried = bool(access.items) and reached is None
    return DiagnosisInput(
        name,
        cluster,
        pending=len(await pending_requests(hub, name)),
        renewed=datetime.fromisoformat(times[0]) if times and times[0] else None,
        hands_over=any("token" in part(each, "data") for each in access.items),
        unreached=await unreached(part(access.items[0], "data")) if is_tried else "",
        tunnel=reached,
        grpc=await observe_grpc(hub),
    )


async def reach_of(hub: Client, name: str) -> ClusterReach | None:
    """How the tunnel of a cluster stands; None when the cluster is reached directly."""
    profiles = await hub.list(PROFILES, OPERATOR_NAMESPACE, fields=f"metadata.name={name}")
    leases = await hub.list(LEASES, name, fields=f"metadata.name={TUNNEL_LEASE}")
    held = holder(leases.items[0]) if leases.items else None
    found = reach(name, profiles.items[0] if profiles.items else None, held)
    return found if found.by_tunnel else None


async def unreached(data: Mapping[str, str]) -> str:
    """Why a cluster does not answer to the token that was handed over; empty when it does."""
    access = {name: base64.b64decode(text) for name, text in data.items()}
    if "token" not in access or "server" not in access:
        return ""
    proxy = access.get("proxy-url", b"").decode() or None
    name = access.get("tls-server-name", b"").decode() or None
    endpoint = Endpoint(access["server"].decode(), access.get("ca.crt"), proxy, name)
    login = StaticCredential(Credential(token=access["token"].decode()))
    try:
        async with Client(Connection(SPOKE, endpoint, login), BRIEF) as client:
            await client.list(NAMESPACES, metadata_only=True, limit=1)
    except KubeError as error:
        return str(error)
    return ""


async def observe_spoke(spoke: Client, seen: DiagnosisInput) -> DiagnosisInput:
    """What the spoke shows beside."""
    found = [decode(each, Klusterlet) for each in await listed(spoke, KLUSTERLETS)]
    mine = [each for each in found if each.spec.cluster_name == seen.name]
    seen = replace(seen, spoke=True)
    if not mine:
        return seen
    plan = plan_for(mine[0])
    pods = (await spoke.list(PODS, plan.namespace, labels=f"app={plan.workload}")).items
    return replace(
        seen,
        klusterlet=mine[0],
        pods={each["metadata"]["name"]: state_of(each) for each in pods},
        log=await last_error(spoke, pods),
        certificate_ends=await certificate_end(spoke, plan.namespace),
        grpc=replace(seen.grpc, config=await given_config(spoke, plan.namespace)),
    )


def state_of(pod: Object) -> str:
    """What a pod is, in a word."""
    for container in items(pod, "status", "containerStatuses"):
        waiting = part(container, "state", "waiting")
        if waiting:
            return str(waiting.get("reason", "waiting"))
    return str(part(pod, "status").get("phase", "unknown"))


async def last_error(spoke: Client, pods: list[Object]) -> str:
    """The last error or warning that the agent logged."""
    for pod in pods:
        path = PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"], "log")
        try:
            text = await spoke.raw("GET", f"{path}?tailLines={LOG_LINES}", deadline=10)
        except KubeError:
            continue
        for line in reversed(text.splitlines()):
            if found := complaint(line):
                return found
    return ""


def complaint(line: bytes) -> str:
    """What a line of the log complains of; empty when it does not."""
    try:
        fields = decode_json(line, dict[str, object])
    except msgspec.DecodeError:
        return ""
    if fields.get("level") not in ("error", "warning", "critical"):
        return ""
    access = [str(fields[name]) for name in ("event", "error", "why", "remedy") if fields.get(name)]
    return f"{fields.get('timestamp', '')} {': '.join(access)}".strip()


async def certificate_end(spoke: Client, namespace: str) -> datetime | None:
    """When the agent's certificate ends."""
    from cryptography import x509

    try:
        secret = await spoke.get(SECRETS, HUB_SECRET, namespace)
        pem = base64.b64decode(part(secret, "data").get("tls.crt", ""))
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc.astimezone(UTC)
    except (KubeError, ValueError):
        return None
