"""The fleet as a part of a process: which watches wake which controllers."""

from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct

from knfleet.api.conditions import put
from knfleet.api.core import DEPLOYMENTS
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.operator import (
    CLUSTER_MANAGER,
    CLUSTER_MANAGERS,
    OPERATOR_NAMESPACE,
    RelatedResource,
)
from knfleet.hub.cluster_manager import HubConfiguration, conditions, status_patch
from knfleet.hub.clustersets.controller import ClusterSetController
from knfleet.hub.context import HubContext, Now, wall
from knfleet.hub.informers import HubInformers
from knfleet.hub.profiles.controller import ClusterProfileController
from knfleet.hub.profiles.profile_namespaces import ProfileNamespaces
from knfleet.hub.registration.controller import ManagedClusterController
from knfleet.hub.registration.drivers.csr import CSRApprovalController
from knfleet.hub.registration.lease import LeaseObservations
from knfleet.hub.webhook.admission_review import admission
from knfleet.hub.webhook.controller import WebhookCertificateController
from knfleet.hub.webhook.webhook_objects import WORK_PATH
from knfleet.hub.webhook.webhook_server import WebhookServer
from knfleet.hub.work.controller import CompletedWorkController
from knfleet.hub.work.work_validation import validate
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, Forbidden, NotFound
from knfleet.runtime.controller import Controller, ControllerOptions, Result
from knfleet.runtime.events.recorder import EventOptions, Events
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.manager import Manager
from knfleet.runtime.metrics import Metrics
from knfleet.runtime.queue import Backoff, QueueOptions, QueueSlots

BACKOFF = Backoff(first_seconds=0.2, limit_seconds=30)
SLOTS = QueueSlots(per_cluster=32)
"""All requests are for the hub; so many clusters are seen to at once."""
PASS_SECONDS = 120.0
STATUS_SECONDS = 30.0


HANDLERS = {WORK_PATH: admission(validate)}
"""What webhooks answer, by path."""


class HubOptions(Struct, frozen=True):
    """How the fleet's controllers are set up."""

    auto_approved_users: frozenset[str] = frozenset()
    related_resources: tuple[RelatedResource, ...] = ()
    """What belongs to the hub on its cluster, for the status of its ClusterManager."""
    now: Now = wall
    webhook: ListenAddress | None = None
    """Where webhooks listen; None when this process serves none."""
    webhook_names: tuple[str, ...] = ()
    """DNS names by which they are called, beside those of their Service."""
    namespace: str = OPERATOR_NAMESPACE
    """The hub's own, in which its certificates are kept."""


