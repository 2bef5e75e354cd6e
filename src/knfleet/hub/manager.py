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
from knfleet.hub.cluster_manager import Installation, conditions, status_patch
from knfleet.hub.clustersets.controller import ClusterSets
from knfleet.hub.context import Now, Parts, wall
from knfleet.hub.informers import Views
from knfleet.hub.profiles.controller import Publishing
from knfleet.hub.profiles.profile_namespaces import Places
from knfleet.hub.registration.controller import Clusters
from knfleet.hub.registration.drivers.csr import Requests
from knfleet.hub.registration.lease import Heartbeats
from knfleet.hub.webhook.configuration import WORK_PATH
from knfleet.hub.webhook.controller import WebhookCertificates
from knfleet.hub.webhook.reviews import admission
from knfleet.hub.webhook.server import WebhookServer
from knfleet.hub.work.controller import CompletedWorks
from knfleet.hub.work.validation import validate
from knfleet.kube.cache.informer import Change
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, Forbidden, NotFound
from knfleet.runtime.controller import Again, Controller, ControllerOptions
from knfleet.runtime.events.recorder import EventOptions, Events
from knfleet.runtime.http.listen_address import Bind
from knfleet.runtime.manager import Manager
from knfleet.runtime.metrics import Metrics
from knfleet.runtime.queue import Backoff, QueueOptions, Slots

BACKOFF = Backoff(first_seconds=0.2, limit_seconds=30)
SLOTS = Slots(per_cluster=32)
"""All requests are for the hub; so many clusters are seen to at once."""
PASS_SECONDS = 120.0
STATUS_SECONDS = 30.0


HANDLERS = {WORK_PATH: admission(validate)}
"""What webhooks answer, by path."""


class FleetOptions(Struct, frozen=True):
    """How the fleet's controllers are set up."""

    auto_approved_users: frozenset[str] = frozenset()
    related_resources: tuple[RelatedResource, ...] = ()
    """What belongs to the hub on its cluster, for the status of its ClusterManager."""
    now: Now = wall
    webhook: Bind | None = None
    """Where webhooks listen; None when this process serves none."""
    webhook_names: tuple[str, ...] = ()
    """DNS names by which they are called, beside those of their Service."""
    namespace: str = OPERATOR_NAMESPACE
    """The hub's own, in which its certificates are kept."""


