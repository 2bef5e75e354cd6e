"""The hub as a list of controllers; another one is a folder of `hub`, and a line here."""

from msgspec import Struct

from knfleet.api.operator import RelatedResource
from knfleet.hub.clustermanager import controller as clustermanager
from knfleet.hub.clustermanager.configuration import HubConfiguration
from knfleet.hub.clustersets import controller as clustersets
from knfleet.hub.context import HubContext, Now, wall
from knfleet.hub.hub_controller import HubController
from knfleet.hub.informers import HubInformers
from knfleet.hub.profiles import controller as profiles
from knfleet.hub.registration import controller as registration
from knfleet.hub.registration.drivers.registry import DRIVERS
from knfleet.hub.registration.lease import LeaseObservations
from knfleet.kube.client.verbs import Client
from knfleet.runtime.controller import Controller, ControllerOptions
from knfleet.runtime.events.recorder import EventOptions, Events
from knfleet.runtime.manager import Manager
from knfleet.runtime.metrics import Metrics
from knfleet.runtime.queue import Backoff, QueueOptions, QueueSlots

CONTROLLERS = (
    registration.CONTROLLER,
    clustersets.CONTROLLER,
    profiles.CONTROLLER,
    clustermanager.CONTROLLER,
)

BACKOFF = Backoff(first_seconds=0.2, limit_seconds=30)
SLOTS = QueueSlots(per_cluster=32)
"""All requests are for the hub; so many objects of a kind are reconciled at once."""
PASS_SECONDS = 120.0


def all_controllers() -> tuple[HubController, ...]:
    """The controllers of the hub and of its registration drivers."""
    return (*CONTROLLERS, *(driver.controller for driver in DRIVERS))


class HubOptions(Struct, frozen=True):
    """How the hub's controllers are set up."""

    auto_approved_users: frozenset[str] = frozenset()
    related_resources: tuple[RelatedResource, ...] = ()
    """What belongs to the hub on its cluster, for the status of its ClusterManager."""
    now: Now = wall


class HubManager:
    """Builds the hub's controllers and runs them in a process."""

    def __init__(
        self, manager: Manager, client: Client, *, metrics: Metrics, options: HubOptions
    ) -> None:
        self.manager = manager
        self.metrics = metrics
        self.informers = HubInformers(client)
        self.events = Events(client, "knfleet-hub", EventOptions(observe=metrics))
        configuration = HubConfiguration(
            self.informers, options.auto_approved_users, options.related_resources
        )
        self.context = HubContext(
            client,
            self.informers,
            self.events,
            configuration,
            LeaseObservations(),
            manager.lifetime,
            options.now,
        )
        self.controllers = [self.controller(each) for each in all_controllers()]

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
    manager: Manager, client: Client, *, metrics: Metrics, options: HubOptions | None = None
) -> HubManager:
    """Add everything that makes a hub of a process; the hub's CRDs must be served."""
    hub = HubManager(manager, client, metrics=metrics, options=options or HubOptions())
    hub.start()
    return hub
