"""Kourier: its gateway's Service, and where its parts look for one another."""

from knfleet.api.knative.ingress import KourierIngress
from knfleet.api.meta import Object
from knfleet.render.drafts import Draft, as_map
from knfleet.render.errors import BadField
from knfleet.render.overrides.pod_templates import containers, pod_path, put_env
from knfleet.render.ownership import COMPONENT_LABELS

FIELD = "spec.ingress.kourier"
BOOTSTRAP = "kourier-bootstrap"
SERVICE_TYPES = ("ClusterIP", "LoadBalancer", "NodePort")


def place_controller(draft: Draft) -> None:
    """Tell Kourier's controller where its gateway is now."""
    if draft.named("apps", "Deployment", "3scale-kourier-control", "net-kourier-controller"):
        where = {"name": "KOURIER_GATEWAY_NAMESPACE", "value": draft.namespace}
        for container in containers(draft):
            put_env(draft, container, where)


def place_bootstrap(draft: Draft) -> None:
    """Tell Envoy where Kourier's controller is now."""
    if draft.named("", "ConfigMap", BOOTSTRAP):
        data = draft.section("data")
        text = data.get("envoy-bootstrap.yaml")
        if isinstance(text, str):
            home = COMPONENT_LABELS["serving"]
            data["envoy-bootstrap.yaml"] = text.replace(home, draft.namespace)


def configure_service(draft: Draft, kourier: KourierIngress) -> None:
    """Type, address and node ports of the gateway's Service."""
    if not draft.named("", "Service", "kourier"):
        return
    spec = draft.section("spec")
    if kourier.service_type:
        spec["type"] = checked_type(kourier.service_type)
    type_ = spec.get("type", "ClusterIP")
    if kourier.service_load_balancer_ip:
        if type_ != "LoadBalancer":
            problem = f'cannot configure LoadBalancerIP for service type "{type_}"'
            address = kourier.service_load_balancer_ip
            raise BadField(f"{FIELD}.service-load-balancer-ip", address, problem)
        spec["loadBalancerIP"] = kourier.service_load_balancer_ip
    if kourier.http_port or kourier.https_port:
        if type_ != "NodePort":
            field = "http-port" if kourier.http_port else "https-port"
            problem = f'cannot configure HTTP(S)Port for service type "{type_}"'
            raise BadField(f"{FIELD}.{field}", kourier.http_port or kourier.https_port, problem)
        set_node_ports(draft.entries("spec", "ports"), kourier)


def checked_type(type_: str) -> str:
    """The type, if it is one that the gateway's Service can have."""
    if type_ in SERVICE_TYPES:
        return type_
    known = "unsupported" if type_ == "ExternalName" else "unknown"
    raise BadField(f"{FIELD}.service-type", type_, f'{known} service type "{type_}"')


def set_node_ports(ports: list[Object], kourier: KourierIngress) -> None:
    for port in ports:
        number = kourier.https_port if port.get("name") == "https" else kourier.http_port
        if number:
            port["nodePort"] = number


def use_bootstrap(draft: Draft, config_map: str) -> None:
    """Let the gateway start with another bootstrap configuration."""
    if draft.named("apps", "Deployment", "3scale-kourier-gateway"):
        for volume in draft.entries(*pod_path(draft), "volumes"):
            source = as_map(volume.get("configMap"))
            if source.get("name") == BOOTSTRAP:
                source["name"] = config_map
