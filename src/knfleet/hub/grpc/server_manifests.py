"""The gRPC server's workload and Service, as the ClusterManager asks for them. Pure."""

from knfleet.api.meta import Object
from knfleet.api.operator import GRPC_SERVER, HUB_NAMESPACE, ClusterManager
from knfleet.hub.grpc.exposure import LOAD_BALANCER, SERVICE_PORT, exposure
from knfleet.hub.grpc.grpc_names import PORT

HEALTH_PORT = 8080
LABELS = {"app": GRPC_SERVER}
RESOURCES: Object = {
    "limits": {"memory": "1Gi"},
    "requests": {"cpu": "20m", "memory": "96Mi"},
}


def server_image(manager: ClusterManager) -> str:
    """The image of the server: its own if one is given, else the hub's."""
    configured = manager.spec.server_configuration or {}
    return str(configured.get("imagePullSpec") or manager.spec.registration_image_pull_spec)


def server_service(manager: ClusterManager) -> Object:
    """The Service by which agents reach the server."""
    is_balanced = LOAD_BALANCER in exposure(manager).types
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": GRPC_SERVER, "namespace": HUB_NAMESPACE, "labels": LABELS},
        "spec": {
            "type": "LoadBalancer" if is_balanced else "ClusterIP",
            "selector": LABELS,
            "ports": [
                {"name": "grpc", "port": SERVICE_PORT, "targetPort": PORT, "protocol": "TCP"}
            ],
        },
    }


def server_deployment(manager: ClusterManager) -> Object:
    """The workload; replicas share nothing, so a user may scale it."""
    container: Object = {
        "name": "grpc-server",
        "image": server_image(manager),
        "imagePullPolicy": "IfNotPresent",
        "args": ["grpc-server", f"--port={PORT}", f"--listen=:{HEALTH_PORT}"],
        "env": [
            {
                "name": "POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            }
        ],
        "ports": [
            {"name": "grpc", "containerPort": PORT},
            {"name": "health", "containerPort": HEALTH_PORT},
        ],
        "livenessProbe": probe("/healthz"),
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 5},
        "resources": RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        },
    }
    placement = manager.spec.node_placement
    pod: Object = {
        "serviceAccountName": GRPC_SERVER,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    if placement.node_selector:
        pod["nodeSelector"] = dict(placement.node_selector)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": GRPC_SERVER, "namespace": HUB_NAMESPACE, "labels": LABELS},
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def probe(path: str) -> Object:
    """How the kubelet sees whether the server is alive."""
    return {
        "httpGet": {"path": path, "port": HEALTH_PORT},
        "periodSeconds": 5,
        "initialDelaySeconds": 5,
        "failureThreshold": 6,
    }
