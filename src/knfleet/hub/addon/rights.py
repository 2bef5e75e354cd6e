"""What the controllers of add-ons need on the hub."""

from knfleet.api.addon.names import GROUP
from knfleet.api.certificate_requests import CERTIFICATES_GROUP
from knfleet.api.cluster.managedcluster import GROUP as CLUSTER_GROUP
from knfleet.api.operator import GROUP as OPERATOR_GROUP
from knfleet.api.rbac_rules import RBAC_GROUP, READ, WRITE, rule
from knfleet.api.work.manifestwork import GROUP as WORK_GROUP

INSTALLATION_RULES = (
    rule(GROUP, ["clustermanagementaddons"], READ),
    rule(GROUP, ["addontemplates", "addondeploymentconfigs"], READ),
    rule(GROUP, ["clustermanagementaddons/status"], ["update", "patch"]),
    rule(GROUP, ["managedclusteraddons"], [*READ, *WRITE]),
    rule(GROUP, ["managedclusteraddons/status"], ["update", "patch"]),
    # Owners that keep what they own from being deleted first.
    rule(
        GROUP,
        ["clustermanagementaddons/finalizers", "managedclusteraddons/finalizers"],
        ["update"],
    ),
    rule(CLUSTER_GROUP, ["placements", "placementdecisions"], READ),
)
DELIVERY_RULES = (
    rule(WORK_GROUP, ["manifestworks"], [*READ, *WRITE]),
    rule(RBAC_GROUP, ["rolebindings"], [*READ, *WRITE]),
    rule(RBAC_GROUP, ["roles"], ["get", *WRITE]),
    rule("", ["serviceaccounts"], ["get", *WRITE]),
    # To let agents have tokens of the accounts of add-ons; a policy lets the hub itself make none.
    rule("", ["serviceaccounts/token"], ["create", "subscribe"]),
)
CERTIFICATE_RULES = (
    # Custom signers of templates; a policy limits them to requests of add-ons' agents.
    rule(CERTIFICATES_GROUP, ["signers"], ["approve", "sign"]),
    rule(CERTIFICATES_GROUP, ["certificatesigningrequests/status"], ["update", "patch"]),
)
CONVERSION_RULES = (
    # A dry run in the hub's own namespace.
    rule(GROUP, ["managedclusteraddons"], ["create"]),
    rule(OPERATOR_GROUP, ["clustermanagers/status"], ["patch"]),
)
LABEL_RULES = (rule(CLUSTER_GROUP, ["managedclusters"], [*READ, "patch"]),)
