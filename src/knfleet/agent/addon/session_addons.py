"""Add-ons as a part of the agent: handled for as long as a session with the hub lasts."""

from collections.abc import Sequence

from knfleet.agent.addon.addon_agents import AddOnAgentController
from knfleet.agent.agent_controller import AgentController, Wake
from knfleet.agent.hub_session import HubSession
from knfleet.api.meta import Object, Request
from knfleet.api.rbac_rules import rule
from knfleet.runtime.controller import Result
from knfleet.runtime.manager import Component


class SessionAddOns:
    """Runs the controller of add-ons, which watches for itself."""

    def __init__(self, session: HubSession) -> None:
        self.addons = AddOnAgentController(session)

    def watch(self, wake: Wake) -> Sequence[Component]:
        """What must run."""
        del wake
        return [self.addons]

    async def reconcile(self, _request: Request) -> Result:
        """Nothing of add-ons concerns the ManagedCluster itself."""
        return Result.never()


CONTROLLER = AgentController("addons", SessionAddOns)


def addon_rules() -> list[Object]:
    """What add-ons need on the cluster: credentials in any namespace that one is installed in.

    The role is one of its own, so that it can be limited.
    """
    return [
        rule("", ["secrets"], ["get", "list", "create", "patch", "delete"]),
        rule("", ["namespaces"], ["create"]),
        rule("coordination.k8s.io", ["leases"], ["get"]),
    ]
