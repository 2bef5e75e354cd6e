"""What a template gives its agents on the hub: identities, rights, and accounts for tokens. Pure.

A right in the namespace of a cluster is bound to the agents of that cluster alone.
"""

from collections.abc import Sequence

from msgspec import Struct

from knfleet.api.addon.addontemplate import HubPermission, Registration
from knfleet.api.addon.managedclusteraddon import (
    ManagedClusterAddOn,
    RegistrationConfig,
    Subject,
)
from knfleet.api.addon.names import (
    ADDON_LABEL,
    KUBE_CLIENT_SIGNER,
    TEMPLATE_LABEL,
    TOKEN_LABEL,
    TOKEN_NAME_LABEL,
    addon_group,
    addon_groups,
    addon_user,
    agent_name,
)
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL, cluster_groups
from knfleet.api.core import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from knfleet.api.meta import Object
from knfleet.api.operator import GRPC_SERVER, HUB_NAMESPACE
from knfleet.hub.addon.delivery.addon_works import owner

RBAC = "rbac.authorization.k8s.io"
AUTHENTICATED = "system:authenticated"


def default_subject(cluster: str, addon: str) -> Subject:
    """The identity of a template add-on's agent; agents ask for all three groups."""
    user = addon_user(cluster, addon, agent_name(addon))
    return Subject(user=user, groups=[*addon_groups(cluster, addon), AUTHENTICATED])


def registrations(
    addon: ManagedClusterAddOn, written: Sequence[Registration]
) -> list[RegistrationConfig]:
    """What `status.registrations` is to be; each signer is there once.

    With the token driver the agent itself writes the identity for the hub's API server.
    """
    known = {each.signer_name: each.subject for each in addon.status.registrations}
    found: dict[str, RegistrationConfig] = {}
    for each in written:
        if each.type == "KubeClient":
            subject = default_subject(addon.cluster, addon.name)
            if addon.status.kube_client_driver == "token":
                subject = known.get(KUBE_CLIENT_SIGNER, Subject())
            made = RegistrationConfig(signer_name=KUBE_CLIENT_SIGNER, subject=subject)
        elif each.custom_signer is not None:
            signer = each.custom_signer
            subject = signer.subject or default_subject(addon.cluster, addon.name)
            made = RegistrationConfig(signer_name=signer.signer_name, subject=subject)
        else:
            continue
        found.setdefault(made.signer_name, made)
    return list(found.values())


class PermissionProblem(Struct, frozen=True):
    """A permission of a template that cannot be given."""

    text: str


def permissions(
    addon: ManagedClusterAddOn, written: Sequence[Registration]
) -> list[Object] | PermissionProblem:
    """The RoleBindings of an add-on's agent on the hub."""
    wanted = [
        each
        for registration in written
        if registration.type == "KubeClient" and registration.kube_client is not None
        for each in registration.kube_client.hub_permissions
    ]
    made: dict[tuple[str, str], Object] = {}
    for each in wanted:
        binding = permission(addon, each)
        if isinstance(binding, PermissionProblem):
            return binding
        name, namespace = binding["metadata"]["name"], binding["metadata"]["namespace"]
        taken = made.get((namespace, name))
        if taken is not None and taken["roleRef"] != binding["roleRef"]:
            name = binding["metadata"]["name"] = f"{name}:{binding['roleRef']['name']}"
        made[namespace, name] = binding
    return list(made.values())


def permission(addon: ManagedClusterAddOn, wanted: HubPermission) -> Object | PermissionProblem:
    """One RoleBinding of an add-on's agent."""
    if wanted.type == "CurrentCluster":
        if wanted.current_cluster is None:
            return PermissionProblem(
                "a hub permission of type CurrentCluster has no field currentCluster"
            )
        role = {
            "apiGroup": RBAC,
            "kind": "ClusterRole",
            "name": wanted.current_cluster.cluster_role_name,
        }
        made = binding(addon, addon.cluster, role)
        made["metadata"]["ownerReferences"] = [owner(addon)]
        return made
    if wanted.single_namespace is None:
        return PermissionProblem(
            "a hub permission of type SingleNamespace has no field singleNamespace"
        )
    reference = wanted.single_namespace.role_ref
    role = {"apiGroup": reference.api_group, "kind": reference.kind, "name": reference.name}
    made = binding(addon, wanted.single_namespace.namespace, role)
    if wanted.single_namespace.namespace != addon.cluster:
        # Agents of other clusters have bindings of their own in the same namespace.
        made["metadata"]["name"] += f":{addon.cluster}"
    return made


def binding(addon: ManagedClusterAddOn, namespace: str, role: Object) -> Object:
    """A role for an add-on's agent in a namespace of the hub."""
    subjects = [{"apiGroup": RBAC, "kind": "Group", "name": addon_group(addon.cluster, addon.name)}]
    if addon.status.kube_client_driver == "token":
        subjects.append({"apiGroup": RBAC, "kind": "User", "name": token_user(addon)})
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {
            "name": f"open-cluster-management:{addon.name}:{role['kind'].lower()}:agent",
            "namespace": namespace,
            "labels": {
                ADDON_LABEL: addon.name,
                TEMPLATE_LABEL: "",
                CLUSTER_NAME_LABEL: addon.cluster,
            },
        },
        "roleRef": role,
        "subjects": subjects,
    }


def token_user(addon: ManagedClusterAddOn) -> str:
    """The user of a token of an add-on's account."""
    return f"system:serviceaccount:{addon.cluster}:{agent_name(addon.name)}"


def uses_tokens(addon: ManagedClusterAddOn) -> bool:
    """Whether an add-on's agent reaches the hub by tokens of an account there."""
    return addon.status.kube_client_driver == "token" and any(
        each.is_kube_client for each in addon.status.registrations
    )


def token_infrastructure(addon: ManagedClusterAddOn) -> list[Object]:
    """The account of an add-on's agent, and the right of the cluster's agent to ask for its token.

    The account first: its uid is reported.
    """
    labels = {TOKEN_NAME_LABEL: addon.name, TOKEN_LABEL: "true"}
    account = agent_name(addon.name)
    role = f"{addon.name}-token-role"

    def metadata(name: str) -> Object:
        return {
            "name": name,
            "namespace": addon.cluster,
            "labels": labels,
            "ownerReferences": [owner(addon)],
        }

    return [
        {
            "apiVersion": SERVICE_ACCOUNTS.api_version,
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": metadata(account),
        },
        {
            "apiVersion": ROLES.api_version,
            "kind": ROLES.kind,
            "metadata": metadata(role),
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["serviceaccounts/token"],
                    "resourceNames": [account],
                    "verbs": ["create"],
                },
                {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["subscribe"]},
            ],
        },
        {
            "apiVersion": ROLE_BINDINGS.api_version,
            "kind": ROLE_BINDINGS.kind,
            "metadata": metadata(role),
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": role},
            "subjects": [
                *(
                    {"apiGroup": RBAC, "kind": "Group", "name": group}
                    for group in cluster_groups(addon.cluster)
                ),
                # It asks for them in the name of the cluster's agent.
                {"kind": "ServiceAccount", "name": GRPC_SERVER, "namespace": HUB_NAMESPACE},
            ],
        },
    ]
