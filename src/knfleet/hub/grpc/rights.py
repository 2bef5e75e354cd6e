"""Rights for gRPC: what the hub keeps its certificates with, and what the server may do.

The server writes for agents: so it has what they have, in all namespaces, and nothing that they do
not. It may neither accept clusters nor approve or sign certificates; admission rules for agents
hold for it as well.
"""

from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.certificate_requests import CERTIFICATES_GROUP, CSRS
from knfleet.api.cluster.managedcluster import CLUSTERS, LEASE_NAME
from knfleet.api.core import LEASES
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGER, GRPC_SERVER, HUB_NAMESPACE
from knfleet.api.rbac_rules import RBAC_GROUP, READ, cluster_role, rule
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.grpc.grpc_names import BUNDLE_CONFIG_MAP, SERVING_SECRET, SIGNER_SECRET
from knfleet.hub.registration.rbac import ACCESS_SECRET

HUB_GRPC_ROLE = "knfleet:hub-grpc"
SERVER_ROLE = "knfleet:grpc-server"

HUB_RULES = [
    rule("", ["secrets", "configmaps"], ["create"]),
    rule("", ["secrets"], [*READ, "update", "patch"], [SIGNER_SECRET, SERVING_SECRET]),
    rule("", ["configmaps"], [*READ, "update", "patch"], [BUNDLE_CONFIG_MAP]),
    rule("", ["services"], ["create"]),
    rule("apps", ["deployments"], ["create"]),
    rule("", ["services"], [*READ, "patch", "delete"], [GRPC_SERVER]),
    rule("apps", ["deployments"], ["get", "patch", "delete"], [GRPC_SERVER]),
]
"""What the hub needs in the namespace of the server."""
SERVER_RULES = [
    rule(CLUSTERS.group, [CLUSTERS.plural], [*READ, "create", "patch"]),
    rule(CLUSTERS.group, [f"{CLUSTERS.plural}/status"], ["update"]),
    rule(CLUSTERS.group, ["managedclustersets/join"], ["create"]),
    rule(CERTIFICATES_GROUP, [CSRS.plural], [*READ, "create"]),
    rule(LEASES.group, [LEASES.plural], READ),
    rule(LEASES.group, [LEASES.plural], ["update"], [LEASE_NAME]),
    rule("events.k8s.io", ["events"], ["create", "patch"]),
    rule("", ["secrets"], ["patch"], [ACCESS_SECRET]),
    rule(WORKS.group, [WORKS.plural], [*READ, "patch"]),
    rule(WORKS.group, [f"{WORKS.plural}/status"], ["patch"]),
    rule(ADDONS.group, [ADDONS.plural], READ),
    rule(ADDONS.group, [f"{ADDONS.plural}/status"], ["update", "patch"]),
    rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
    rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
]
"""What the server needs everywhere."""
SERVER_HOME_RULES = [
    rule("", ["secrets"], READ, [SERVING_SECRET]),
    rule("", ["configmaps"], READ, [BUNDLE_CONFIG_MAP]),
]
"""And in its own namespace."""


def grpc_roles(hub_namespace: str) -> list[Object]:
    """All roles with their bindings."""
    return [
        in_namespace(HUB_GRPC_ROLE, HUB_RULES),
        binding("Role", HUB_GRPC_ROLE, CLUSTER_MANAGER, hub_namespace),
        cluster_role(SERVER_ROLE, SERVER_RULES),
        binding("ClusterRole", SERVER_ROLE, GRPC_SERVER, HUB_NAMESPACE),
        in_namespace(SERVER_ROLE, SERVER_HOME_RULES),
        binding("Role", SERVER_ROLE, GRPC_SERVER, HUB_NAMESPACE),
    ]


def in_namespace(name: str, rules: list[Object]) -> Object:
    """A Role in the namespace of the server."""
    meta = {"name": name, "namespace": HUB_NAMESPACE}
    return {**cluster_role(name, rules), "kind": "Role", "metadata": meta}


def binding(kind: str, name: str, account: str, namespace: str) -> Object:
    """The binding of a role to an account."""
    inside = {"namespace": HUB_NAMESPACE} if kind == "Role" else {}
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": name, **inside},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
