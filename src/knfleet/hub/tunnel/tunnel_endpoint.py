"""The address at which agents reach the tunnel: given, or that of a load balancer. Pure."""

import re

from knfleet.api.cluster.tunnel import AGENT_PORT, BY_LOAD_BALANCER
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items

ENDPOINT = re.compile(
    r"(?:[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>\d{1,5})"
)


def endpoint_problem(text: str) -> str:
    """What is wrong with the address of a tunnel; empty when nothing is."""
    if text == BY_LOAD_BALANCER:
        return ""
    found = ENDPOINT.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 65536:
        return f"write host:port, or {BY_LOAD_BALANCER}"
    return ""


def front_problem(text: str) -> str:
    """What is wrong with the URL of a tunnel's front; empty when nothing is."""
    # Anything else, as a user or a path, would be in the proxy-url of every profile.
    found = ENDPOINT.fullmatch(text.removeprefix("https://").removesuffix("/"))
    if not text.startswith("https://") or found is None or not 0 < int(found["port"]) < 65536:
        return "write https://host:port"
    return ""


def balanced_endpoint(service: Object) -> str:
    """The address that a load balancer gave to a Service; empty when it has not yet."""
    for each in items(service, "status", "loadBalancer", "ingress"):
        host = each.get("hostname") or each.get("ip")
        if host:
            return f"[{host}]:{AGENT_PORT}" if ":" in host else f"{host}:{AGENT_PORT}"
    return ""
