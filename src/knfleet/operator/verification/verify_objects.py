"""What a verification makes on a target, and what it reads of it. Pure.

Whatever a target says is checked before it becomes a part of a request.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import SplitResult, quote, urlsplit

from msgspec import Struct

from knfleet.api.core import PODS, SERVICES
from knfleet.api.knative.resources import Component
from knfleet.api.knative.verification import (
    BROKERS,
    KSERVICES,
    TRIGGERS,
    VERIFY_LABEL,
    VerifyRequest,
)
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.operator.verification.verify_images import PORT, container, listen_port

HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,4})?")
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
PATH = re.compile(r"(/[a-z0-9][a-z0-9.-]{0,252}){1,4}")
"""The path of a Broker: names, so that it never leads out of what the proxy is asked for."""
SUBSCRIBER = "verify-subscriber"
"""The pod that events must reach, and its Service; one name, for a right to name it."""
LOG_PATH = f"/api/v1/namespaces/{{}}/pods/{SUBSCRIBER}/log?tailLines=1000&limitBytes=262144"
EVENT_TYPE = "dev.knfleet.verify"
MANAGED_BY = {"app.kubernetes.io/managed-by": "knfleet"}
TEMPORARY = "temporary"
"""Value of the label on a namespace that goes with the verification."""
SIMULATED_ID = "simulated://"
"""How the container IDs of pods begin that a dev node only reports."""


class UnusableAnswer(Exception):
    """A target says something with which a verification cannot go on."""


class ServiceRoute(Struct, frozen=True):
    """How a host is reached through a Service of the target."""

    host: str
    service: Key
    port: int = 80
    path: str = "/"

    @property
    def proxy_name(self) -> str:
        """The name by which the API server's proxy, and RBAC, know the Service's port."""
        return f"{self.service.name}:{self.port}"

    @property
    def proxy_path(self) -> str:
        """The path of the API server that leads to the Service."""
        start = f"/api/v1/namespaces/{self.service.namespace}/services/{self.proxy_name}/proxy"
        return start + quote(self.path)

    def __str__(self) -> str:
        return f"http://{self.host}{self.path} through Service {self.service}"


def verify_namespace(component: Component) -> str:
    """Where the objects are; one for each component, for both may be verified at once."""
    return f"knfleet-verify-{component}"


def namespace_manifest(component: Component) -> Object:
    """The namespace, made for the verification alone."""
    labels = {**MANAGED_BY, VERIFY_LABEL: TEMPORARY}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": verify_namespace(component), "labels": labels},
    }


def is_temporary(namespace: Object) -> bool:
    """Whether a namespace was made for verifications alone."""
    return part(namespace, "metadata", "labels").get(VERIFY_LABEL) == TEMPORARY


def service_manifest(name: str, image: str, request: VerifyRequest) -> Object:
    """The Knative Service."""
    made = container(name, image, request)
    if listen_port(image) != PORT:
        made["ports"] = [{"containerPort": listen_port(image)}]
    return {
        **manifest_of(KSERVICES, name, "serving"),
        "spec": {
            "template": {
                "metadata": {"labels": labels(name)},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "containers": [made],
                },
            }
        },
    }


def broker_manifest(name: str) -> Object:
    """The Broker, of the class that is the default on the target."""
    return {**manifest_of(BROKERS, name, "eventing"), "spec": {}}


def trigger_manifest(name: str) -> Object:
    """The Trigger that brings events of the Broker to the subscriber."""
    reference = {"apiVersion": SERVICES.api_version, "kind": SERVICES.kind, "name": SUBSCRIBER}
    spec: Object = {
        "broker": name,
        "filter": {"attributes": {"type": EVENT_TYPE}},
        "subscriber": {"ref": reference, "uri": f"/{name}"},
    }
    return {**manifest_of(TRIGGERS, name, "eventing"), "spec": spec}


def subscriber_manifests(name: str, image: str, request: VerifyRequest) -> list[Object]:
    """The pod that writes into its log which events arrive, and its Service."""
    port = listen_port(image)
    made: Object = {
        "name": "subscriber",
        **container(name, image, request),
        "env": [{"name": "PORT", "value": str(port)}],
        "ports": [{"containerPort": port}],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [made],
    }
    service: Object = {"selector": labels(name), "ports": [{"port": 80, "targetPort": port}]}
    return [
        {**manifest_of(PODS, name, "eventing", SUBSCRIBER), "spec": pod},
        {**manifest_of(SERVICES, name, "eventing", SUBSCRIBER), "spec": service},
    ]


def manifest_of(resource: Resource, run: str, component: Component, name: str = "") -> Object:
    """The head of an object of a run; it has the name of the run unless it has its own."""
    meta = {"name": name or run, "namespace": verify_namespace(component), "labels": labels(run)}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


def labels(name: str) -> dict[str, str]:
    """Labels by which leftovers are found."""
    return {**MANAGED_BY, VERIFY_LABEL: name}


def readiness(manifest: Object) -> tuple[bool, str]:
    """Whether an object of Knative is ready as it is now, and what its condition says if not."""
    status = part(manifest, "status")
    found = [each for each in tables(status, "conditions") if each.get("type") == "Ready"]
    if status.get("observedGeneration") != manifest["metadata"].get("generation"):
        return False, "its controller has not looked at it yet"
    if not found:
        return False, "it has no condition Ready"
    if found[0].get("status") == "True":
        return True, ""
    return False, str(found[0].get("message") or found[0].get("reason") or "not Ready")


def pod_readiness(pod: Object) -> tuple[bool, str]:
    """Whether a pod is ready, and what it waits for if not."""
    status = part(pod, "status")
    found = {each.get("type"): each for each in tables(status, "conditions")}
    if found.get("Ready", {}).get("status") == "True":
        return True, ""
    states = [part(each, "state", "waiting") for each in tables(status, "containerStatuses")]
    texts = [(str(each.get("reason") or ""), str(each.get("message") or "")) for each in states]
    waits = [": ".join(filter(None, each)) for each in texts if any(each)]
    unscheduled = str(found.get("PodScheduled", {}).get("message") or "")
    return False, (waits or [unscheduled or "no kubelet has reported it yet"])[0]


def ingress_route(service: Object, ingress: Object) -> ServiceRoute:
    """How a request reaches a Knative Service through the ingress; raises `UnusableAnswer`.

    A route with TLS is asked for at its address inside the cluster: the proxy of an API server
    cannot send the name that the ingress needs to choose a certificate.
    """
    status = part(service, "status")
    url = split(str(status.get("url", "")))
    if url.scheme == "http" and (route := load_balancer(ingress, "publicLoadBalancer", url.netloc)):
        return route
    address = split(str(part(status, "address").get("url", "")))
    if address.scheme == "http" and (
        route := load_balancer(ingress, "privateLoadBalancer", address.netloc)
    ):
        return route
    raise UnusableAnswer(
        f"Ingress {Key.of(ingress)} shows no Service inside the cluster through which"
        f" {printable(str(status.get('url', '')))} could be asked for over HTTP"
    )


def load_balancer(ingress: Object, field: str, host: str) -> ServiceRoute | None:
    """The Service behind a load balancer of an ingress."""
    for each in tables(ingress, "status", field, "ingress"):
        internal = str(each.get("domainInternal") or "")
        name, _, rest = internal.partition(".")
        namespace, _, suffix = rest.partition(".")
        is_name = LABEL.fullmatch(name) and LABEL.fullmatch(namespace)
        if is_name and suffix.startswith("svc") and HOST.fullmatch(host):
            return ServiceRoute(host, Key(namespace, name))
    return None


def broker_route(broker: Object) -> ServiceRoute:
    """How an event reaches a Broker; raises `UnusableAnswer`."""
    text = str(part(broker, "status", "address").get("url", ""))
    url = split(text)
    name, _, rest = url.netloc.partition(".")
    namespace, _, suffix = rest.partition(".")
    if (
        url.scheme == "http"
        and LABEL.fullmatch(name)
        and LABEL.fullmatch(namespace)
        and suffix.startswith("svc")
        and HOST.fullmatch(url.netloc)
        and PATH.fullmatch(url.path)
    ):
        port = int(url.netloc.partition(":")[2] or 80)
        return ServiceRoute(url.netloc, Key(namespace, name), port, url.path)
    raise UnusableAnswer(
        f"Broker {Key.of(broker)} has the address {printable(text) or 'nothing'}; only a Service of"
        " the cluster over HTTP can be verified"
    )


def simulated_pods(pods: Sequence[Object]) -> list[str]:
    """The names of pods that a dev node only reports, and that never run."""
    return sorted(
        pod["metadata"]["name"]
        for pod in pods
        if any(
            str(each.get("containerID", "")).startswith(SIMULATED_ID)
            for each in tables(pod, "status", "containerStatuses")
        )
    )


def tables(value: Object, *names: str) -> list[Object]:
    """The objects in a list that a target sent; what else is in it says nothing."""
    found = cast("list[Any]", items(value, *names))
    return [each for each in found if isinstance(each, dict)]


def split(text: str) -> SplitResult:
    """An address in its parts; nothing when it is not one."""
    try:
        return urlsplit(text)
    except ValueError:
        return SplitResult("", "", "", "", "")


def event_headers(name: str, host: str) -> Mapping[str, str]:
    """The attributes of the event that is sent, in binary mode."""
    return {
        "Host": host,
        "Content-Type": "application/json",
        "ce-specversion": "1.0",
        "ce-id": name,
        "ce-source": "/knfleet/verify",
        "ce-type": EVENT_TYPE,
    }


def printable(text: str, limit: int = 200) -> str:
    """Text of a target as it may appear in a message."""
    shown = "".join(each if each.isprintable() else " " for each in text[: limit + 1])
    return f"{shown[:limit]}…" if len(shown) > limit else shown
