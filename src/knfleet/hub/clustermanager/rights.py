"""What the controller of the ClusterManager needs on the hub."""

from knfleet.api.operator import CLUSTER_MANAGER, GROUP
from knfleet.api.rbac_rules import READ, rule

RULES = (
    rule(GROUP, ["clustermanagers"], READ),
    rule(GROUP, ["clustermanagers/status"], ["update", "patch"]),
)
NAMESPACE_RULES = (rule("apps", ["deployments"], ["get"], [CLUSTER_MANAGER]),)
"""In the hub's own namespace."""
