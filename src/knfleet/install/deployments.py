"""The Deployments of our own image, and the objects that say how it was installed. Pure."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from knfleet import __version__
from knfleet.api.cluster.managedcluster import AGENT_LABELS
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGER, CLUSTER_MANAGERS, OPERATOR_NAMESPACE
from knfleet.hub.webhook.webhook_objects import PORT as WEBHOOK_PORT

IMAGE_NAME = "knfleet"
HEALTH_PORT = 8080
SMALL = {"cpu": "20m", "memory": "96Mi"}
"""What pods ask for when nobody says more."""
HUB_MEMORY, AGENT_MEMORY = "2Gi", "256Mi"
"""What they may have at most when nobody says otherwise: several times what they need."""
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


class HubInstall(Struct, frozen=True):
    """How the hub is to be installed."""

    image: str
    namespace: str = OPERATOR_NAMESPACE
    quality: PodProfile = PodProfile()
    auto_approved: tuple[str, ...] = ()
    feature_gates: tuple[tuple[str, bool], ...] = ()
    releases: str = ""
    """Where Knative's release files are in the pod; empty: where the image has them."""
    check_profile_use: bool = False
    """Whether authors of custom resources need the permission to use their ClusterProfile."""
    agent_labels: tuple[str, ...] = AGENT_LABELS
    """Prefixes of the labels that agents may give their clusters."""


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
    registration: Object = {"registrationDrivers": [driver]}
    if plan.feature_gates:
        registration["featureGates"] = gate_list(plan.feature_gates)
    return {
        "apiVersion": CLUSTER_MANAGERS.api_version,
        "kind": CLUSTER_MANAGERS.kind,
        "metadata": {"name": CLUSTER_MANAGER},
        "spec": {
            "deployOption": {"mode": "Default"},
            "registrationConfiguration": registration,
            "registrationImagePullSpec": plan.image,
            "resourceRequirement": plan.quality.requirement,
        },
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
        ],
        "env": [
            field("SYSTEM_NAMESPACE", "metadata.namespace"),
            field("POD_NAME", "metadata.name"),
        ],
        **probes("/health", "/readiness"),
    }
    container["ports"].append({"name": "webhook", "containerPort": WEBHOOK_PORT})
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
