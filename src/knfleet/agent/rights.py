"""What the agent may do: the sum of what its controllers need."""

from knfleet.agent.controllers import CONTROLLERS
from knfleet.api.meta import Object
from knfleet.api.operator import GROUP
from knfleet.api.rbac_rules import READ, merged, rule


def managed_rules() -> list[Object]:
    return merged(each for controller in CONTROLLERS for each in controller.managed_rules)


def home_rules() -> list[Object]:
    """In the agent's own namespace."""
    return merged(each for controller in CONTROLLERS for each in controller.home_rules)


def klusterlet_rules(name: str) -> list[Object]:
    return [
        rule(GROUP, ["klusterlets"], READ, [name]),
        rule(GROUP, ["klusterlets/status"], ["patch"], [name]),
    ]
