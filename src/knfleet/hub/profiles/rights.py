"""What the controller of ClusterProfiles needs on the hub.

It touches Secrets only in namespaces in which a client bound a set of clusters: there it binds
`TOKENS_ROLE` to itself, which a policy (`hub.admission.hub_account`) permits nowhere else.
"""

from knfleet.api.inventory import PROFILES
from knfleet.api.rbac_rules import RBAC_GROUP, READ, WRITE, rule

TOKENS_ROLE = "knfleet:profile-tokens"
"""The role that the hub binds to itself in namespaces in which profiles are published."""
TOKENS_RULES = (rule("", ["secrets"], [*READ, *WRITE]),)

RULES = (
    rule(PROFILES.group, ["clusterprofiles"], [*READ, *WRITE]),
    rule(PROFILES.group, ["clusterprofiles/status"], ["update", "patch"]),
    rule(RBAC_GROUP, ["clusterroles"], ["bind"], [TOKENS_ROLE]),
)
