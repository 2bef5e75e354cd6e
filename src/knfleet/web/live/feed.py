"""The hub's objects, kept current once for all pages, and the fleet as each viewer sees it.

Changes come in bursts; after each burst the revision grows by one, and all pages that are open look
once. The more the last round cost, the longer the next one waits, so that however much changes on
the hub, showing it takes a bounded part of a core.
"""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.errors import Forbidden, KubeError, NotFound
from knfleet.runtime.clock import LOOP_CLOCK, Clock, Timer
from knfleet.view.addon.addon_matrix import AddOnMatrix, addon_matrix
from knfleet.view.fleet_model import FleetView
from knfleet.view.fleet_reader import HubObjects, fleet_of
from knfleet.view.work.work_rows import WorkRow, work_order, work_row
from knfleet.web.server.authorization import EVERYTHING, KINDS, SHOWN_KINDS, VisibleObjects

SOONEST_SECONDS = 0.1
LATEST_SECONDS = 0.7
"""A change waits at most so long; with what the round itself takes, it is on screen in a second."""
IDLE_SHARE = 12
"""After a round, nothing is done for so many times as long as it took."""
FIRST_SECONDS = 5.0
"""How long the first page waits for the first list."""
TROUBLE_SECONDS = 2.0
"""How often it is looked whether a watch is in trouble."""
REMEMBERED = 32


