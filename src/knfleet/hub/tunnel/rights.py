"""What the tunnel needs on the hub, and what agents need of it."""

from knfleet.api.cluster.managedcluster import MANAGED_CLUSTERS
from knfleet.api.cluster.tunnel import (
    KEY_SECRET,
    TUNNEL_CONFIG,
    TUNNEL_LEASE,
    TUNNEL_SECRET,
    TUNNEL_SERVICE,
)
from knfleet.api.meta import Object
from knfleet.api.rbac_rules import RBAC_GROUP, READ, WRITE, cluster_role, rule

RULES = (
    rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
    rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    rule("coordination.k8s.io", ["leases"], READ),
    rule("coordination.k8s.io", ["leases"], WRITE, [TUNNEL_LEASE]),
)
"""Users of the hub reach clusters with their own tokens; replicas find each other's tunnels."""
NAMESPACE_RULES = (
    rule("", ["secrets"], [*READ, *WRITE], [TUNNEL_SECRET, KEY_SECRET]),
    rule("", ["configmaps"], [*READ, *WRITE], [TUNNEL_CONFIG]),
    rule("", ["services"], ["get"], [TUNNEL_SERVICE]),
)
"""What the hub keeps in its own namespace."""
AGENT_ROLE = "knfleet:tunnel"
CLIENT_CA_ROLE = "extension-apiserver-authentication-reader"
"""A role that every cluster has: it reads by which CA the API server knows its clients."""


def agent_roles(namespace: str) -> list[Object]:
    """Lets agents read where the tunnel is."""
    meta = {"name": AGENT_ROLE, "namespace": namespace}
    rules = [rule("", ["configmaps"], READ, [TUNNEL_CONFIG])]
    group = {"apiGroup": RBAC_GROUP, "kind": "Group", "name": MANAGED_CLUSTERS}
    return [
        {**cluster_role(AGENT_ROLE, rules), "kind": "Role", "metadata": meta},
        role_binding(meta, AGENT_ROLE, group),
    ]


def client_ca_binding(name: str, account: Object) -> Object:
    """Lets the hub's account read by which CA its API server knows agents."""
    return role_binding({"name": name, "namespace": "kube-system"}, CLIENT_CA_ROLE, account)


def role_binding(meta: dict[str, str], role: str, subject: Object) -> Object:
    """The binding of a Role to one subject."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": dict(meta),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": role},
        "subjects": [subject],
    }
