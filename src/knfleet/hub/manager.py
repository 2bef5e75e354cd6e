"""The hub as a list of controllers; another one is a folder of `hub`, and a line here."""

from msgspec import Struct

from knfleet.api.addon.conversion import CONVERSION_PATH
from knfleet.api.operator import OPERATOR_NAMESPACE, RelatedResource
from knfleet.hub.addon import controller as addon
from knfleet.hub.addon.conversion.conversion_review import answer_conversion
from knfleet.hub.aws_account import HubAwsAccount
from knfleet.hub.clustermanager import controller as clustermanager
from knfleet.hub.clustermanager.configuration import HubConfiguration
from knfleet.hub.clustersets import controller as clustersets
from knfleet.hub.context import HubContext, Now, wall
from knfleet.hub.grpc import grpc_certificates
from knfleet.hub.hub_controller import HubController
from knfleet.hub.informers import HubInformers
from knfleet.hub.knativefleet import controller as knativefleet
from knfleet.hub.placement import controller as placement
from knfleet.hub.profiles import controller as profiles
from knfleet.hub.registration import controller as registration
from knfleet.hub.registration.drivers.registry import DRIVERS
from knfleet.hub.registration.lease import LeaseObservations
from knfleet.hub.tunnel import controller as tunnel
from knfleet.hub.tunnel.publication import TunnelPublication
from knfleet.hub.tunnel.tunnel_server import TunnelOptions, TunnelServer
from knfleet.hub.webhook import controller as webhook
from knfleet.hub.webhook.admission_review import admission
from knfleet.hub.webhook.webhook_objects import WORK_PATH
from knfleet.hub.webhook.webhook_server import WebhookServer
from knfleet.hub.work import controller as work
from knfleet.hub.work.replicasets import controller as replicasets
from knfleet.hub.work.work_validation import validate
from knfleet.kube.client.verbs import Client
from knfleet.runtime.controller import Controller, ControllerOptions
from knfleet.runtime.events.recorder import EventOptions, Events
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.manager import Manager
from knfleet.runtime.metrics import Metrics
from knfleet.runtime.queue import Backoff, QueueOptions, QueueSlots

CONTROLLERS = (
    registration.CONTROLLER,
    clustersets.CONTROLLER,
    profiles.CONTROLLER,
    placement.CONTROLLER,
    replicasets.CONTROLLER,
    knativefleet.CONTROLLER,
    clustermanager.CONTROLLER,
    tunnel.CONTROLLER,
    work.CONTROLLER,
    webhook.CONTROLLER,
    *addon.CONTROLLERS,
    grpc_certificates.CONTROLLER,
)
WEBHOOKS = {WORK_PATH: admission(validate), CONVERSION_PATH: answer_conversion}
"""What the webhook server answers, by path."""

BACKOFF = Backoff(first_seconds=0.2, limit_seconds=30)
SLOTS = QueueSlots(per_cluster=32)
"""All requests are for the hub; so many objects of a kind are reconciled at once."""
PASS_SECONDS = 120.0


def all_controllers() -> tuple[HubController, ...]:
    return (*CONTROLLERS, *(driver.controller for driver in DRIVERS))


class HubOptions(Struct, frozen=True):
    """How the hub's controllers are set up."""

    auto_approved_users: frozenset[str] = frozenset()
    auto_approved_grpc_users: frozenset[str] = frozenset()
    related_resources: tuple[RelatedResource, ...] = ()
    """What belongs to the hub on its cluster, for the status of its ClusterManager."""
    now: Now = wall
    tunnel: TunnelOptions | None = None
    """How agents and consumers connect to the tunnel; None: there is none."""
    webhook: ListenAddress | None = None
    """Where webhooks listen; None when this process serves none."""
    webhook_names: tuple[str, ...] = ()
    """DNS names by which they are called, beside those of their Service."""
    namespace: str = OPERATOR_NAMESPACE
    """The hub's own, in which its certificates are kept."""
    aws: HubAwsAccount | None = None
    """How AWS is called; None: as the environment says."""
    loopback_gates: bool = False
    """Whether gates of KnativeFleets may ask addresses of the hub's own machine or pod."""


