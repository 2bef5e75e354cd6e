"""The Deployments of our own image, and the objects that say how it was installed. Pure."""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from knfleet import __version__
from knfleet.api.aws_registration import HubAwsIrsa
from knfleet.api.cluster.managedcluster import AGENT_LABELS
from knfleet.api.cluster.tunnel import (
    AGENT_PORT,
    BY_LOAD_BALANCER,
    FRONT_PORT,
    FRONT_SERVICE,
    TUNNEL_SERVICE,
)
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGER, CLUSTER_MANAGERS, OPERATOR_NAMESPACE
from knfleet.hub.webhook.webhook_objects import PORT as WEBHOOK_PORT

IMAGE_NAME = "knfleet"
HEALTH_PORT = 8080
SMALL = {"cpu": "20m", "memory": "96Mi"}
"""What pods ask for by default."""
HUB_MEMORY, AGENT_MEMORY = "2Gi", "256Mi"
"""What they may have at most by default: several times what they need."""
RESTRICTED: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}

QosClass = Literal["Default", "BestEffort", "ResourceRequirement"]


class PodProfile(Struct, frozen=True):
    """How much our pods may use, and what they are guaranteed."""

    qos: QosClass = "Default"
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}

    def resources(self, memory: str) -> Object:
        """The resources of a container, by default with a limit on its memory."""
        if self.qos == "BestEffort":
            return {}
        small: Object = {"limits": {"memory": memory}, "requests": SMALL}
        return small if self.qos == "Default" else self.amounts

    @property
    def amounts(self) -> Object:
        """What was asked for."""
        asked = {"limits": self.limits, "requests": self.requests}
        return {name: amounts for name, amounts in asked.items() if amounts}

    @property
    def requirement(self) -> Object:
        """The same as ClusterManager and Klusterlet say it."""
        if self.qos != "ResourceRequirement":
            return {"type": self.qos}
        return {"type": self.qos, "resourceRequirements": self.amounts}


class GrpcExposure(Struct, frozen=True):
    """How agents reach the gRPC server."""

    type: str = "hostname"
    """hostname, loadBalancer or route."""
    host: str = ""
    auto_approved: tuple[str, ...] = ()

    @property
    def endpoint(self) -> Object:
        """The entry of a ClusterManager."""
        endpoint: Object = {"type": self.type}
        if self.host:
            endpoint[self.type] = {"host": self.host}
        return {"protocol": "grpc", "usage": "agentToHub", "grpc": endpoint}


class HubInstall(Struct, frozen=True):
    """How the hub is to be installed."""

    image: str
    namespace: str = OPERATOR_NAMESPACE
    quality: PodProfile = PodProfile()
    auto_approved: tuple[str, ...] = ()
    feature_gates: tuple[tuple[str, bool], ...] = ()
    grpc: GrpcExposure | None = None
    """How the gRPC server is exposed; None: clusters do not register over gRPC."""
    aws: HubAwsIrsa | None = None
    """How clusters register by AWS roles; None: they do not."""
    has_csr: bool = True
    """Whether clusters register by certificate requests."""
    releases: str = ""
    """Where Knative's release files are in the pod; empty: where the image has them."""
    check_profile_use: bool = False
    """Whether authors of custom resources need the permission to use their ClusterProfile."""
    agent_labels: tuple[str, ...] = AGENT_LABELS
    """Prefixes of the labels that agents may give their clusters."""
    tunnel_endpoint: str = ""
    """How agents reach the tunnel: host:port, or LoadBalancer; empty: there is no tunnel."""

    tunnel_front: str = ""
    """How consumers reach it: https://host:port; by its Service when empty."""

    @property
    def ports(self) -> list[int]:
        """The ports that the hub's pods are reached at."""
        return [
            HEALTH_PORT,
            WEBHOOK_PORT,
            *((AGENT_PORT, FRONT_PORT) if self.tunnel_endpoint else ()),
        ]


def image_of(registry: str, version: str) -> str:
    """Our image, of a registry or of the nodes' own; `default` is this program's release."""
    tag = {"default": f"v{__version__}", "latest": "latest"}.get(version)
    prefix = f"{registry.rstrip('/')}/" if registry else ""
    return f"{prefix}{IMAGE_NAME}:{tag or 'v' + version.removeprefix('v')}"


