"""Deletes completed ManifestWorks when their time to live is over."""

from collections.abc import Iterable, Sequence

from knfleet.api.meta import HUB, Key, Request
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.context import HubContext
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.work.rights import RULES
from knfleet.hub.work.time_to_live import expiry, ttl_seconds
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Conflict, NotFound
from knfleet.runtime.controller import Result

CONFLICT_SECONDS = 0.2


class CompletedWorkController:
    """Reconciles works that have a time to live."""

    def __init__(self, context: HubContext) -> None:
        self.context = context

    def watches(self) -> Sequence[Watch]:
        """Works, and the configuration of the hub."""
        informers = self.context.informers
        return [
            Watch(informers.works.on_change, self.by_work),
            Watch(informers.managers.on_change, self.by_manager),
        ]

    def by_work(self, change: StoreChange) -> Iterable[Request]:
        """A work changed that has a time to live."""
        if change.new is not None and ttl_seconds(change.new) is not None:
            yield Request(HUB, change.key)

    def by_manager(self, change: StoreChange) -> Iterable[Request]:
        """The settings changed: the feature may have been switched on."""
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        if old != new:
            for work in self.context.informers.works.items():
                if ttl_seconds(work) is not None:
                    yield Request(HUB, Key.of(work))

    async def reconcile(self, request: Request) -> Result:
        """Delete a work whose time is over, or look again when it will be."""
        work = self.context.informers.works.get(request.key)
        if work is None or not self.context.configuration.deletes_completed_works:
            return Result.never()
        moment = expiry(work)
        if moment is None:
            return Result.never()
        left = (moment - self.context.now()).total_seconds()
        if left > 0:
            return Result.after(left)
        uid, version = (work["metadata"][name] for name in ("uid", "resourceVersion"))
        try:
            await self.context.client.delete(WORKS, request.key, uid=uid, resource_version=version)
        except NotFound:
            return Result.never()
        except Conflict:
            # It changed meanwhile, and may not be complete any more.
            return Result.after(CONFLICT_SECONDS)
        self.context.events.normal(
            {**work, "apiVersion": WORKS.api_version, "kind": WORKS.kind},
            "CompletedWorkDeleted",
            f"deleted {ttl_seconds(work)} s after it completed, as"
            " spec.deleteOption.ttlSecondsAfterFinished asks",
        )
        return Result.never()


CONTROLLER = HubController("manifestwork", CompletedWorkController, RULES)
