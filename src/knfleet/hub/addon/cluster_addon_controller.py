"""The controller of ClusterManagementAddOns: where an add-on is installed, and with what.

placements → ManagedClusterAddOns made and removed → configurations released by the rollout → status
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS, ClusterManagementAddOn
from knfleet.api.addon.managedclusteraddon import ADDONS, ManagedClusterAddOn
from knfleet.api.addon.names import (
    AVAILABLE,
    CONFIGURED,
    INSTALL_STRATEGY,
    INSTALLED_BY,
    PROGRESSING,
)
from knfleet.api.cluster.managedcluster import ACCEPTED, ManagedCluster
from knfleet.api.conditions import is_true, put
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.schema import decode
from knfleet.hub.addon.addon_informers import addon_informers
from knfleet.hub.addon.addon_writes import (
    CONFLICT_SECONDS,
    delete_object,
    write_cluster_addon_status,
    write_status,
)
from knfleet.hub.addon.configuration_rollout import (
    AddOnChange,
    PlacementSelection,
    plan_configurations,
)
from knfleet.hub.addon.delivery import work_conditions
from knfleet.hub.context import HubContext
from knfleet.hub.hub_controller import Watch
from knfleet.hub.placement.decisions.decision_groups import agrees
from knfleet.hub.placement.decisions.decision_objects import placements_of
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import AlreadyExists, Conflict, NotFound
from knfleet.runtime.controller import Result

AT_ONCE = 16
"""So many ManagedClusterAddOns of one add-on are written at a time."""
PASS_SECONDS = 0.2
"""Passes of one add-on are at least this far apart, so that many changes are one pass."""


class ClusterAddOnController:
    """Reconciles ClusterManagementAddOns."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.informers = addon_informers(context)
        self.passed: dict[str, float] = {}
        """When each add-on was last looked at, by the event loop's clock."""

    def watches(self) -> Sequence[Watch]:
        """Add-ons, their configurations, and what decides on where they are installed."""
        watched = self.informers
        return [
            Watch(watched.cluster_addons.on_change, self.by_cluster_addon),
            Watch(watched.addons.on_change, self.by_addon),
            Watch(watched.templates.on_change, self.by_config),
            Watch(watched.configs.on_change, self.by_config),
            Watch(watched.placements.on_change, self.by_placement),
            Watch(watched.decisions.on_change, self.by_decision),
            Watch(self.context.informers.clusters.on_change, self.by_cluster),
        ]

    def by_cluster_addon(self, change: StoreChange) -> Iterable[Request]:
        """An add-on of the fleet changed."""
        yield addon_request(change.key.name)

    def by_addon(self, change: StoreChange) -> Iterable[Request]:
        """An add-on on a cluster changed in what a rollout depends on."""
        if rollout_view(change.old) != rollout_view(change.new):
            yield addon_request(change.key.name)

    def by_config(self, change: StoreChange) -> Iterable[Request]:
        """A configuration changed: any add-on may use it."""
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        if old != new:
            yield from self.every()

    def by_placement(self, change: StoreChange) -> Iterable[Request]:
        """A Placement changed."""
        yield from self.using({str(change.key)})

    def by_decision(self, change: StoreChange) -> Iterable[Request]:
        """The decisions of a Placement changed."""
        found = [each for each in (change.old, change.new) if each is not None]
        yield from self.using({key for each in found for key in placements_of(each)})

    def by_cluster(self, change: StoreChange) -> Iterable[Request]:
        """A cluster was accepted, denied or is leaving: that decides on installation."""
        if cluster_view(change.old) != cluster_view(change.new):
            yield from self.every()

    def every(self) -> Iterable[Request]:
        """All add-ons of the fleet."""
        for key in list(self.informers.cluster_addons.store.objects):
            yield addon_request(key.name)

    def using(self, placements: set[str]) -> Iterable[Request]:
        """The add-ons that are installed by one of the Placements."""
        for key in list(self.informers.cluster_addons.store.objects):
            found = self.informers.cluster_addon(key.name)
            strategies = found.spec.install_strategy.placements if found else []
            if any(str(each.key) in placements for each in strategies):
                yield addon_request(key.name)

    async def reconcile(self, request: Request) -> Result:
        """See to one add-on of the fleet."""
        name = request.key.name
        cluster_addon = self.informers.cluster_addon(name)
        if cluster_addon is None:
            self.passed.pop(name, None)
            await self.remove_orphans(name)
            return Result.never()
        if cluster_addon.metadata.deleting or cluster_addon.manages_itself:
            return Result.never()
        now = asyncio.get_running_loop().time()
        wait = self.passed.get(name, float("-inf")) + PASS_SECONDS - now
        if wait > 0:
            return Result.after(wait)
        self.passed[name] = now
        try:
            return await self.reconcile_addon(cluster_addon)
        except Conflict:
            return Result.after(CONFLICT_SECONDS)

    async def reconcile_addon(self, cluster_addon: ClusterManagementAddOn) -> Result:
        """Install an add-on where it belongs, and give clusters their configurations."""
        selections = self.selections(cluster_addon)
        addons = self.informers.addons_named(cluster_addon.name)
        if cluster_addon.spec.install_strategy.type == "Placements":
            await self.install(cluster_addon, addons, selections)
        present = [each for each in addons if not each.metadata.deleting]
        now = self.context.now()
        planned = plan_configurations(
            cluster_addon, present, selections, self.informers.config_hash, now
        )
        settled = await self.write_changes(planned.changes)
        await write_cluster_addon_status(self.client, cluster_addon, planned.status)
        if not settled:
            return Result.after(CONFLICT_SECONDS)
        if planned.next_look is None:
            return Result.never()
        return Result.after(max((planned.next_look - now).total_seconds(), CONFLICT_SECONDS))

    def selections(self, cluster_addon: ClusterManagementAddOn) -> list[PlacementSelection]:
        """What the Placements of the install strategy selected."""
        strategy = cluster_addon.spec.install_strategy
        if strategy.type != "Placements":
            return []
        found: list[PlacementSelection] = []
        for each in strategy.placements:
            placement = self.informers.placement(each.key)
            if placement is None:
                problem = f"Placement {each.key} does not exist; create it"
                found.append(PlacementSelection(each, problem=problem))
                continue
            groups = placement.spec.decision_strategy.group_strategy
            found.append(
                PlacementSelection(
                    each, self.informers.groups(each.key), groups.clusters_per_decision_group
                )
            )
        return found

    async def install(
        self,
        cluster_addon: ClusterManagementAddOn,
        addons: Sequence[ManagedClusterAddOn],
        selections: Sequence[PlacementSelection],
    ) -> None:
        """Make and remove ManagedClusterAddOns; those that users made are never removed."""
        wanted = {name for selection in selections for name in selection.clusters}
        present = {each.cluster for each in addons}
        missing = [name for name in sorted(wanted - present) if self.is_member(name)]
        await self.at_once(self.create(cluster_addon, name) for name in missing)
        if not self.is_decided(selections):
            return
        surplus = [
            each
            for each in addons
            if each.cluster not in wanted
            and each.metadata.annotations.get(INSTALLED_BY) == INSTALL_STRATEGY
        ]
        await self.at_once(self.remove(each) for each in surplus)

    def is_member(self, cluster: str) -> bool:
        """Whether add-ons can be installed on a cluster."""
        found = self.context.informers.cluster(cluster)
        return found is not None and found.spec.hub_accepts_client and not found.metadata.deleting

    def is_decided(self, selections: Sequence[PlacementSelection]) -> bool:
        """Whether all decisions are known: while some are being written, nothing is removed."""
        for each in selections:
            placement = self.informers.placements.get(each.strategy.key)
            if placement is None or not agrees(placement, each.groups):
                return False
        return True

    async def at_once(self, writes: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Do several writes, not too many at a time."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def limited(write: Coroutine[Any, Any, None]) -> None:
            async with slots:
                await write

        await asyncio.gather(*(limited(each) for each in writes))

    async def create(self, cluster_addon: ClusterManagementAddOn, cluster: str) -> None:
        """Install an add-on on a cluster."""
        manifest: Object = {
            "apiVersion": ADDONS.api_version,
            "kind": ADDONS.kind,
            "metadata": {
                "name": cluster_addon.name,
                "namespace": cluster,
                "annotations": {INSTALLED_BY: INSTALL_STRATEGY},
                "ownerReferences": [cluster_addon_owner(cluster_addon)],
            },
            "spec": {},
        }
        try:
            await self.client.create(ADDONS, manifest, cluster)
        except AlreadyExists:
            return
        except NotFound:
            # The namespace is made when the cluster is accepted; that change brings us back.
            return

    async def remove(self, addon: ManagedClusterAddOn) -> None:
        """Remove an add-on from a cluster."""
        manifest = self.informers.addons.get(addon.key)
        if manifest is not None:
            await delete_object(self.client, manifest, ADDONS)

    async def remove_orphans(self, name: str) -> None:
        """Remove what belongs to an add-on of the fleet that is gone."""
        for manifest in self.informers.addons.by_index("name", name):
            if owner_uid(manifest):
                await delete_object(self.client, manifest, ADDONS)

    async def write_changes(self, changes: Sequence[AddOnChange]) -> bool:
        """Write the configurations of clusters; False when one has changed meanwhile."""
        results: list[bool] = []

        async def write(each: AddOnChange) -> None:
            try:
                await self.write_change(each)
                results.append(True)
            except (Conflict, NotFound):
                results.append(False)

        await self.at_once(write(each) for each in changes)
        return all(results)

    async def write_change(self, change: AddOnChange) -> None:
        """Write the configurations of one cluster."""
        addon, now = change.addon, self.context.now()
        conditions = put(addon.status.conditions, change.configured, now)
        if change.begins and change.references:
            # The time that the cluster takes begins now, also if it was still busy with others.
            kept = [each for each in conditions if each.type != PROGRESSING]
            conditions = put(kept, work_conditions.in_progress("configurations changed"), now)
        status = replace(addon.status, conditions=conditions, config_references=change.references)
        await write_status(self.client, addon, status)


def addon_request(name: str) -> Request:
    """The request to look at an add-on of the fleet."""
    return Request(HUB, Key("", name))


def cluster_addon_owner(cluster_addon: ClusterManagementAddOn) -> Object:
    """An add-on of the fleet as the owner of what it has on clusters."""
    return {
        "apiVersion": CLUSTER_ADDONS.api_version,
        "kind": CLUSTER_ADDONS.kind,
        "name": cluster_addon.name,
        "uid": cluster_addon.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_uid(manifest: Object) -> str:
    """The uid of the add-on of the fleet that owns an object; empty when none does."""
    owners: list[Object] = manifest["metadata"].get("ownerReferences") or []
    return next((each["uid"] for each in owners if each.get("kind") == CLUSTER_ADDONS.kind), "")


def rollout_view(manifest: Object | None) -> object:
    """What a rollout depends on in an add-on on a cluster."""
    if manifest is None:
        return None
    status: Object = manifest.get("status") or {}
    conditions: list[Object] = status.get("conditions") or []
    return (
        manifest["metadata"].get("deletionTimestamp"),
        manifest.get("spec"),
        status.get("configReferences"),
        status.get("supportedConfigs"),
        [
            (each["type"], each["status"], each.get("reason"))
            for each in conditions
            if each["type"] in (PROGRESSING, AVAILABLE, CONFIGURED)
        ],
    )


def cluster_view(manifest: Object | None) -> object:
    """What installation depends on in a cluster."""
    if manifest is None:
        return None
    cluster = decode(manifest, ManagedCluster)
    accepted = is_true(cluster.status.conditions, ACCEPTED)
    return cluster.spec.hub_accepts_client, accepted, cluster.metadata.deleting
