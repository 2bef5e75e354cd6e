"""Which kinds live in a namespace.

What the target's discovery says counts first, then the CRDs among the objects themselves, then a
table of kinds whose scope is known to the world. Everything else lives in a namespace.
"""

from collections.abc import Iterable, Mapping

from knfleet.api.meta import Object, Resource
from knfleet.render.drafts import as_map

Scopes = Mapping[tuple[str, str], bool]
"""Whether a kind is namespaced, by group and kind."""

ANY_GROUP = frozenset(
    {
        "apiservice",
        "certificatesigningrequest",
        "clusterrole",
        "clusterrolebinding",
        "componentstatus",
        "customresourcedefinition",
        "meshpolicy",
        "mutatingwebhookconfiguration",
        "namespace",
        "node",
        "persistentvolume",
        "podsecuritypolicy",
        "priorityclass",
        "selfsubjectaccessreview",
        "selfsubjectrulesreview",
        "storageclass",
        "subjectaccessreview",
        "tokenreview",
        "validatingwebhookconfiguration",
        "volumeattachment",
    }
)
"""Kinds that upstream takes for cluster-scoped, whatever their group and case."""

CLUSTER_SCOPED = frozenset(
    {
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("authentication.k8s.io", "SelfSubjectReview"),
        ("cert-manager.io", "ClusterIssuer"),
        ("certificates.k8s.io", "ClusterTrustBundle"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
        ("gateway.networking.k8s.io", "GatewayClass"),
        ("keda.sh", "ClusterTriggerAuthentication"),
        ("networking.k8s.io", "IPAddress"),
        ("networking.k8s.io", "IngressClass"),
        ("networking.k8s.io", "ServiceCIDR"),
        ("node.k8s.io", "RuntimeClass"),
        ("policy.networking.k8s.io", "AdminNetworkPolicy"),
        ("policy.networking.k8s.io", "BaselineAdminNetworkPolicy"),
        ("resource.k8s.io", "DeviceClass"),
        ("resource.k8s.io", "ResourceSlice"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "VolumeAttributesClass"),
        ("trust.cert-manager.io", "Bundle"),
        ("trust.cert-manager.io", "ClusterBundle"),
    }
)
"""Other cluster-scoped kinds, to which upstream gives a namespace all the same."""


def from_discovery(resources: Iterable[Resource]) -> dict[tuple[str, str], bool]:
    """The scopes of what a cluster serves."""
    return {(resource.group, resource.kind): resource.namespaced for resource in resources}


def from_definitions(objects: Iterable[Object]) -> dict[tuple[str, str], bool]:
    """The scopes of the kinds that CRDs among the objects define."""
    scopes: dict[tuple[str, str], bool] = {}
    for manifest in objects:
        if manifest.get("kind") == "CustomResourceDefinition":
            spec = as_map(manifest.get("spec"))
            kind = str(as_map(spec.get("names")).get("kind", ""))
            scopes[str(spec.get("group", "")), kind] = spec.get("scope") != "Cluster"
    return scopes


def is_namespaced(group: str, kind: str, scopes: Scopes) -> bool:
    """Whether objects of a kind live in a namespace."""
    known = scopes.get((group, kind))
    if known is not None:
        return known
    return kind.lower() not in ANY_GROUP and (group, kind) not in CLUSTER_SCOPED
