"""The agent as a list of controllers, which run for as long as a session with the hub lasts.

Another controller is a module with a `CONTROLLER`, and a line here. Before the hub has accepted the
cluster, the agent may not even read its ManagedCluster; so it polls, ever more rarely, until it
may. Then everything runs on watches, and ends together.
"""

import asyncio
import random
from collections.abc import Callable

from knfleet.agent.access import access_token
from knfleet.agent.addon import session_addons
from knfleet.agent.agent_controller import AgentController
from knfleet.agent.hub_session import HubSession
from knfleet.agent.registration import renewal
from knfleet.agent.status import heartbeat, managed_namespaces, reporter
from knfleet.agent.status.cluster_status import is_accepted
from knfleet.agent.status.klusterlet import CONNECTED, WAITING, HubConnectionStatus
from knfleet.agent.tunnel import controller as tunnel
from knfleet.agent.work import session_works
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Forbidden, KubeError, NotFound, Unauthorized
from knfleet.runtime.controller import Controller, ControllerOptions
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Component
from knfleet.runtime.queue import Backoff, QueueOptions

CONTROLLERS = (
    reporter.CONTROLLER,
    heartbeat.CONTROLLER,
    access_token.CONTROLLER,
    renewal.CONTROLLER,
    managed_namespaces.CONTROLLER,
    tunnel.CONTROLLER,
    session_works.CONTROLLER,
    session_addons.CONTROLLER,
)

POLL_SECONDS = (0.25, 5.0)
"""How long to wait between two tries before the cluster is accepted: at first, and at most."""
POLLED_LONG_SECONDS = 30.0
"""After so long without acceptance, the registration is checked."""
LOST_SECONDS = 20.0
"""How long the hub may deny access before the session ends."""
PROMPT = ControllerOptions(queue=QueueOptions(backoff=Backoff(0.1, 10)), deadline_seconds=180)

CERTIFICATE_REJECTED = "certificate rejected"
"""The hub does not accept our certificate."""

ReportConnection = Callable[[HubConnectionStatus], None]


class SessionControllers:
    """Runs the controllers of one session."""

    def __init__(self, session: HubSession, report: ReportConnection) -> None:
        self.session = session
        self.report = report
        followed = session.driver.components(session.hub)
        self.components: list[Component] = [session.own, session.events, *followed]
        for each in CONTROLLERS:
            self.add(each)

    def add(self, described: AgentController) -> None:
        """Build a controller, and wake it when what it watches changes."""
        reconciler = described.build(self.session)
        controller = Controller(described.name, reconciler.reconcile, PROMPT)

        def wake() -> None:
            controller.queue.add(self.session.request)

        wake()
        self.components += [*reconciler.watch(wake), controller]

    async def run(self) -> str:
        """Run everything until the session ends; why it did."""
        self.session.own.on_change(self.cluster_changed)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in self.components]
            tasks.append(group.create_task(self.watch_access()))
            await self.session.ended.wait()
            for task in tasks:
                task.cancel()
        return self.session.end_reason

    def cluster_changed(self, change: StoreChange) -> None:
        """Report whether the cluster is accepted; one that is deleted ends the session."""
        if change.new is None:
            self.session.end("the ManagedCluster was deleted")
            return
        cluster = self.session.cluster()
        accepted = cluster is not None and is_accepted(cluster)
        self.report(CONNECTED if accepted else WAITING)

    async def watch_access(self) -> None:
        """End the session when the hub has denied access for a while."""
        since: float | None = None
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(1)
            failing = self.session.own.failing
            if isinstance(failing, Unauthorized):
                self.session.end(CERTIFICATE_REJECTED)
            elif isinstance(failing, Forbidden | NotFound):
                since = since or clock()
                if clock() - since > LOST_SECONDS:
                    self.session.end("the hub denies access to the ManagedCluster")
            else:
                since = None
                if failing is not None:
                    reason = "BootstrapSecretFunctional,HubKubeConfigError"
                    message = f"The hub does not answer: {failing}"
                    self.report(HubConnectionStatus("True", reason, message))


async def wait_for_acceptance(session: HubSession) -> str:
    """Wait until the agent may read its ManagedCluster; why it may not, after a while."""
    pause, most = POLL_SECONDS
    ends = asyncio.get_running_loop().time() + POLLED_LONG_SECONDS
    while asyncio.get_running_loop().time() < ends:
        try:
            await session.hub.get(CLUSTERS, session.names.cluster)
        except Unauthorized:
            return CERTIFICATE_REJECTED
        except NotFound:
            return "unknown"
        except Forbidden:
            log.debug("not accepted yet")
        except KubeError as error:
            log.warning("the hub does not answer", error=str(error))
        else:
            return ""
        await asyncio.sleep(pause * random.uniform(0.75, 1.0))  # noqa: S311 - not a secret
        pause = min(pause * 1.5, most)
    return "waiting"
