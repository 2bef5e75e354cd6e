"""What the hub itself may do: the sum of what its controllers and the operator need.

It reads Secrets of one name, and touches others only in namespaces in which a client bound a set of
clusters (see `hub.profiles.rights` and `hub.admission`).
"""

from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGER, HUB_ROLE
from knfleet.api.rbac_rules import RBAC_GROUP, cluster_role, merged, rule
from knfleet.hub.clustermanager.rights import NAMESPACE_RULES
from knfleet.hub.grpc.rights import grpc_roles
from knfleet.hub.knativefleet import rights as knativefleet
from knfleet.hub.manager import all_controllers
from knfleet.hub.profiles.rights import TOKENS_ROLE, TOKENS_RULES
from knfleet.hub.tunnel import rights as tunnel
from knfleet.hub.webhook import rights as webhook
from knfleet.operator import rights as operator

EVENTS = (
    rule("", ["events"], ["create", "patch", "update"]),
    rule("events.k8s.io", ["events"], ["create", "patch", "update"]),
)


def hub_rules() -> list[Object]:
    """All that the hub may do everywhere."""
    own = [each for controller in all_controllers() for each in controller.rules]
    return merged([*own, *EVENTS, *operator.hub_rules()])


def hub_roles(namespace: str) -> list[Object]:
    """The hub's roles, bound to its ServiceAccount."""
    parts = (
        NAMESPACE_RULES,
        webhook.NAMESPACE_RULES,
        tunnel.NAMESPACE_RULES,
        knativefleet.NAMESPACE_RULES,
    )
    rules = [*operator.namespace_rules(), *(each for part in parts for each in part)]
    home: Object = {**cluster_role(HUB_ROLE, rules), "kind": "Role"}
    home["metadata"] = {"name": HUB_ROLE, "namespace": namespace}
    account: Object = {
        "kind": "ServiceAccount",
        "name": CLUSTER_MANAGER,
        "namespace": namespace,
    }
    bindings = [
        bound("ClusterRole", namespace),
        bound("Role", namespace),
        tunnel.client_ca_binding(f"{HUB_ROLE}:client-ca", account),
    ]
    everywhere = [cluster_role(HUB_ROLE, hub_rules()), cluster_role(TOKENS_ROLE, TOKENS_RULES)]
    return [
        *everywhere,
        home,
        *bindings,
        *tunnel.agent_roles(namespace),
        *grpc_roles(namespace),
    ]


def bound(kind: str, namespace: str) -> Object:
    """The binding of one of the hub's own roles."""
    inside = {"namespace": namespace} if kind == "Role" else {}
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": HUB_ROLE, **inside},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": HUB_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": CLUSTER_MANAGER, "namespace": namespace}],
    }
