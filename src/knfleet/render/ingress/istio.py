"""Istio's gateways, and the Service in front of the local one."""

from typing import Any, cast

import msgspec

from knfleet.api.knative.ingress import TLS_MODES, GatewayOverride, IstioIngress, Server
from knfleet.api.knative.resources import ServingSpec
from knfleet.api.meta import Object
from knfleet.kube.yaml import YamlError, load
from knfleet.render.drafts import Draft, as_map, in_order
from knfleet.render.errors import BadField

INGRESS = "knative-ingress-gateway"
LOCAL = "knative-local-gateway"
OLD_LOCAL = "cluster-local-gateway"
ISTIO_NAMESPACE = "istio-system"
PROTOCOLS = {1: "TLSV1_0", 2: "TLSV1_1", 3: "TLSV1_2", 4: "TLSV1_3"}


def override_gateway(draft: Draft, istio: IstioIngress) -> None:
    """Replace selector and servers of Knative's two gateways."""
    if draft.kind != "Gateway" or draft.group != "networking.istio.io":
        return
    name, override = gateway_override(draft.released, istio)
    if override is None:
        return
    spec = draft.section("spec")
    if override.selector:
        spec["selector"] = in_order(override.selector)
    if override.servers:
        field = f"spec.ingress.istio.{name}.servers"
        spec["servers"] = [
            server_manifest(server, f"{field}[{place}]", draft.released)
            for place, server in enumerate(override.servers)
        ]


def gateway_override(name: str, istio: IstioIngress) -> tuple[str, GatewayOverride | None]:
    """The override for a gateway, and the field in which it is."""
    if name == INGRESS:
        return INGRESS, istio.ingress_gateway
    if name in (LOCAL, OLD_LOCAL):
        return LOCAL, istio.local_gateway
    return "", None


def server_manifest(server: Server, field: str, gateway: str) -> Object:
    """A server as Istio writes it."""
    manifest: Object = msgspec.to_builtins(server)
    port = as_map(manifest.get("port"))
    if "target_port" in port:
        port["targetPort"] = port.pop("target_port")
    tls = as_map(manifest.get("tls"))
    mode = tls.get("mode", "")
    if mode and mode not in TLS_MODES:
        problem = (
            f'failed to convert servers override for gateway "{gateway}": '
            f'unknown TLS mode "{mode}": must be one of {", ".join(TLS_MODES)}'
        )
        raise BadField(f"{field}.tls.mode", mode, problem)
    for bound in ("minProtocolVersion", "maxProtocolVersion"):
        if bound in tls:
            tls[bound] = PROTOCOLS.get(tls[bound], tls[bound])
    return manifest


def place_services(draft: Draft, spec: ServingSpec, namespace: str) -> None:
    """Put the local gateway's Service where Istio's gateway is, and select the right pods.

    That Service lives outside the custom resource's namespace, so it can have no owner there.
    """
    if draft.kind != "Service" or draft.group != "":
        return
    istio = spec.ingress_plugins.istio
    if draft.released == LOCAL:
        draft.meta["namespace"] = local_namespace(spec, namespace)
        draft.meta.pop("ownerReferences", None)
        select(draft, istio.local_gateway)
    elif draft.released == INGRESS:
        select(draft, istio.ingress_gateway)


def select(draft: Draft, override: GatewayOverride | None) -> None:
    """Make a Service select the pods that its gateway selects."""
    if override is not None and override.selector:
        draft.section("spec")["selector"] = in_order(override.selector)


def local_namespace(spec: ServingSpec, namespace: str) -> str:
    """Where Istio's local gateway is, as `config-istio` says in either of its two ways."""
    found = ISTIO_NAMESPACE
    for name in ("istio", "config-istio"):
        entries = spec.config.get(name, {})
        found = listed(entries) or dotted(entries, namespace) or found
    return found


def listed(entries: dict[str, str]) -> str:
    """The namespace in the list of local gateways."""
    try:
        gateways: Any = load(entries.get("local-gateways", ""))
    except YamlError:
        return ""
    for gateway in cast("list[Any]", gateways) if isinstance(gateways, list) else []:
        if as_map(gateway).get("name") == LOCAL:
            return str(as_map(gateway).get("namespace") or "")
    return ""


def dotted(entries: dict[str, str], namespace: str) -> str:
    """The namespace in the address of the local gateway's Service."""
    parts = entries.get(f"local-gateway.{namespace}.{LOCAL}", "").split(".")
    return parts[1] if len(parts) > 1 else ""
