"""What is behind the addresses of a cluster: Services, pods and the node's kubelet."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from knfleet.api.meta import Key, Object
from knfleet.dev.node.addresses import KUBELET_PORT, NODE_ADDRESS
from knfleet.dev.node.pods.pod_manifests import (
    TERMINAL,
    containers_of,
    init_containers_of,
    is_ready,
    is_terminating,
    labels_of,
    phase_of,
    rows,
    selects,
    status_of,
    table,
)


class PodPort(Struct, frozen=True):
    """A port of one pod."""

    pod: Object
    port: int
    service: Key | None = None
    """The Service by which the pod was found."""


class Kubelet(Struct, frozen=True):
    """The node's own endpoint for logs."""


class NoEndpoint(Struct, frozen=True):
    """Nothing is there, and why."""

    why: str


class Network:
    """The addresses of one cluster."""

    def __init__(
        self,
        services: Callable[[], Iterable[Object]],
        pods: Callable[[str], list[Object]],
        all_pods: Callable[[], Iterable[Object]],
    ) -> None:
        self.services = services
        self.pods = pods
        """The pods of a namespace."""
        self.all_pods = all_pods

    def find(self, host: str, port: int) -> PodPort | Kubelet | NoEndpoint:
        """What a connection to an address or Service name should reach."""
        if host == NODE_ADDRESS and port == KUBELET_PORT:
            return Kubelet()
        for service in self.services():
            if is_named(service, host):
                return self.behind(service, port)
        for pod in self.all_pods():
            if status_of(pod).get("podIP") == host and phase_of(pod) not in TERMINAL:
                return PodPort(pod, port)
        return NoEndpoint(f"{host} is neither a Service, a pod nor the node of this cluster")

    def behind(self, service: Object, port: int) -> PodPort | NoEndpoint:
        """The ready pod behind a Service's port."""
        key = Key.of(service)
        ports = [each for each in rows(service["spec"].get("ports")) if each["port"] == port]
        if not ports:
            return NoEndpoint(f"the Service {key} has no port {port}")
        unready = bool(service["spec"].get("publishNotReadyAddresses"))
        for pod in self.selected(service):
            if (is_ready(pod) or unready) and not is_terminating(pod):
                number = target_port(ports[0], pod)
                if number is not None:
                    return PodPort(pod, number, key)
        return NoEndpoint(f"connection refused: no ready pod behind the Service {key}")

    def selected(self, service: Object) -> list[Object]:
        """The pods that a Service selects and that have not ended."""
        selector = table(service["spec"].get("selector"))
        return [
            pod
            for pod in self.pods(service["metadata"]["namespace"])
            if selects(selector, labels_of(pod)) and phase_of(pod) not in TERMINAL
        ]


def is_named(service: Object, host: str) -> bool:
    """Whether a host is one of a Service's addresses or names."""
    spec, meta = service["spec"], service["metadata"]
    if host != "None" and host in {spec.get("clusterIP"), *(spec.get("clusterIPs") or ())}:
        return True
    base = f"{meta['name']}.{meta['namespace']}"
    return host in {base, f"{base}.svc", f"{base}.svc.cluster.local"}


def target_port(service_port: Object, pod: Object) -> int | None:
    """The number of the pod's port that a Service's port means; None if the pod lacks the name."""
    target = service_port.get("targetPort") or service_port["port"]
    if isinstance(target, int):
        return target
    for container in (*containers_of(pod), *init_containers_of(pod)):
        for each in rows(container.get("ports")):
            if each.get("name") == target:
                return each["containerPort"]
    return None