class Fleet:
    """The hub's controllers, and what they watch."""

    def __init__(
        self, manager: Manager, client: Client, *, metrics: Metrics, options: FleetOptions
    ) -> None:
        self.manager = manager
        self.client = client
        self.metrics = metrics
        self.options = options
        self.views = Views(client)
        self.events = Events(client, "knfleet-hub", EventOptions(observe=metrics))
        self.parts = Parts(
            client,
            self.views,
            self.events,
            Installation(self.views, options.auto_approved_users),
            Heartbeats(),
            options.now,
        )
        self.sets = ClusterSets(self.parts)
        self.controllers = [
            self.clusters(),
            self.requests(),
            self.cluster_sets(),
            self.publishing(),
            self.managers(),
            self.completed_works(),
        ]
        self.webhook: WebhookServer | None = None

    def controller(self, name: str, reconcile: Callable[[Request], Awaitable[Again]]) -> Controller:
        """A controller with our options."""
        observer = self.metrics.controller(name)
        queue = QueueOptions(slots=SLOTS, backoff=BACKOFF, observe=observer)
        made = Controller(name, reconcile, ControllerOptions(queue, PASS_SECONDS, observer))
        self.metrics.watch_queue(name, made.queue)
        return made

    def clusters(self) -> Controller:
        """The controller of clusters."""
        clusters = Clusters(self.parts)
        made = self.controller("managedcluster", clusters.reconcile)
        made.watches(self.views.clusters.on_change, requests=clusters.by_cluster)
        made.watches(self.views.leases.on_change, requests=clusters.by_namespace)
        made.watches(self.views.access.on_change, requests=clusters.by_namespace)
        made.watches(self.views.works.on_change, requests=clusters.by_work)
        made.watches(self.views.sets.on_change, requests=clusters.by_set)
        made.watches(self.views.managers.on_change, requests=clusters.by_manager)
        return made

    def requests(self) -> Controller:
        """The controller of certificate requests."""
        requests = Requests(self.parts)
        made = self.controller("certificaterequest", requests.reconcile)
        made.watches(self.views.requests.on_change, requests=requests.by_request)
        made.watches(self.views.clusters.on_change, requests=requests.by_cluster)
        made.watches(self.views.managers.on_change, requests=requests.by_manager)
        return made

    def cluster_sets(self) -> Controller:
        """The controller of sets and bindings."""
        made = self.controller("managedclusterset", self.sets.reconcile)
        made.watches(self.views.sets.on_change, requests=self.sets.by_set)
        made.watches(self.views.bindings.on_change, requests=self.sets.by_binding)
        made.watches(self.views.clusters.on_change, requests=self.sets.by_cluster)
        for request in self.sets.built_in():
            made.queue.add(request)
        return made

    def publishing(self) -> Controller:
        """The controller of profiles."""
        places = Places(self.client, self.manager.lifetime)
        publishing = Publishing(self.parts, places)
        made = self.controller("clusterprofile", publishing.reconcile)
        made.watches(self.views.clusters.on_change, requests=publishing.by_cluster)
        made.watches(self.views.access.on_change, requests=publishing.by_access)
        made.watches(self.views.bindings.on_change, requests=publishing.by_binding)
        made.watches(self.views.sets.on_change, requests=publishing.by_set)
        made.watches(self.views.profiles.on_change, requests=publishing.by_profile)
        made.watches(places.on_change, requests=publishing.by_secret)
        return made

    def managers(self) -> Controller:
        """The controller of the ClusterManager's status."""
        made = self.controller("clustermanager", self.say_how_it_stands)
        made.watches(self.views.managers.on_change, requests=by_manager)
        return made

    def completed_works(self) -> Controller:
        """The controller of works with a time to live."""
        completed = CompletedWorks(self.parts)
        made = self.controller("manifestwork", completed.reconcile)
        made.watches(self.views.works.on_change, requests=completed.by_work)
        made.watches(self.views.managers.on_change, requests=completed.by_manager)
        return made

    def serve_webhooks(self, bind: Bind) -> None:
        """Serve webhooks: every replica listens, the leader keeps the certificates."""
        options = self.options
        certificates = WebhookCertificates(
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
            Informed(made, certificates.synced), f"{made.name} controller", leading=True
        )

    async def say_how_it_stands(self, request: Request) -> Again:
        """Write what the hub says of itself."""
        if self.views.managers.get(request.key) is None:
            return Again.never()
        manager = self.parts.installation.manager
        failing = self.views.failing
        new = list(manager.status.conditions)
        for said in conditions(manager, "" if failing is None else str(failing)):
            new = put(new, said, self.parts.now())
        patch = status_patch(
            manager, new, await self.own_deployment(), self.options.related_resources
        )
        if patch:
            try:
                await self.client.patch(CLUSTER_MANAGERS, request.key, patch, subresource="status")
            except Conflict:
                return Again.after(0.05)
        return Again.after(STATUS_SECONDS)

    async def own_deployment(self) -> Object | None:
        """The hub's own Deployment; None when it runs as something else."""
        try:
            return await self.client.get(DEPLOYMENTS, CLUSTER_MANAGER, OPERATOR_NAMESPACE)
        except (NotFound, Forbidden):
            return None

    def join(self) -> None:
        """Run as a part of a process: watch always, act only while it leads."""
        for view in self.views.all:
            self.manager.add(view, f"{view.resource.kind} informer")
        self.manager.add(self.events, "fleet events")
        if self.options.webhook is not None:
            self.serve_webhooks(self.options.webhook)
        for controller in self.controllers:
            made = Informed(controller, self.views.synced)
            self.manager.add(made, f"{controller.name} controller", leading=True)


class Informed:
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


def by_manager(change: Change) -> Iterable[Request]:
    """A ClusterManager changed."""
    yield Request(HUB, Key("", change.key.name))


def join(
    manager: Manager, client: Client, *, metrics: Metrics, options: FleetOptions | None = None
) -> Fleet:
    """Add everything that makes a hub of a process; the fleet's CRDs must be served."""
    fleet = Fleet(manager, client, metrics=metrics, options=options or FleetOptions())
    fleet.join()
    return fleet
