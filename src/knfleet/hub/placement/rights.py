"""What the controller of placements needs on the hub."""

from knfleet.api.cluster.managedcluster import GROUP
from knfleet.api.inventory import GROUP as INVENTORY_GROUP
from knfleet.api.rbac_rules import READ, WRITE, rule

RULES = (
    rule(GROUP, ["managedclusters", "managedclustersets", "managedclustersetbindings"], READ),
    rule(GROUP, ["placements", "addonplacementscores"], READ),
    rule(GROUP, ["placements/status", "placementdecisions/status"], ["update", "patch"]),
    # For owners that block their deletion, where an admission plugin asks for it.
    rule(GROUP, ["placements/finalizers"], ["update"]),
    rule(GROUP, ["placementdecisions"], [*READ, *WRITE]),
    rule(INVENTORY_GROUP, ["placementdecisions"], [*READ, *WRITE]),
)
