"""What an accepted cluster gets on the hub: a namespace, rights for its agent, a Lease, a Secret.

Pure: everything here is a function from a name to manifests. The rules are those of Open Cluster
Management, so its agents work; two are narrower (a Lease only by name, Secrets only one). So are
names of what belongs to one cluster; roles that all share begin with a word that no cluster's do.
"""

from datetime import datetime

from knfleet.api.cluster.managedcluster import (
    CLUSTER_NAME_LABEL,
    CREATED_FOR,
    GROUP,
    LEASE_NAME,
    REGISTER_GROUP,
    cluster_groups,
)
from knfleet.api.meta import Key, Object
from knfleet.api.rbac_rules import RBAC_GROUP, READ, rule
from knfleet.api.work.manifestwork import WORK_FINALIZER
from knfleet.runtime.leader.lease_rules import microtime

ROLE = "open-cluster-management:managedcluster"
SHARED = "knfleet:managedcluster"
REGISTRATION_ROLE = f"{SHARED}:registration"
WORK_ROLE = f"{SHARED}:work"
ACCESS_ROLE = f"{SHARED}:access"
OLD_SHARED_ROLES = (f"{ROLE}:registration", f"{ROLE}:work")
"""What shared roles were called in older releases: clusters of those names had the same roles."""

ACCESS_SECRET = "knfleet-spoke-access"  # noqa: S105  a name
"""The Secret in a cluster's namespace in which its agent hands over access to the cluster."""
ACCESS_LABEL = "knfleet.dev/spoke-access"

REGISTRATION_RULES = [
    rule("coordination.k8s.io", ["leases"], READ),
    rule("coordination.k8s.io", ["leases"], ["update", "patch"], [LEASE_NAME]),
    rule("addon.open-cluster-management.io", ["managedclusteraddons"], READ),
    rule("addon.open-cluster-management.io", ["managedclusteraddons/status"], ["patch", "update"]),
    rule("events.k8s.io", ["events"], ["create", "patch", "update"]),
]
WORK_RULES = [
    rule("", ["events"], ["create", "patch", "update"]),
    rule("events.k8s.io", ["events"], ["create", "patch", "update"]),
    rule("work.open-cluster-management.io", ["manifestworks"], [*READ, "update", "patch"]),
    rule("work.open-cluster-management.io", ["manifestworks/status"], ["patch", "update"]),
]
ACCESS_RULES = [rule("", ["secrets"], [*READ, "update", "patch"], [ACCESS_SECRET])]

SHARED_ROLES = {
    REGISTRATION_ROLE: REGISTRATION_RULES,
    WORK_ROLE: WORK_RULES,
    ACCESS_ROLE: ACCESS_RULES,
}
"""Roles that all clusters share, each bound in the cluster's own namespace."""


def cluster_rules(cluster: str, *, accepted: bool) -> list[Object]:
    """What a cluster's agent may do outside its namespace."""
    if not accepted:
        return [rule(GROUP, ["managedclusters"], READ, [cluster])]
    return [
        rule("certificates.k8s.io", ["certificatesigningrequests"], ["create", *READ]),
        rule(REGISTER_GROUP, ["managedclusters/clientcertificates"], ["renew"]),
        rule(GROUP, ["managedclusters"], [*READ, "update", "patch"], [cluster]),
        rule(GROUP, ["managedclusters/status"], ["patch", "update"], [cluster]),
    ]


def role_name(cluster: str) -> str:
    """The name of a cluster's own ClusterRole and its binding."""
    return f"{ROLE}:{cluster}"


def binding_names(cluster: str) -> dict[str, str]:
    """The RoleBindings in a cluster's namespace, by the shared role that they bind."""
    return {
        REGISTRATION_ROLE: f"{ROLE}:{cluster}:registration",
        WORK_ROLE: f"{ROLE}:{cluster}:work",
        ACCESS_ROLE: f"{SHARED}:{cluster}:access",
    }


def namespace(cluster: str, *, created_for: str = "") -> Object:
    """A cluster's namespace; one that the hub makes says for the uid of which cluster."""
    meta = labelled(cluster, Key("", cluster))
    if created_for:
        meta["annotations"] = {CREATED_FOR: created_for}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def created_for(namespace: Object) -> str:
    """The uid of the cluster for which the hub made a namespace; empty when another made it."""
    annotations: dict[str, str] = namespace["metadata"].get("annotations") or {}
    return annotations.get(CREATED_FOR, "")


def cluster_role(cluster: str, *, accepted: bool) -> Object:
    """A cluster's own ClusterRole."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": labelled(cluster, Key("", role_name(cluster))),
        "rules": cluster_rules(cluster, accepted=accepted),
    }


def cluster_role_binding(cluster: str) -> Object:
    """The binding of a cluster's own ClusterRole."""
    return binding("ClusterRoleBinding", cluster, Key("", role_name(cluster)), role_name(cluster))


def shared_roles() -> list[Object]:
    """The roles that all clusters share."""
    return [
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": {CLUSTER_NAME_LABEL: ""}},
            "rules": rules,
        }
        for name, rules in SHARED_ROLES.items()
    ]


def is_shared(role: Object) -> bool:
    """Whether a role is one that all clusters share, and not a cluster's own."""
    labels: dict[str, str] = role["metadata"].get("labels") or {}
    return labels.get(CLUSTER_NAME_LABEL) == ""


def role_bindings(cluster: str) -> list[Object]:
    """The bindings of the shared roles in a cluster's namespace."""
    made = [
        binding("RoleBinding", cluster, Key(cluster, name), role)
        for role, name in binding_names(cluster).items()
    ]
    for each in made:
        if each["roleRef"]["name"] == WORK_ROLE:
            each["metadata"]["finalizers"] = [WORK_FINALIZER]
    return made


def binding(kind: str, cluster: str, key: Key, role: str) -> Object:
    """A binding of a ClusterRole to a cluster's agents."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": kind,
        "metadata": labelled(cluster, key),
        "roleRef": {
            "apiGroup": RBAC_GROUP,
            "kind": "ClusterRole",
            "name": role,
        },
        "subjects": [
            {"apiGroup": RBAC_GROUP, "kind": "Group", "name": group}
            for group in cluster_groups(cluster)
        ],
    }


def lease(cluster: str, now: datetime) -> Object:
    """The Lease that a cluster's agent keeps alive, as if it had just done so."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": labelled(cluster, Key(cluster, LEASE_NAME)),
        "spec": {"holderIdentity": LEASE_NAME, "renewTime": microtime(now)},
    }


def access_secret(cluster: str) -> Object:
    """The Secret for access to a cluster, still empty."""
    meta = labelled(cluster, Key(cluster, ACCESS_SECRET))
    meta["labels"][ACCESS_LABEL] = "true"
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta}


def labelled(cluster: str, key: Key) -> Object:
    """Metadata of an object that belongs to a cluster."""
    meta: Object = {"name": key.name, "labels": {CLUSTER_NAME_LABEL: cluster}}
    return {**meta, "namespace": key.namespace} if key.namespace else meta
