"""What the controller of KnativeFleets needs on the hub."""

from knfleet.api.cluster.managedcluster import GROUP as CLUSTER_GROUP
from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, GROUP, SERVINGS
from knfleet.api.rbac_rules import READ, WRITE, rule

RULES = (
    rule(KNATIVE_FLEETS.group, [KNATIVE_FLEETS.plural], [*READ, "update", "patch"]),
    rule(KNATIVE_FLEETS.group, [f"{KNATIVE_FLEETS.plural}/status"], ["update", "patch"]),
    rule(GROUP, [SERVINGS.plural, EVENTINGS.plural], [*READ, *WRITE]),
    # The namespaces of children are those in which Knative is installed.
    rule("", ["namespaces"], ["create"]),
    # Authors of fleets need this permission themselves (see `admission`).
    rule(PROFILES.group, [PROFILES.plural], [*READ, "use"]),
    rule(CLUSTER_GROUP, ["placements", "placementdecisions"], READ),
)
NAMESPACE_RULES = (rule("apps", ["controllerrevisions"], [*READ, *WRITE]),)
"""In the hub's own namespace."""
