"""What the controller of cluster sets and their bindings needs on the hub."""

from knfleet.api.cluster.managedcluster import GROUP
from knfleet.api.rbac_rules import READ, rule

RULES = (
    rule(GROUP, ["managedclustersets"], [*READ, "create", "update", "patch"]),
    rule(GROUP, ["managedclustersets/status"], ["update", "patch"]),
    rule(GROUP, ["managedclustersets/join"], ["create"]),
    rule(GROUP, ["managedclustersetbindings"], READ),
    rule(GROUP, ["managedclustersetbindings/status"], ["update", "patch"]),
)
