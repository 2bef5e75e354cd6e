"""Works as a part of the agent: handled for as long as a session with the hub lasts."""

from collections.abc import Sequence

from knfleet.agent.agent_controller import AgentController, Wake
from knfleet.agent.hub_session import HubSession
from knfleet.agent.work.controller import WorkController
from knfleet.api.meta import Object, Request
from knfleet.api.rbac_rules import rule
from knfleet.runtime.controller import Result
from knfleet.runtime.manager import Component


class SessionWorks:
    """Runs the controller of works, which watches for itself."""

    def __init__(self, session: HubSession) -> None:
        server, cluster = session.address.endpoint.server, session.names.cluster
        self.works = WorkController(
            session.driver.work_source(session.hub, server, cluster),
            session.spoke,
            session.names.agent,
            session.settings.works,
        )

    def watch(self, wake: Wake) -> Sequence[Component]:
        """What must run."""
        del wake
        return [self.works]

    async def reconcile(self, _request: Request) -> Result:
        """Nothing of works concerns the ManagedCluster itself."""
        return Result.never()


CONTROLLER = AgentController("works", SessionWorks)


def work_rules() -> list[Object]:
    """What works need on the cluster: they carry objects of any kind, roles among them.

    So who may create ManifestWorks for a cluster on the hub is an administrator of the cluster, as
    with agents of Open Cluster Management; executors limit single works. The role is one of its
    own, so that it can be limited.
    """
    return [
        rule("*", ["*"], ["*"]),
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]
