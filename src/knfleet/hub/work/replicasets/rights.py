"""What the controller of replica sets needs on the hub."""

from knfleet.api.cluster.managedcluster import GROUP as CLUSTER_GROUP
from knfleet.api.rbac_rules import READ, rule
from knfleet.api.work.manifestwork import WORKS
from knfleet.api.work.replicaset import REPLICA_SETS

RULES = (
    rule(REPLICA_SETS.group, [REPLICA_SETS.plural], [*READ, "update", "patch"]),
    rule(REPLICA_SETS.group, [f"{REPLICA_SETS.plural}/status"], ["update", "patch"]),
    rule(CLUSTER_GROUP, ["placements", "placementdecisions", "managedclusters"], READ),
    # Authors of replica sets need the right to act as an executor themselves (see `admission`).
    rule(WORKS.group, [WORKS.plural], [*READ, "create", "update", "patch", "delete", "execute-as"]),
)
