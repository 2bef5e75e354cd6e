"""What a verification takes on a target: the only place where these rights are written."""

from collections.abc import Collection, Iterator

from knfleet.api.core import NAMESPACES, PODS, SERVICES
from knfleet.api.knative.resources import Component
from knfleet.api.knative.verification import BROKERS, KINGRESSES, KSERVICES, TRIGGERS
from knfleet.api.meta import Resource
from knfleet.apply.rights import Right
from knfleet.operator.verification.verify_objects import (
    SUBSCRIBER,
    ServiceRoute,
    verify_namespace,
)

OBJECTS: dict[Component, tuple[Resource, ...]] = {
    "serving": (KSERVICES,),
    "eventing": (TRIGGERS, BROKERS, SERVICES, PODS),
}
"""What is made for a component, in the order in which it is removed."""
VERBS = ("create", "delete", "get", "list", "watch")
PROXIES: dict[str, tuple[tuple[str, str], ...]] = {
    "serving": (),
    "kourier": (("", "kourier:80"), ("", "kourier-internal:80")),
    "istio": (
        ("istio-system", "istio-ingressgateway:80"),
        ("istio-system", "knative-local-gateway:80"),
    ),
    "eventing": (("", "broker-ingress:80"),),
}
"""By part of a component: namespaces and names of what requests go through, as Knative makes them.

An empty namespace is that of the installation. Of other ingresses, such as Contour's, the namespace
may not be there when the rights are given: the condition names the right that is missing.
"""
PROXY_NAMES = tuple(sorted({name for each in PROXIES.values() for _, name in each}))


def verify_rights(component: Component, home: str) -> list[Right]:
    """What is needed before a request is sent, for an installation in a namespace."""
    space = verify_namespace(component)
    rights = [
        Right(resource.group, resource.plural, verb, space)
        for resource in OBJECTS[component]
        for verb in VERBS
    ]
    rights.append(Right(NAMESPACES.group, NAMESPACES.plural, "get", "", space))
    rights.append(Right(PODS.group, PODS.plural, "list", home))
    if component == "serving":
        rights.append(Right(KINGRESSES.group, KINGRESSES.plural, "get", space))
    else:
        rights.append(Right(PODS.group, "pods/log", "get", space, SUBSCRIBER))
    return rights


def proxy_right(component: Component, route: ServiceRoute) -> Right:
    """What is needed to send a request along a route."""
    verb = "get" if component == "serving" else "create"
    return Right("", "services/proxy", verb, route.service.namespace, route.proxy_name)


def proxy_rights(component: Component, home: str, parts: Collection[str]) -> Iterator[Right]:
    """The same for the ingresses and Brokers that come with parts of a component."""
    verb = "get" if component == "serving" else "create"
    for each in (component, *parts):
        for namespace, name in PROXIES.get(each, ()):
            yield Right("", "services/proxy", verb, namespace or home, name)
