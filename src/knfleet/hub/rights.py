"""What the hub itself may do: one list, from which its role is made; Knative's part is its own.

The hub grants rights to agents, and Kubernetes lets it grant only what it has: so it has all that
agents get, and needs neither `escalate` nor the administrator's role. It reads Secrets of one name,
and touches others only in namespaces in which somebody bound a set of clusters (see `policies`).
"""

from knfleet.api.cluster.managedcluster import GROUP, LEASE_NAME, REGISTER_GROUP
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGER
from knfleet.hub.registration.rbac import ACCESS_SECRET, READ, rule
from knfleet.hub.webhook.webhook_objects import CONFIGURATIONS
from knfleet.hub.webhook.webhook_objects import SECRET as WEBHOOK_SECRET
from knfleet.operator import rights as knative

HUB_ROLE = "knfleet:hub"
TOKENS_ROLE = "knfleet:profile-tokens"
"""The role that the hub binds to itself in namespaces in which profiles are published."""

CLUSTER_GROUP = GROUP
WORK_GROUP = "work.open-cluster-management.io"
ADDON_GROUP = "addon.open-cluster-management.io"
RBAC_GROUP = "rbac.authorization.k8s.io"
CERTIFICATES = "certificates.k8s.io"
SIGNER = "kubernetes.io/kube-apiserver-client"
WRITE = ["create", "update", "patch", "delete"]

REGISTRATION = [
    rule(CLUSTER_GROUP, ["managedclusters"], [*READ, "update", "patch"]),
    rule(CLUSTER_GROUP, ["managedclusters/status"], ["update", "patch"]),
    rule(REGISTER_GROUP, ["managedclusters/accept"], ["update"]),
    rule(REGISTER_GROUP, ["managedclusters/clientcertificates"], ["renew"]),
    rule(REGISTER_GROUP, ["managedclusters/tainttimes"], ["update"]),
    rule("", ["namespaces"], ["get", "create", "patch", "delete"]),
    rule(RBAC_GROUP, ["clusterroles", "clusterrolebindings"], ["get", *WRITE]),
    rule(RBAC_GROUP, ["rolebindings"], ["get", *WRITE]),
    rule("coordination.k8s.io", ["leases"], READ),
    rule("coordination.k8s.io", ["leases"], WRITE, [LEASE_NAME]),
    rule("", ["secrets"], [*READ, *WRITE], [ACCESS_SECRET]),
]
"""Acceptance and denial of clusters."""

APPROVAL = [
    rule(CERTIFICATES, ["certificatesigningrequests"], ["create", *READ]),
    rule(CERTIFICATES, ["certificatesigningrequests/approval"], ["update", "patch"]),
    rule(CERTIFICATES, ["signers"], ["approve"], [SIGNER]),
    rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
]
DELETION = [
    rule(WORK_GROUP, ["manifestworks"], [*READ, "update", "patch", "delete"]),
    rule(WORK_GROUP, ["manifestworks/status"], ["update", "patch"]),
    rule(ADDON_GROUP, ["managedclusteraddons"], [*READ, "update", "patch", "delete"]),
    rule(ADDON_GROUP, ["managedclusteraddons/status"], ["update", "patch"]),
]
SETS = [
    rule(CLUSTER_GROUP, ["managedclustersets"], [*READ, "create", "update", "patch"]),
    rule(CLUSTER_GROUP, ["managedclustersets/status"], ["update", "patch"]),
    rule(CLUSTER_GROUP, ["managedclustersets/join"], ["create"]),
    rule(CLUSTER_GROUP, ["managedclustersetbindings"], READ),
    rule(CLUSTER_GROUP, ["managedclustersetbindings/status"], ["update", "patch"]),
]
PROFILES = [
    rule("multicluster.x-k8s.io", ["clusterprofiles"], [*READ, *WRITE]),
    rule("multicluster.x-k8s.io", ["clusterprofiles/status"], ["update", "patch"]),
    rule(RBAC_GROUP, ["clusterroles"], ["bind"], [TOKENS_ROLE]),
]
INSTALLATION = [
    rule("operator.open-cluster-management.io", ["clustermanagers"], READ),
    rule("operator.open-cluster-management.io", ["clustermanagers/status"], ["update", "patch"]),
    rule("", ["events"], ["create", "patch", "update"]),
    rule("events.k8s.io", ["events"], ["create", "patch", "update"]),
]
WEBHOOKS = [
    rule(
        "admissionregistration.k8s.io",
        ["validatingwebhookconfigurations"],
        [*READ, "patch"],
        list(CONFIGURATIONS),
    ),
]
"""The CA of the hub's own webhooks."""
TOKENS = [rule("", ["secrets"], [*READ, *WRITE])]


def hub_rules() -> list[Object]:
    """All that the hub may do everywhere."""
    own = [REGISTRATION, APPROVAL, DELETION, SETS, PROFILES, INSTALLATION, WEBHOOKS]
    return merged([each for rules in (*own, knative.hub_rules()) for each in rules])


def merged(rules: list[Object]) -> list[Object]:
    """The rules without repetitions, in their order."""
    kept: list[Object] = []
    for each in rules:
        if each not in kept:
            kept.append(each)
    return kept


def hub_roles(namespace: str) -> list[Object]:
    """The hub's roles, bound to its ServiceAccount."""
    own = [
        rule("apps", ["deployments"], ["get"], [CLUSTER_MANAGER]),
        rule("", ["secrets"], [*READ, "create", "update", "patch"], [WEBHOOK_SECRET]),
    ]
    home: Object = {**role(HUB_ROLE, [*knative.namespace_rules(), *own]), "kind": "Role"}
    home["metadata"] = {"name": HUB_ROLE, "namespace": namespace}
    bindings = [bound("ClusterRole", namespace), bound("Role", namespace)]
    return [role(HUB_ROLE, hub_rules()), role(TOKENS_ROLE, TOKENS), home, *bindings]


def bound(kind: str, namespace: str) -> Object:
    """The binding of one of the hub's own roles."""
    place = {"namespace": namespace} if kind == "Role" else {}
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": HUB_ROLE, **place},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": HUB_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": CLUSTER_MANAGER, "namespace": namespace}],
    }


def role(name: str, rules: list[Object]) -> Object:
    """A ClusterRole."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }
