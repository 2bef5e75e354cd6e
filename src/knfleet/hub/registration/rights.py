"""What the controller of ManagedClusters needs on the hub.

It grants rights to agents, and Kubernetes lets it grant only what it has: so it has all that agents
get, and needs neither `escalate` nor the administrator's role.
"""

from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.cluster.managedcluster import GROUP, LEASE_NAME, REGISTER_GROUP
from knfleet.api.rbac_rules import RBAC_GROUP, READ, WRITE, rule
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.registration.rbac import ACCESS_SECRET

ACCEPTANCE = (
    rule(GROUP, ["managedclusters"], [*READ, "update", "patch"]),
    rule(GROUP, ["managedclusters/status"], ["update", "patch"]),
    rule(REGISTER_GROUP, ["managedclusters/accept"], ["update"]),
    rule(REGISTER_GROUP, ["managedclusters/clientcertificates"], ["renew"]),
    rule(REGISTER_GROUP, ["managedclusters/tainttimes"], ["update"]),
    rule("", ["namespaces"], ["get", "create", "patch", "delete"]),
    rule(RBAC_GROUP, ["clusterroles", "clusterrolebindings"], ["get", *WRITE]),
    rule(RBAC_GROUP, ["rolebindings"], ["get", *WRITE]),
    rule("coordination.k8s.io", ["leases"], READ),
    rule("coordination.k8s.io", ["leases"], WRITE, [LEASE_NAME]),
    rule("", ["secrets"], [*READ, *WRITE], [ACCESS_SECRET]),
)
DELETION = (
    rule(WORKS.group, ["manifestworks"], [*READ, "update", "patch", "delete"]),
    rule(WORKS.group, ["manifestworks/status"], ["update", "patch"]),
    rule(ADDONS.group, ["managedclusteraddons"], [*READ, "update", "patch", "delete"]),
    rule(ADDONS.group, ["managedclusteraddons/status"], ["update", "patch"]),
)
RULES = (*ACCEPTANCE, *DELETION)