class HubManager:
    """The hub's controllers, and what they watch."""

    def __init__(
        self, manager: Manager, client: Client, *, metrics: Metrics, options: HubOptions
    ) -> None:
        self.manager = manager
        self.client = client
        self.metrics = metrics
        self.options = options
        self.informers = HubInformers(client)
        self.events = Events(client, "knfleet-hub", EventOptions(observe=metrics))
        self.context = HubContext(
            client,
            self.informers,
            self.events,
            HubConfiguration(self.informers, options.auto_approved_users),
            LeaseObservations(),
            options.now,
        )
        self.sets = ClusterSetController(self.context)
        self.controllers = [
            self.managed_clusters(),
            self.csr_approval(),
            self.cluster_sets(),
            self.cluster_profiles(),
            self.managers(),
            self.completed_works(),
        ]
        self.webhook: WebhookServer | None = None

    def controller(
        self, name: str, reconcile: Callable[[Request], Awaitable[Result]]
    ) -> Controller:
        """A controller with our options."""
        observer = self.metrics.controller(name)
        queue = QueueOptions(slots=SLOTS, backoff=BACKOFF, observe=observer)
        made = Controller(name, reconcile, ControllerOptions(queue, PASS_SECONDS, observer))
        self.metrics.watch_queue(name, made.queue)
        return made

    def managed_clusters(self) -> Controller:
        """The controller of clusters."""
        clusters = ManagedClusterController(self.context)
        made = self.controller("managedcluster", clusters.reconcile)
        made.watches(self.informers.clusters.on_change, requests=clusters.by_cluster)
        made.watches(self.informers.leases.on_change, requests=clusters.by_namespace)
        made.watches(self.informers.access.on_change, requests=clusters.by_namespace)
        made.watches(self.informers.works.on_change, requests=clusters.by_work)
        made.watches(self.informers.sets.on_change, requests=clusters.by_set)
        made.watches(self.informers.managers.on_change, requests=clusters.by_manager)
        return made

    def csr_approval(self) -> Controller:
        """The controller of certificate requests."""
        requests = CSRApprovalController(self.context)
        made = self.controller("certificaterequest", requests.reconcile)
        made.watches(self.informers.requests.on_change, requests=requests.by_request)
        made.watches(self.informers.clusters.on_change, requests=requests.by_cluster)
        made.watches(self.informers.managers.on_change, requests=requests.by_manager)
        return made

    def cluster_sets(self) -> Controller:
        """The controller of sets and bindings."""
        made = self.controller("managedclusterset", self.sets.reconcile)
        made.watches(self.informers.sets.on_change, requests=self.sets.by_set)
        made.watches(self.informers.bindings.on_change, requests=self.sets.by_binding)
        made.watches(self.informers.clusters.on_change, requests=self.sets.by_cluster)
        for request in self.sets.built_in():
            made.queue.add(request)
        return made

    def cluster_profiles(self) -> Controller:
        """The controller of profiles."""
        places = ProfileNamespaces(self.client, self.manager.lifetime)
        publishing = ClusterProfileController(self.context, places)
        made = self.controller("clusterprofile", publishing.reconcile)
        made.watches(self.informers.clusters.on_change, requests=publishing.by_cluster)
        made.watches(self.informers.access.on_change, requests=publishing.by_access)
        made.watches(self.informers.bindings.on_change, requests=publishing.by_binding)
        made.watches(self.informers.sets.on_change, requests=publishing.by_set)
        made.watches(self.informers.profiles.on_change, requests=publishing.by_profile)
        made.watches(places.on_change, requests=publishing.by_secret)
        return made

    def managers(self) -> Controller:
        """The controller of the ClusterManager's status."""
        made = self.controller("clustermanager", self.update_status)
        made.watches(self.informers.managers.on_change, requests=by_manager)
        return made

    def completed_works(self) -> Controller:
        """The controller of works with a time to live."""
        completed = CompletedWorkController(self.context)
        made = self.controller("manifestwork", completed.reconcile)
        made.watches(self.informers.works.on_change, requests=completed.by_work)
        made.watches(self.informers.managers.on_change, requests=completed.by_manager)
        return made

    def serve_webhooks(self, bind: ListenAddress) -> None:
        """Serve webhooks: every replica listens, the leader keeps the certificates."""
        options = self.options
        certificates = WebhookCertificateController(
            self.client, options.namespace, options.now, names=options.webhook_names
        )
        self.webhook = WebhookServer(bind, HANDLERS, self.metrics)
        self.webhook.follow(certificates.secrets)
        made = self.controller("webhookcertificate", certificates.reconcile)
        for informer in certificates.informers:
            made.watches(informer.on_change, requests=certificates.by_change)
            self.manager.add(informer, f"{informer.resource.kind} informer")
        made.queue.add(certificates.request)
        self.manager.add(self.webhook, "webhooks")
        self.manager.add(
            InformedController(made, certificates.synced), f"{made.name} controller", leading=True
        )

    async def update_status(self, request: Request) -> Result:
        """Write what the hub says of itself."""
        if self.informers.managers.get(request.key) is None:
            return Result.never()
        manager = self.context.configuration.manager
        failing = self.informers.failing
        new = list(manager.status.conditions)
        for said in conditions(manager, "" if failing is None else str(failing)):
            new = put(new, said, self.context.now())
        patch = status_patch(
            manager, new, await self.own_deployment(), self.options.related_resources
        )
        if patch:
            try:
                await self.client.patch(CLUSTER_MANAGERS, request.key, patch, subresource="status")
            except Conflict:
                return Result.after(0.05)
        return Result.after(STATUS_SECONDS)

    async def own_deployment(self) -> Object | None:
        """The hub's own Deployment; None when it runs as something else."""
        try:
            return await self.client.get(DEPLOYMENTS, CLUSTER_MANAGER, OPERATOR_NAMESPACE)
        except (NotFound, Forbidden):
            return None

    def join(self) -> None:
        """Run as a part of a process: watch always, act only while it leads."""
        for informer in self.informers.all:
            self.manager.add(informer, f"{informer.resource.kind} informer")
        self.manager.add(self.events, "fleet events")
        if self.options.webhook is not None:
            self.serve_webhooks(self.options.webhook)
        for controller in self.controllers:
            made = InformedController(controller, self.informers.synced)
            self.manager.add(made, f"{controller.name} controller", leading=True)


class InformedController:
    """A controller that begins when everything is known."""

    def __init__(self, controller: Controller, synced: Callable[[], Awaitable[None]]) -> None:
        self.controller = controller
        self.synced = synced

    async def run(self) -> None:
        """Reconcile, once all watches have listed."""
        await self.synced()
        await self.controller.run()

    def stop(self) -> None:
        """Begin nothing new."""
        self.controller.stop()


def by_manager(change: StoreChange) -> Iterable[Request]:
    """A ClusterManager changed."""
    yield Request(HUB, Key("", change.key.name))


def start_hub(
    manager: Manager, client: Client, *, metrics: Metrics, options: HubOptions | None = None
) -> HubManager:
    """Add everything that makes a hub of a process; the fleet's CRDs must be served."""
    fleet = HubManager(manager, client, metrics=metrics, options=options or HubOptions())
    fleet.join()
    return fleet
