"""How the gRPC server is exposed to agents, as the ClusterManager says it. Pure."""

from collections.abc import Iterable

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.api.operator import GRPC_SERVER, HUB_NAMESPACE, ClusterManager
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.certificates.port_certificates import service_names

HOSTNAME, LOAD_BALANCER, ROUTE = "hostname", "loadBalancer", "route"
EXPOSURE_TYPES = (HOSTNAME, LOAD_BALANCER, ROUTE)
SERVICE_PORT = 443


class Exposure(Struct, frozen=True):
    """Where agents find the gRPC server."""

    types: frozenset[str] = frozenset()
    hosts: tuple[str, ...] = ()
    """The names that a user gave it."""
    problem: str = ""
    """What is wrong with the configuration, for the ClusterManager's conditions."""


def is_enabled(manager: ClusterManager) -> bool:
    """Whether clusters may register over gRPC."""
    drivers = manager.spec.registration_configuration.registration_drivers
    return any(each.auth_type == "grpc" for each in drivers)


def exposure(manager: ClusterManager) -> Exposure:
    """How the server of an enabled driver is exposed."""
    configured = manager.spec.server_configuration or {}
    endpoints = [
        part(each, "grpc")
        for each in items({"spec": configured}, "spec", "endpointsExposure")
        if each.get("protocol", "grpc") == "grpc"
        and each.get("usage", "agentToHub") in ("", "agentToHub")
    ]
    types = frozenset(str(each.get("type", HOSTNAME)) for each in endpoints)
    hosts = [
        str(part(each, kind).get("host", ""))
        for each in endpoints
        for kind in EXPOSURE_TYPES
        if each.get("type", HOSTNAME) == kind
    ]
    named = tuple(dict.fromkeys(host for host in hosts if host))
    return Exposure(types, named, problem(endpoints, types, named))


def problem(endpoints: list[Object], types: Iterable[str], hosts: Iterable[str]) -> str:
    """Why agents cannot find the server; empty when they can."""
    where = "spec.serverConfiguration.endpointsExposure"
    if not endpoints:
        return (
            f"registration by grpc is enabled, but {where} has no entry of protocol grpc for"
            " agentToHub; add one of type loadBalancer, hostname or route"
        )
    unknown = sorted(set(types) - set(EXPOSURE_TYPES))
    if unknown:
        return f"{where} has the unknown type {unknown[0]}; use {', '.join(EXPOSURE_TYPES)}"
    if set(types) & {HOSTNAME, ROUTE} and not list(hosts):
        return f"{where} of type hostname or route needs a host, as grpc.hostname.host"
    return ""


def serving_names(found: Exposure, service: Object | None) -> tuple[str, ...]:
    """The names and addresses that the server's certificate has."""
    ingress = items(service or {}, "status", "loadBalancer", "ingress")
    addresses = [
        str(each.get(key)) for each in ingress for key in ("hostname", "ip") if each.get(key)
    ]
    names = (*service_names(GRPC_SERVER, HUB_NAMESPACE), *found.hosts, *addresses)
    return tuple(dict.fromkeys(names))
