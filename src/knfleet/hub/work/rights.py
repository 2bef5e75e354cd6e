"""What the controller of completed works needs on the hub."""

from knfleet.api.rbac_rules import READ, rule
from knfleet.api.work.manifestwork import WORKS

RULES = (rule(WORKS.group, [WORKS.plural], [*READ, "delete"]),)