def cluster_manager(plan: HubInstall) -> Object:
    """The ClusterManager that says how the hub is installed."""
    driver: Object = {"authType": "csr"}
    if plan.auto_approved:
        driver["csr"] = {"autoApprovedIdentities": list(plan.auto_approved)}
    drivers: list[Object] = [driver] if plan.has_csr else []
    if plan.grpc is not None:
        by_grpc: Object = {"authType": "grpc"}
        if plan.grpc.auto_approved:
            by_grpc["grpc"] = {"autoApprovedIdentities": list(plan.grpc.auto_approved)}
        drivers.append(by_grpc)
    if plan.aws is not None:
        drivers.append({"authType": "awsirsa", "awsirsa": msgspec.to_builtins(plan.aws)})
    registration: Object = {"registrationDrivers": drivers}
    if plan.feature_gates:
        registration["featureGates"] = gate_list(plan.feature_gates)
    spec: Object = {
        "deployOption": {"mode": "Default"},
        "registrationConfiguration": registration,
        "registrationImagePullSpec": plan.image,
        "resourceRequirement": plan.quality.requirement,
    }
    if plan.grpc is not None:
        spec["serverConfiguration"] = {"endpointsExposure": [plan.grpc.endpoint]}
    return {
        "apiVersion": CLUSTER_MANAGERS.api_version,
        "kind": CLUSTER_MANAGERS.kind,
        "metadata": {"name": CLUSTER_MANAGER},
        "spec": spec,
    }


def gate_list(gates: Iterable[tuple[str, bool]]) -> list[Object]:
    """Features as ClusterManager and Klusterlet list them."""
    return [{"feature": name, "mode": "Enable" if on else "Disable"} for name, on in gates]


def hub_deployment(plan: HubInstall) -> Object:
    """The hub as a workload."""
    container: Object = {
        "name": CLUSTER_MANAGER,
        "args": [
            "hub",
            f"--webhook-port={WEBHOOK_PORT}",
            *([f"--releases={plan.releases}"] if plan.releases else []),
            *([f"--tunnel-endpoint={plan.tunnel_endpoint}"] if plan.tunnel_endpoint else []),
            *([f"--tunnel-front={plan.tunnel_front}"] if plan.tunnel_front else []),
        ],
        "env": [
            field("SYSTEM_NAMESPACE", "metadata.namespace"),
            field("POD_NAME", "metadata.name"),
        ],
        **probes("/health", "/readiness"),
    }
    container["ports"].append({"name": "webhook", "containerPort": WEBHOOK_PORT})
    if plan.tunnel_endpoint:
        container["env"].append(field("POD_IP", "status.podIP"))
        container["ports"] += [
            {"name": "tunnel", "containerPort": AGENT_PORT},
            {"name": "tunnel-front", "containerPort": FRONT_PORT},
        ]
    resources = plan.quality.resources(HUB_MEMORY)
    return deployment(CLUSTER_MANAGER, plan.namespace, container, plan.image, resources)


def deployment(
    name: str, namespace: str, container: Object, image: str, resources: Object
) -> Object:
    """A workload of one pod; the ServiceAccount is called like it."""
    labels = {"app": name}
    running: Object = {
        **container,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": resources,
        "securityContext": RESTRICTED,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            # Two agents of one cluster would take turns at being the newest.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": name,
                    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [running],
                },
            },
        },
    }


def tunnel_services(plan: HubInstall) -> list[Object]:
    """The Services of the tunnel: agents may come from outside, consumers are on the hub."""
    if not plan.tunnel_endpoint:
        return []
    outside = plan.tunnel_endpoint == BY_LOAD_BALANCER
    kind = "LoadBalancer" if outside else "ClusterIP"
    return [
        service(TUNNEL_SERVICE, plan.namespace, kind, {"tunnel": AGENT_PORT}),
        service(FRONT_SERVICE, plan.namespace, "ClusterIP", {"tunnel-front": FRONT_PORT}),
    ]


def service(name: str, namespace: str, kind: str, ports: dict[str, int]) -> Object:
    """A Service in front of the hub's pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "type": kind,
            "selector": {"app": CLUSTER_MANAGER},
            "ports": [
                {"name": port, "port": number, "targetPort": port, "protocol": "TCP"}
                for port, number in ports.items()
            ],
        },
    }


def network_policy(name: str, namespace: str, chosen: Object, ports: Iterable[int]) -> Object:
    """Lets others reach some ports of pods, and no more; pods may reach everything.

    Where they connect to is not known here: API servers have any address.
    """
    opened = [{"port": port, "protocol": "TCP"} for port in ports]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": chosen},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": opened}],
        },
    }


def field(name: str, path: str) -> Object:
    """A variable that tells a pod about itself."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def probes(live: str, ready: str) -> Object:
    """How the kubelet sees whether a container is well."""

    def at(path: str) -> Object:
        return {"httpGet": {"path": path, "port": HEALTH_PORT}, "periodSeconds": 5}

    return {
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        "livenessProbe": {**at(live), "initialDelaySeconds": 5, "failureThreshold": 6},
        "readinessProbe": at(ready),
    }