class HubManager:
    """Builds the hub's controllers and runs them in a process."""

    def __init__(
        self,
        manager: Manager,
        client: Client,
        *,
        metrics: Metrics,
        options: HubOptions,
        replica_client: Client | None = None,
    ) -> None:
        self.manager = manager
        self.metrics = metrics
        self.informers = HubInformers(client)
        self.events = Events(client, "knfleet-hub", EventOptions(observe=metrics))
        self.tunnel = (
            None
            if options.tunnel is None
            else TunnelServer(replica_client or client, self.informers, options.tunnel, options.now)
        )
        configuration = HubConfiguration(
            self.informers,
            options.auto_approved_users,
            options.related_resources,
            options.namespace,
            options.webhook_names,
            options.auto_approved_grpc_users,
        )
        self.context = HubContext(
            client,
            self.informers,
            self.events,
            configuration,
            LeaseObservations(),
            manager.lifetime,
            options.now,
            None if self.tunnel is None else TunnelPublication(self.tunnel),
            options.aws or HubAwsAccount(),
            options.loopback_gates,
        )
        self.controllers = [
            self.controller(each)
            for each in all_controllers()
            if each is not tunnel.CONTROLLER or self.tunnel is not None
        ]
        self.webhook: WebhookServer | None = None
        if options.webhook is not None:
            self.webhook = WebhookServer(options.webhook, WEBHOOKS, metrics)
            self.webhook.follow(webhook.certificate_secrets(self.context))

    def controller(self, described: HubController) -> Controller:
        """A controller that watches and reconciles as described."""
        name = described.name
        observer = self.metrics.controller(name)
        queue = QueueOptions(slots=SLOTS, backoff=BACKOFF, observe=observer)
        reconciler = described.build(self.context)
        options = ControllerOptions(queue, PASS_SECONDS, observer)
        controller = Controller(name, reconciler.reconcile, options)
        self.metrics.watch_queue(name, controller.queue)
        for watch in reconciler.watches():
            controller.watches(watch.on_change, requests=watch.requests)
        for request in described.initial:
            controller.queue.add(request)
        return controller

    def start(self) -> None:
        """Run as a part of a process: watch always, act only while it leads."""
        for informer in self.informers.all:
            self.manager.add(informer, f"{informer.resource.kind} informer")
        self.manager.add(self.events, "fleet events")
        if self.tunnel is not None:
            for informer in self.tunnel.watched:
                self.manager.add(informer, f"tunnel {informer.resource.kind} informer")
            self.manager.add(self.tunnel, "tunnel")
        if self.webhook is not None:
            # On every replica: the Service sends requests to all of them.
            self.manager.add(self.webhook, "webhooks")
        for controller in self.controllers:
            made = InformedController(controller, self.informers)
            self.manager.add(made, f"{controller.name} controller", leading=True)


class InformedController:
    """A controller that begins when all informers have listed."""

    def __init__(self, controller: Controller, informers: HubInformers) -> None:
        self.controller = controller
        self.informers = informers

    async def run(self) -> None:
        """Reconcile, once all watches have listed."""
        await self.informers.synced()
        await self.controller.run()

    def stop(self) -> None:
        """Begin nothing new."""
        self.controller.stop()


def start_hub(
    manager: Manager,
    client: Client,
    *,
    metrics: Metrics,
    options: HubOptions | None = None,
    replica_client: Client | None = None,
) -> HubManager:
    """Add everything that makes a hub of a process; the hub's CRDs must be served.

    With `replica_client` go requests of every replica; the other one writes while we lead.
    """
    hub = HubManager(
        manager,
        client,
        metrics=metrics,
        options=options or HubOptions(),
        replica_client=replica_client,
    )
    hub.start()
    return hub
