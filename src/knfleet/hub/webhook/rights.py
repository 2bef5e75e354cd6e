"""What the controller of the webhooks' certificates needs on the hub."""

from knfleet.api.rbac_rules import READ, rule
from knfleet.hub.webhook.webhook_objects import CONFIGURATIONS, DEFINITIONS, SECRET

RULES = (
    rule(
        "admissionregistration.k8s.io",
        ["validatingwebhookconfigurations"],
        [*READ, "patch"],
        CONFIGURATIONS,
    ),
    rule("apiextensions.k8s.io", ["customresourcedefinitions"], [*READ, "patch"], DEFINITIONS),
)
NAMESPACE_RULES = (rule("", ["secrets"], [*READ, "create", "update", "patch"], [SECRET]),)
"""In the hub's own namespace."""
