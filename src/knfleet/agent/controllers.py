"""Life on a hub that knows the cluster: from the first certificate until it is of no use any more.

Before the hub has accepted the cluster, it may not even look; so the agent asks, ever more rarely,
until it may. Then everything runs on watches, and ends together.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from knfleet.agent.access.access_token import AccessTokenController
from knfleet.agent.hub_session import HubSession
from knfleet.agent.registration.credential_store import CredentialStore
from knfleet.agent.registration.drivers import csr
from knfleet.agent.registration.renewal import CertificateController
from knfleet.agent.status.cluster_status import is_accepted
from knfleet.agent.status.heartbeat import HeartbeatController
from knfleet.agent.status.klusterlet import CONNECTED, WAITING, HubConnectionStatus
from knfleet.agent.status.managed_namespaces import ManagedNamespaceController
from knfleet.agent.status.reporter import ClusterStatusController
from knfleet.agent.work.controller import WorkController
from knfleet.agent.work.source import KubeSource
from knfleet.api.cluster.managedcluster import CERTIFICATE_ROTATED, CLUSTERS, ManagedCluster
from knfleet.api.conditions import StandardCondition
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.apply.manifest_parts import items, part
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Forbidden, KubeError, NotFound, Unauthorized
from knfleet.runtime.controller import Controller, ControllerOptions, Reconcile
from knfleet.runtime.logs import log
from knfleet.runtime.queue import Backoff, QueueOptions

ASK_SECONDS = (0.25, 5.0)
"""How long to wait between two looks at whether we may look: at first, and at most."""
ASKED_OFTEN = 30.0
"""After so long without being let in, it is seen to that the hub still knows of us."""
LOST_SECONDS = 20.0
"""How long the hub may say that we may not look before we believe it."""
PROMPT = ControllerOptions(queue=QueueOptions(backoff=Backoff(0.1, 10)), deadline_seconds=180)

CERTIFICATE_REJECTED = "stranger"
"""The hub does not take our certificate."""

ReportConnection = Callable[[HubConnectionStatus], None]


class SessionControllers:
    """Everything that the agent does for one seat."""

    def __init__(
        self, session: HubSession, store: CredentialStore, report: ReportConnection
    ) -> None:
        self.session = session
        self.report = report
        self.reporter = ClusterStatusController(session)
        self.access_token = AccessTokenController(session)
        self.renewal = CertificateController(session, store)
        self.status_controller = self.controller("report", self.reporter.reconcile)
        self.heartbeat = self.controller("heartbeat", HeartbeatController(session).reconcile)
        self.token_controller = self.controller("handover", self.access_token.reconcile)
        self.certificate_controller = self.controller("certificate", self.renewal.reconcile)
        self.namespace_controller = self.controller(
            "namespaces", ManagedNamespaceController(session).reconcile
        )
        server, cluster = session.address.endpoint.server, session.names.cluster
        self.works = WorkController(
            KubeSource(session.hub, server, cluster),
            session.spoke,
            session.names.agent,
            session.settings.works,
        )
        self.renewal.changed = lambda: self.wake(self.status_controller)

    def controller(self, name: str, reconcile: Reconcile) -> Controller:
        """A controller of one thing, looked at from the start on."""
        controller = Controller(name, reconcile, PROMPT)
        controller.queue.add(self.session.request)
        return controller

    def wake(self, *controllers: Controller) -> None:
        """Have controllers look again."""
        for controller in controllers:
            controller.queue.add(self.session.request)

    async def run(self) -> str:
        """Do it all until the seat is lost; why it was."""
        self.watch()
        self.report_validity()
        components = (
            self.session.own,
            self.session.events,
            *self.reporter.watched,
            self.access_token.secret,
            self.renewal.secret,
            self.status_controller,
            self.heartbeat,
            self.token_controller,
            self.certificate_controller,
            self.namespace_controller,
            self.works,
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in components]
            tasks.append(group.create_task(self.watch_session()))
            await self.session.over.wait()
            for task in tasks:
                task.cancel()
        return self.session.why

    def watch(self) -> None:
        """Wire what is watched to what is done about it."""
        self.session.own.on_change(self.cluster_changed)
        for informer in self.reporter.watched:
            informer.on_change(self.spoke_changed)
        self.access_token.secret.on_change(lambda _: self.wake(self.token_controller))
        self.renewal.secret.on_change(lambda _: self.wake(self.certificate_controller))

    def cluster_changed(self, change: StoreChange) -> None:
        """The hub, or we ourselves, changed the ManagedCluster."""
        if change.new is None:
            self.session.leave("the ManagedCluster was deleted")
            return
        cluster = self.session.cluster()
        accepted = cluster is not None and is_accepted(cluster)
        self.report(CONNECTED if accepted else WAITING)
        self.wake(self.status_controller)
        if relevant_state(change.old) != relevant_state(change.new):
            self.wake(self.heartbeat, self.token_controller, self.certificate_controller)
        if namespaces(change.old) != namespaces(change.new):
            self.wake(self.namespace_controller)

    def spoke_changed(self, change: StoreChange) -> None:
        """Something that is reported changed on the spoke."""
        if without_version(change.old) != without_version(change.new):
            self.wake(self.status_controller)

    def report_validity(self) -> None:
        """Have the conditions tell how long the certificate is valid."""
        certificate = csr.read(self.session.identity.credentials.certificate)
        if certificate is not None:
            self.session.rotated = StandardCondition(
                type=CERTIFICATE_ROTATED,
                status="True",
                reason="ClientCertificateUpdated",
                message=f"client certificate rotated, valid {csr.valid_for(certificate)}",
            )

    async def watch_session(self) -> None:
        """Give the seat up when the hub has said for a while that we have none."""
        since: float | None = None
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(1)
            failing = self.session.own.failing
            if isinstance(failing, Unauthorized):
                self.session.leave(CERTIFICATE_REJECTED)
            elif isinstance(failing, Forbidden | NotFound):
                since = since or clock()
                if clock() - since > LOST_SECONDS:
                    self.session.leave("the hub does not let us see our ManagedCluster any more")
            else:
                since = None
                if failing is not None:
                    reason = "BootstrapSecretFunctional,HubKubeConfigError"
                    self.report(
                        HubConnectionStatus("True", reason, f"The hub does not answer: {failing}")
                    )


def relevant_state(manifest: Object | None) -> object:
    """What of a ManagedCluster concerns the agent beyond the words in its status."""
    if manifest is None:
        return None
    reported = [(each["type"], each["status"]) for each in items(manifest, "status", "conditions")]
    return part(manifest, "spec"), reported


def namespaces(manifest: Object | None) -> object:
    """The namespaces that are wanted on a cluster; None while it is not accepted."""
    if manifest is None or not is_accepted(decode(manifest, ManagedCluster)):
        return None
    return [each["name"] for each in items(manifest, "status", "managedNamespaces")]


def without_version(manifest: Object | None) -> Object:
    """An object without what changes each time it is written."""
    return {name: value for name, value in (manifest or {}).items() if name != "metadata"}


async def wait_for_acceptance(session: HubSession) -> str:
    """Wait until the hub lets the cluster see itself; why it does not, if it is not to be."""
    pause, most = ASK_SECONDS
    ends = asyncio.get_running_loop().time() + ASKED_OFTEN
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


@asynccontextmanager
async def open_session(session: HubSession) -> AsyncGenerator[HubSession]:
    """A seat whose connections end with it."""
    try:
        yield session
    finally:
        await session.hub.close()