class HubFeed:
    """What is on the hub, and when it changed."""

    def __init__(self, *, clock: Clock = LOOP_CLOCK) -> None:
        self.informers: dict[Resource, list[Informer]] = {kind: [] for kind in SHOWN_KINDS}
        self.clock = clock
        self.revision = 0
        self.spent = 0.0
        """What showing the last change took, in seconds of CPU."""
        self.alarm: Timer | None = None
        self.changed = asyncio.Event()
        self.fleets: dict[VisibleObjects, FleetView] = {}
        self.has_fleet_changed = False
        """Whether something changed that the fleets are made of."""
        self.shown_problems: list[str] = []
        """The problems that the fleets show."""
        self.computed = 0
        """How often a fleet was put together."""

    def follow(self, informer: Informer) -> None:
        """Show what an informer knows."""
        self.informers[informer.resource].append(informer)
        is_fleet = informer.resource in KINDS
        informer.on_change(self.mark_changed if is_fleet else self.mark_other)
        self.burst()

    def mark_changed(self, _change: StoreChange) -> None:
        self.burst()

    def mark_other(self, _change: StoreChange) -> None:
        """A work or an add-on changed, of which the fleet as a whole shows nothing."""
        self.schedule()

    def burst(self) -> None:
        """Let pages look soon, once for all that changes until then."""
        self.has_fleet_changed = True
        self.schedule()

    def schedule(self) -> None:
        """Let pages look soon at what changed."""
        if self.alarm is None:
            pause = min(max(SOONEST_SECONDS, IDLE_SHARE * self.spent), LATEST_SECONDS)
            self.alarm = self.clock.call_at(self.clock.time() + pause, self.notify)

    def notify(self) -> None:
        """Let pages look now."""
        self.alarm = None
        self.spent = 0.0
        self.revision += 1
        if self.has_fleet_changed:
            self.has_fleet_changed = False
            self.fleets.clear()
        self.changed.set()
        self.changed = asyncio.Event()

    async def after(self, revision: int) -> int:
        """Wait for a revision later than one; which it is."""
        while self.revision <= revision:
            await self.changed.wait()
        return self.revision

    @contextmanager
    def spending(self) -> Generator[None]:
        """Count the CPU time of what is done because of a change; nothing is awaited inside."""
        begun = time.thread_time()
        try:
            yield
        finally:
            self.spent += time.thread_time() - begun

    def fleet(self, visible: VisibleObjects = EVERYTHING) -> FleetView:
        """The fleet as a user sees it, put together once for each revision."""
        if (troubles := self.problems()) != self.shown_problems:
            self.shown_problems = troubles
            self.fleets.clear()
        found = self.fleets.get(visible)
        if found is None:
            if len(self.fleets) >= REMEMBERED:
                self.fleets.clear()
            objects = HubObjects(
                clusters=self.visible(CLUSTERS, visible),
                profiles=self.visible(PROFILES, visible),
                servings=self.visible(SERVINGS, visible),
                eventings=self.visible(EVENTINGS, visible),
                warnings=(*self.shown_problems, *visible.notes()),
            )
            found = self.fleets[visible] = fleet_of(objects, datetime.now(UTC))
            self.computed += 1
        return found

    def works(self, cluster: str, visible: VisibleObjects) -> list[WorkRow]:
        """The works of a cluster that a user sees, broken ones first."""
        if not visible.sees(WORKS, cluster):
            return []
        found = (
            each
            for informer in self.informers[WORKS]
            for each in informer.by_index("cluster", cluster)
        )
        return sorted(map(work_row, found), key=work_order)

    def work(self, key: Key, visible: VisibleObjects) -> WorkRow | None:
        """One work, if a user sees it."""
        found = self.find(WORKS, key) if visible.sees(WORKS, key.namespace) else None
        return None if found is None else work_row(found)

    def work_notes(self, cluster: str, visible: VisibleObjects) -> tuple[str, ...]:
        """Why works of a cluster may not be shown, or not as they are now."""
        problems = informer_problems(WORKS, self.informers[WORKS]) - {""}
        unseen = () if visible.sees(WORKS, cluster) else (visible.note(WORKS),)
        return (*unseen, *sorted(problems))

    def addons(self, visible: VisibleObjects) -> AddOnMatrix:
        """Clusters by add-ons, as a user sees them."""
        return addon_matrix(self.visible(ADDONS, visible), self.visible(CLUSTER_ADDONS, visible))

    def addon_notes(self, visible: VisibleObjects) -> tuple[str, ...]:
        """Why add-ons may not be shown, or not as they are now."""
        kinds = (CLUSTER_ADDONS, ADDONS)
        found = (informer_problems(kind, self.informers[kind]) for kind in kinds)
        problems = {each for every in found for each in every}
        unseen = [visible.note(kind) for kind in kinds if kind not in visible.everywhere]
        return (*unseen, *sorted(problems - {""}))

    def visible(self, kind: Resource, visible: VisibleObjects) -> list[Object]:
        """The objects of a kind that a user sees."""
        return [
            each
            for informer in self.informers[kind]
            for each in informer.items()
            if visible.sees(kind, each["metadata"].get("namespace", ""))
        ]

    def find(self, resource: Resource, key: Key) -> Object | None:
        found = (informer.get(key) for informer in self.informers[resource])
        return next((each for each in found if each is not None), None)

    def namespaces(self) -> dict[Resource, set[str]]:
        """Where there are objects of each kind."""
        return {
            kind: {
                each["metadata"].get("namespace", "")
                for informer in informers
                for each in informer.items()
            }
            for kind, informers in self.informers.items()
        }

    def problems(self) -> list[str]:
        """Why some of the fleet may not be shown, or not as it is now; a sentence each."""
        return [
            trouble
            for kind, informers in self.informers.items()
            if kind in KINDS
            for trouble in sorted(informer_problems(kind, informers) - {""})
        ]

    async def run(self) -> None:
        """Let pages look when something begins or ceases to be wrong, which causes no event."""
        while True:
            await asyncio.sleep(TROUBLE_SECONDS)
            if self.problems() != self.shown_problems:
                self.burst()

    async def ready(self) -> None:
        """Wait a moment for what is not known yet."""
        pending = [each for every in self.informers.values() for each in every]
        waits = [self.wait_for_sync(each) for each in pending if not each.synced.is_set()]
        if waits:
            await asyncio.gather(*waits)

    async def wait_for_sync(self, informer: Informer) -> None:
        """Wait until an informer has listed, or cannot."""
        deadline = self.clock.time() + FIRST_SECONDS
        while not informer.synced.is_set() and informer.failing is None:
            left = deadline - self.clock.time()
            if left <= 0:
                return
            try:
                # Failures cause no event, so they are polled.
                async with asyncio.timeout(min(left, 0.1)):
                    await informer.synced.wait()
            except TimeoutError:
                continue

    def close(self) -> None:
        """Notify no handler any more."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None


def informer_problems(kind: Resource, informers: list[Informer]) -> set[str]:
    """What is wrong with the watches of a kind."""
    if not informers:
        return {f"The hub is starting, and does not watch {kind} yet."}
    return {informer_problem(kind, each) for each in informers}


def informer_problem(kind: Resource, informer: Informer) -> str:
    """What is wrong with a watch, in a sentence; empty when nothing is."""
    failing: KubeError | None = informer.failing
    if failing is None:
        return "" if informer.synced.is_set() else f"The list of {kind} has not come yet."
    if isinstance(failing, NotFound):
        return f"The hub does not serve {kind}; its CustomResourceDefinition is not installed."
    if isinstance(failing, Forbidden):
        route = f" in {informer.selection.namespace}" if informer.selection.namespace else ""
        return f"The dashboard may not list {kind}{route}, so none are shown."
    return f"What is shown of {kind} may be old: {failing}."
