"""The controller of one kind: what it watches, and which changes are worth a pass.

A pass follows from a new generation, a deletion, a changed annotation, a lost finalizer, a status
that another client wrote, or a change on the target. Our own status writes cause none.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from knfleet.api.knative import conditions
from knfleet.api.knative.conditions import DEPENDENTS, READY
from knfleet.api.knative.verification import DEFAULT_IMAGE
from knfleet.api.meta import HUB, ClusterName, Key, Object, Request
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.operator.desired_objects import Renderer
from knfleet.operator.installation_registry import InstallationRegistry
from knfleet.operator.kinds import (
    BY_PLACE,
    KnativeKind,
    finalizers_of,
    is_deleting,
    place_index,
    place_of,
    profile_of,
)
from knfleet.operator.reconcile import Reconciler
from knfleet.operator.settings import POLL_SECONDS
from knfleet.operator.status.status_builder import status_of
from knfleet.operator.status.status_writer import StatusWriter
from knfleet.operator.targets.targets import Targets
from knfleet.operator.uninstall.tombstones import Tombstones
from knfleet.runtime.controller import Controller, ControllerOptions, Result
from knfleet.runtime.events.recorder import EventOptions, Events
from knfleet.runtime.manager import Manager
from knfleet.runtime.metrics import Metrics
from knfleet.runtime.queue import Backoff, QueueOptions, QueueSlots
from knfleet.runtime.start_limit import StartLimit

BACKOFF = Backoff(first_seconds=0.5, limit_seconds=30)
"""Passes that fail as a whole fail because the hub does not answer; it should not be far away."""
PASS_SECONDS = 900.0
AT_ONCE, TURN_SECONDS = 64, 2.0
"""So many passes are made at once; one that takes longer, as on a spoke that is slow or hangs, goes
on without blocking others."""

NOT_OURS_SECONDS = 1.0
"""When to look again at a custom resource that we had, and that may be another's now."""


class OperatorContext(Struct, frozen=True):
    """What the controllers of a process share."""

    client: Client
    targets: Targets
    renderer: Renderer
    metrics: Metrics
    tombstones: Tombstones
    pass_starts: StartLimit
    """Passes that are made at once; a thousand at once would all be late, and then fail."""
    slots: QueueSlots = QueueSlots()
    poll_seconds: float = POLL_SECONDS
    verify_image: str = DEFAULT_IMAGE
    owns: Callable[[str], bool] | None = None
    """Whether what is installed at a place is for this process to see to; None when all is."""


