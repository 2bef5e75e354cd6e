"""What the operator may do on its hub: the only place where its rights are written.

Three parts. On the whole hub it reads custom resources and profiles, and writes their status and
Events. In its own namespace it has its settings, its Lease and the Secrets of credential plugins.
Only when Knative is to be installed on the hub itself does it get the rights for that, and those
are wide: a client that installs Roles must be allowed to grant what is in them.
"""

from knfleet.api.core import PODS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, GROUP, SERVINGS
from knfleet.api.knative.verification import BROKERS, KINGRESSES, KSERVICES, TRIGGERS
from knfleet.api.meta import Object, Resource
from knfleet.api.rbac_rules import RBAC_GROUP, READ, rule
from knfleet.apply.act.missing_rights import ACCESS_REVIEWS, VERBS
from knfleet.operator.verification.verify_objects import SUBSCRIBER
from knfleet.operator.verification.verify_rights import PROXY_NAMES
from knfleet.operator.verification.verify_rights import VERBS as VERIFY_VERBS

MANAGE = tuple(sorted({*VERBS, "get"}))
"""Everything that applying, watching, repairing and removing objects takes."""

INSTALLED: dict[str, tuple[str, ...]] = {
    "": ("configmaps", "namespaces", "secrets", "serviceaccounts", "services"),
    "admissionregistration.k8s.io": (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
    "apps": ("daemonsets", "deployments", "statefulsets"),
    "autoscaling": ("horizontalpodautoscalers",),
    "batch": ("cronjobs", "jobs"),
    "caching.internal.knative.dev": ("images",),
    "cert-manager.io": ("certificates",),
    "networking.internal.knative.dev": ("certificates",),
    "networking.istio.io": ("gateways",),
    "policy": ("poddisruptionbudgets",),
    "projectcontour.io": ("tlscertificatedelegations",),
    RBAC_GROUP: ("clusterrolebindings", "clusterroles", "rolebindings", "roles"),
    "security.istio.io": ("peerauthentications",),
}
"""Group and plural of all kinds in releases of Knative."""


def on(resource: Resource, *verbs: str) -> Object:
    """A rule for one kind."""
    return rule(resource.group, (resource.plural,), verbs)


def hub_rules() -> list[Object]:
    """What is needed on the whole hub, wherever Knative is installed."""
    kinds = (EVENTINGS.plural, SERVINGS.plural)
    return [
        rule(GROUP, kinds, (*READ, "patch")),
        rule(GROUP, tuple(f"{kind}/status" for kind in kinds), ("patch",)),
        # Objects that block the deletion of their owner may only be made with this.
        rule(GROUP, tuple(f"{kind}/finalizers" for kind in kinds), ("update",)),
        on(PROFILES, *READ),
        rule("", ("events",), ("create", "patch")),
        on(ACCESS_REVIEWS, "create"),
        # Its identity is the hub's.
        rule("", ("namespaces",), ("get",), ("kube-system",)),
    ]


def local_rules() -> list[Object]:
    """What is needed to install Knative on the hub itself."""
    return [
        *(rule(group, resources, MANAGE) for group, resources in INSTALLED.items()),
        rule("discovery.k8s.io", ("endpointslices",), READ),
        # Roles of Knative hold rights that this role does not.
        rule(RBAC_GROUP, ("clusterroles", "roles"), ("bind", "escalate")),
        *verification_rules(),
    ]


def verification_rules() -> list[Object]:
    """What verifications take on the hub itself: namespaces are made for them."""
    return [
        *(on(resource, *VERIFY_VERBS) for resource in (KSERVICES, BROKERS, TRIGGERS, PODS)),
        rule("", ("pods/log",), ("get",), (SUBSCRIBER,)),
        on(KINGRESSES, "get"),
        rule("", ("services/proxy",), ("create", "get"), PROXY_NAMES),
    ]


def namespace_rules() -> list[Object]:
    """What is needed in the operator's own namespace."""
    return [
        # Settings are read; what is left on lost spokes is noted, until it is removed.
        rule("", ("configmaps",), (*READ, "create", "delete")),
        rule("", ("secrets",), ("get",)),
        rule("coordination.k8s.io", ("leases",), ("create", "delete", "get", "list", "update")),
    ]


def secret_rules() -> list[Object]:
    """What is needed in namespaces that hold credentials beside their ClusterProfiles."""
    return [rule("", ("secrets",), ("get",))]
