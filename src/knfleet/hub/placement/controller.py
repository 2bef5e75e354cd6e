"""Reconciles Placements: schedules, writes decisions and status, publishes decisions."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from knfleet.api.cluster.placement import PLACEMENTS, SCORES, Placement
from knfleet.api.conditions import put
from knfleet.api.inventory import PUBLISHED_DECISIONS
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Object, Request
from knfleet.hub.context import HubContext, plain
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.placement.decisions.decision_objects import Changes, changes
from knfleet.hub.placement.decisions.decision_writer import DecisionWriter
from knfleet.hub.placement.decisions.published import placement_of as published_placement
from knfleet.hub.placement.decisions.published import publication
from knfleet.hub.placement.placement_watch import PlacementWatch, uses_cel
from knfleet.hub.placement.rights import RULES
from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates, Unfinished
from knfleet.hub.placement.scheduler.schedule import schedule
from knfleet.hub.placement.scheduler.schedule_model import Decision, Schedule
from knfleet.kube.errors import AlreadyExists, Conflict, NotFound
from knfleet.runtime.controller import Result

INLINE = 1_500
"""Scheduling among more clusters than this leaves the event loop, as do expressions."""
RETRY_SECONDS = 0.05
"""When the cache is behind what this process wrote itself."""


class PlacementController:
    """Reconciles Placements."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.informers = context.informers
        self.scores = self.informers.shared(SCORES)
        self.published = self.informers.shared(
            PUBLISHED_DECISIONS, indexes={"placement": published_placement}
        )
        self.cel = CelPredicates()
        self.watch = PlacementWatch(self.informers.decisions, self.cel)
        self.scheduling = asyncio.Lock()

    def watches(self) -> Sequence[Watch]:
        """The changes that lead to requests."""
        informers, watch = self.informers, self.watch
        return (
            Watch(informers.clusters.on_change, watch.by_cluster),
            Watch(informers.sets.on_change, watch.by_set),
            Watch(informers.bindings.on_change, watch.by_binding),
            Watch(self.scores.on_change, watch.by_score),
            Watch(informers.placements.on_change, watch.by_placement),
            Watch(informers.decisions.on_change, watch.by_decision),
        )

    async def reconcile(self, request: Request) -> Result:
        """Bring the decisions of one Placement up to date."""
        placement = self.watch.placements.get(request.key)
        if placement is None or placement.metadata.deleting:
            return Result.never()
        try:
            if placement.scheduling_disabled:
                objects = self.watch.objects(placement.key)
                await self.publish(placement, [one for each in objects for one in each.decisions])
                return Result.never()
            return await self.decide(placement)
        except (AlreadyExists, Conflict, NotFound):
            return Result.after(RETRY_SECONDS)

    async def decide(self, placement: Placement) -> Result:
        """Schedule, and write what comes of it; decisions first."""
        now = self.context.now()
        try:
            scheduled = await self.schedule(placement, now)
        except Unfinished:
            return Result.now()
        existing = self.watch.objects(placement.key)
        wanted = changes(placement, scheduled, existing, now)
        self.watch.expect(placement.key).decisions = {
            name: replace(each, owner=placement.metadata.uid)
            for name, each in wanted.targets.items()
        }
        writer = DecisionWriter(self.client, placement)
        await writer.decide(wanted, existing)
        decisions = [one for each in wanted.targets.values() for one in each.decisions]
        await asyncio.gather(
            self.write_status(placement, scheduled, wanted, now),
            self.publish(placement, decisions),
        )
        moments = [each for each in (scheduled.next_moment, wanted.scores_due) if each is not None]
        if not moments:
            return Result.never()
        return Result.after((min(moments) - self.context.now()).total_seconds())

    async def schedule(self, placement: Placement, now: datetime) -> Schedule:
        """What a Placement selects; expressions and large fleets are left to a thread."""
        async with self.scheduling:
            view = self.watch.fleet.view(placement)
            self.cel.begin()
            if len(view.members) > INLINE or uses_cel(placement):
                return await asyncio.to_thread(schedule, placement, view, self.cel, now)
            return schedule(placement, view, self.cel, now)

    async def publish(self, placement: Placement, decisions: Sequence[Decision]) -> None:
        """Publish decisions for consumers of the Cluster Inventory API."""
        existing = self.published.by_index("placement", str(placement.key))
        wanted = publication(placement, decisions, existing)
        await DecisionWriter(self.client, placement).publish(wanted, existing)

    async def write_status(
        self, placement: Placement, scheduled: Schedule, wanted: Changes, now: datetime
    ) -> None:
        """Write what was selected, if that is news."""
        status = new_status(placement, scheduled, wanted, now)
        manifest = self.informers.placements.get(placement.key)
        old: Object = {} if manifest is None else manifest.get("status") or {}
        self.watch.expect(placement.key).status = {**old, **status}
        if {**old, **status} != old:
            await self.client.patch(
                PLACEMENTS, placement.key, {"status": status}, subresource="status"
            )


def new_status(placement: Placement, scheduled: Schedule, wanted: Changes, now: datetime) -> Object:
    """The status of a Placement."""
    conditions = list(placement.status.conditions)
    for condition in (scheduled.satisfied, scheduled.misconfigured):
        if condition is not None:
            conditions = put(conditions, condition, now)
    clusters = {one.cluster for each in wanted.targets.values() for one in each.decisions}
    status: Object = {
        "numberOfSelectedClusters": len(clusters),
        "decisionGroups": plain(wanted.groups),
        "conditions": plain(conditions),
    }
    if wanted.scores_written:
        status["lastScoreUpdateTime"] = timestamp(now)
    return status


CONTROLLER = HubController("placement", PlacementController, RULES)
