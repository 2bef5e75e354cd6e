"""Everything that a hub needs on its cluster but its own Deployment, in the order of application.

`init` applies this list and `clean` removes it: there is no other.
"""

from knfleet.api.cluster.clusterset import BINDINGS, GLOBAL_SET
from knfleet.api.cluster.managedcluster import CLUSTERS, GROUP
from knfleet.api.crds.fleet import hub_definitions
from knfleet.api.crds.generator import definitions
from knfleet.api.meta import Object
from knfleet.api.operator import (
    BOOTSTRAP_ACCOUNT,
    BOOTSTRAP_ROLE,
    BOOTSTRAPPERS,
    CLUSTER_MANAGER,
    GRPC_SERVER,
    HUB_NAMESPACE,
    OPERATOR_NAMESPACE,
    RelatedResource,
)
from knfleet.api.rbac_rules import RBAC_GROUP, READ, cluster_role, rule
from knfleet.hub.admission.hosted_addons import ADDON_HOSTING
from knfleet.hub.admission.hub_account import hub_policies
from knfleet.hub.admission.policies import policies
from knfleet.hub.admission.profile_use import FLEET_USE, PROFILE_USE
from knfleet.hub.admission.works import work_policies
from knfleet.hub.grpc.grpc_names import PORT as GRPC_PORT
from knfleet.hub.registration.rbac import shared_roles
from knfleet.hub.rights import hub_roles
from knfleet.hub.webhook.webhook_objects import webhook_objects
from knfleet.install.deployments import HEALTH_PORT, HubInstall, network_policy, tunnel_services

BOOTSTRAP_RULES = [
    rule("", ["configmaps"], ["get"], ["cluster-info", "kube-root-ca.crt"]),
    rule("certificates.k8s.io", ["certificatesigningrequests"], ["create", *READ]),
    rule(GROUP, [CLUSTERS.plural], ["create", *READ]),
    rule(GROUP, ["managedclustersets/join"], ["create"]),
]
"""What a cluster may do that asks to join."""


def hub_objects(plan: HubInstall | None = None) -> list[Object]:
    """The CRDs, and behind them the objects: some of those are of kinds that the CRDs define."""
    plan = plan or HubInstall(image="")
    checks = [*PROFILE_USE.manifests(), *FLEET_USE.manifests()]
    optional = checks if plan.check_profile_use else []
    return [*definitions(), *hub_definitions(plan.namespace), *objects(plan), *optional]


def objects(plan: HubInstall) -> list[Object]:
    """Namespaces, accounts, rights, policies, and the binding of all clusters to the hub."""
    namespace = plan.namespace
    return [
        *(named("v1", "Namespace", name) for name in dict.fromkeys((namespace, HUB_NAMESPACE))),
        named("v1", "ServiceAccount", CLUSTER_MANAGER, namespace),
        named("v1", "ServiceAccount", BOOTSTRAP_ACCOUNT, namespace),
        named("v1", "ServiceAccount", GRPC_SERVER, HUB_NAMESPACE),
        network_policy(CLUSTER_MANAGER, namespace, {"app": CLUSTER_MANAGER}, plan.ports),
        network_policy(GRPC_SERVER, HUB_NAMESPACE, {"app": GRPC_SERVER}, [HEALTH_PORT, GRPC_PORT]),
        *tunnel_services(plan),
        *hub_roles(namespace),
        *shared_roles(),
        cluster_role(BOOTSTRAP_ROLE, BOOTSTRAP_RULES),
        bootstrap_binding(namespace),
        *policies(plan.agent_labels),
        *hub_policies(namespace),
        *work_policies(),
        *ADDON_HOSTING.manifests(),
        *webhook_objects(namespace),
        {
            **named(BINDINGS.api_version, BINDINGS.kind, GLOBAL_SET, namespace),
            "spec": {"clusterSet": GLOBAL_SET},
        },
    ]


def related_resources() -> tuple[RelatedResource, ...]:
    """What belongs to the hub on its cluster, as its ClusterManager lists it."""
    workload = named("apps/v1", "Deployment", CLUSTER_MANAGER, OPERATOR_NAMESPACE)
    return tuple(related_to(each) for each in (*hub_objects(), workload))


def related_to(manifest: Object) -> RelatedResource:
    """An object as a ClusterManager lists it."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    kind: str = manifest["kind"].lower()
    return RelatedResource(
        group=group,
        version=version,
        resource=f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s",
        name=manifest["metadata"]["name"],
        namespace=manifest["metadata"].get("namespace", ""),
    )


def bootstrap_binding(namespace: str) -> Object:
    """Lets those join who have the bootstrap account's token, or a bootstrap token."""
    account = {"kind": "ServiceAccount", "name": BOOTSTRAP_ACCOUNT, "namespace": namespace}
    group = {"apiGroup": RBAC_GROUP, "kind": "Group", "name": BOOTSTRAPPERS}
    return {
        **named(f"{RBAC_GROUP}/v1", "ClusterRoleBinding", BOOTSTRAP_ROLE),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": BOOTSTRAP_ROLE},
        "subjects": [account, group],
    }


def named(api_version: str, kind: str, name: str, namespace: str = "") -> Object:
    """An object with nothing but a name."""
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}