class KnativeController:
    """Watches the custom resources of one kind, and reconciles them."""

    def __init__(self, kind: KnativeKind, context: OperatorContext, manager: Manager) -> None:
        self.kind = kind
        name = kind.resource.kind.lower()
        self.resources = Informer(
            context.client,
            kind.resource,
            trim=without_managed_fields,
            indexes={BY_PLACE: place_index},
        )
        self.events = Events(context.client, kind.component, EventOptions(observe=context.metrics))
        observer = context.metrics.controller(name)
        queue = QueueOptions(
            slots=context.slots, backoff=BACKOFF, cluster_of=self.cluster_of, observe=observer
        )
        options = ControllerOptions(queue, PASS_SECONDS, observer)
        installations = InstallationRegistry(
            kind,
            context.targets,
            status_writer=StatusWriter(kind, context.client, self.events, context.metrics),
            lifetime=manager.lifetime,
            look_again=self.requeue,
            starts=context.pass_starts,
        )
        self.reconciler = Reconciler(
            kind,
            self.resources,
            renderer=context.renderer,
            installations=installations,
            tombstones=context.tombstones,
            poll_seconds=context.poll_seconds,
            verify_image=context.verify_image,
        )
        self.owns = context.owns
        self.controller = Controller(name, self.reconcile, options)
        self.controller.watches(self.resources.on_change, requests=self.requests)
        context.metrics.watch_queue(name, self.controller.queue)

    async def reconcile(self, request: Request) -> Result:
        """Bring one custom resource a step further, if it is ours."""
        if self.is_ours(request.key):
            return await self.reconciler.reconcile(request)
        # One that we had may be ours again in a moment; one that is another's is let go.
        return Result.when(request.key not in self.reconciler.records, else_after=NOT_OURS_SECONDS)

    def is_ours(self, key: Key) -> bool:
        """Whether a custom resource is for this process to see to; one that is gone always is."""
        manifest = self.resources.get(key)
        return self.owns is None or manifest is None or self.owns(place_of(manifest))

    def on_gained(self) -> None:
        """Begin with custom resources that are ours now."""
        for manifest in self.resources.items():
            key = Key.of(manifest)
            if key not in self.reconciler.records and self.is_ours(key):
                self.controller.queue.add(Request(HUB, key))

    async def on_lost(self) -> None:
        """Stop all work on custom resources that are not ours; nothing of it runs afterwards."""
        await self.controller.cut_off(lambda request: not self.is_ours(request.key))
        records, owns = self.reconciler.records, self.owns
        theirs = [
            (key, record.lifetime)
            for key, record in records.items()
            # Gone or not: what it had running runs until it is forgotten.
            if owns is not None and not owns(place_of(record.manifest))
        ]
        for key, _ in theirs:
            self.reconciler.forget(key)
        for _, lifetime in theirs:
            if lifetime is not None:
                await lifetime.ended.wait()

    def cluster_of(self, request: Request) -> ClusterName:
        """Whose slot a pass uses: a spoke that hangs holds its own, and no other."""
        manifest = self.resources.get(request.key)
        profile = None if manifest is None else profile_of(manifest)
        return HUB if profile is None else ClusterName(str(profile))

    def spoke_changed(self, profile: Key) -> None:
        """Look at everything on a spoke; a pass that waits for one that is lost is cut off."""
        for manifest in self.resources.by_index(BY_PLACE, str(profile)):
            key = Key.of(manifest)
            record = self.reconciler.records.get(key)
            if record is not None and self.reconciler.targets.is_away(manifest):
                record.interrupt()
            self.controller.queue.add(Request(HUB, key))

    def requeue(self, request: Request, seconds: float) -> None:
        """Have a custom resource looked at soon."""
        self.controller.queue.add_after(request, seconds)

    def requests(self, change: StoreChange) -> Iterable[Request]:
        """What must be looked at after a change of a custom resource."""
        if change.new is None:
            # One that waited for its place may have it now.
            yield Request(HUB, change.key)
            yield from (Request(HUB, Key.of(each)) for each in self.neighbours(change.old))
        elif change.old is None or self.is_news(change.old, change.new):
            yield Request(HUB, change.key)

    def neighbours(self, manifest: Object | None) -> list[Object]:
        """Custom resources that install where another one did."""
        return [] if manifest is None else self.resources.by_index(BY_PLACE, place_of(manifest))

    def is_news(self, old: Object, new: Object) -> bool:
        """Whether a change of a custom resource is more than our own words."""
        if cause(old) != cause(new):
            return True
        finalizer = self.kind.finalizer
        if finalizer in finalizers_of(old) and finalizer not in finalizers_of(new):
            return True
        record = self.reconciler.records.get(Key.of(new))
        return record is not None and not record.has_reported(status_of(new))

    async def run(self) -> None:
        """Reconcile from when everything is known; several claim one place otherwise."""
        await self.resources.synced.wait()
        await self.controller.run()

    def stop(self) -> None:
        """Begin nothing new."""
        self.controller.stop()

    def join(self, manager: Manager) -> None:
        """Run as a part of a process: watch always, act only while it leads, or on its share."""
        manager.add(self.resources, f"{self.kind.resource.kind} informer")
        manager.add(self.events, f"{self.kind.resource.kind} events")
        manager.add(self, f"{self.kind.resource.kind} controller", leading=self.owns is None)


def cause(manifest: Object) -> tuple[object, ...]:
    """What of a custom resource calls for a pass when it changes."""
    meta = manifest["metadata"]
    return (
        meta.get("uid"),
        meta.get("generation"),
        is_deleting(manifest),
        meta.get("annotations") or {},
    )


def count_conditions(metrics: Metrics, controllers: Iterable[KnativeController]) -> None:
    """Tell how many custom resources have each condition, at each scrape."""
    every = list(controllers)
    gauge = metrics.gauge(
        "custom_resources", "Custom resources by condition", "kind", "condition", "status"
    )

    def read() -> None:
        for each in every:
            kind = each.kind.resource.kind
            for type_ in (READY, *DEPENDENTS):
                builder = [find_status(manifest, type_) for manifest in each.resources.items()]
                for status in ("True", "False", "Unknown"):
                    gauge.labels(kind, type_, status).set(builder.count(status))

    metrics.before_scrape.append(read)


def find_status(manifest: Object, type_: str) -> str:
    """What a custom resource says of one condition."""
    found = conditions.find(status_of(manifest).conditions, type_)
    return "Unknown" if found is None else found.status
