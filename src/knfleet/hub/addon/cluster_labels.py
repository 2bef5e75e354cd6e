"""Labels of a ManagedCluster that say how its add-ons are, for placements to select by."""

from collections.abc import Iterable, Sequence

from knfleet.api.addon.managedclusteraddon import ManagedClusterAddOn
from knfleet.api.addon.names import AVAILABLE, FEATURE_LABEL
from knfleet.api.cluster.managedcluster import AVAILABLE as CLUSTER_AVAILABLE
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.conditions import find
from knfleet.api.meta import Key, Object, Request
from knfleet.hub.addon.addon_informers import addon_informers
from knfleet.hub.context import HubContext, cluster_request
from knfleet.hub.hub_controller import Watch
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import NotFound
from knfleet.runtime.controller import Result

VALUES = {"True": "available", "False": "unhealthy"}


def label_changes(
    labels: dict[str, str], addons: Sequence[ManagedClusterAddOn]
) -> dict[str, str | None]:
    """The labels to set, and those to remove (None)."""
    wanted = {
        FEATURE_LABEL + each.name: addon_state(each)
        for each in addons
        if not each.metadata.deleting and len(f"addon-{each.name}") <= 63
    }
    stale = {name: None for name in labels if name.startswith(FEATURE_LABEL) and name not in wanted}
    changed = {name: value for name, value in wanted.items() if labels.get(name) != value}
    return {**changed, **stale}


def addon_state(addon: ManagedClusterAddOn) -> str:
    """How an add-on is, in a word."""
    said = find(addon.status.conditions, AVAILABLE)
    return VALUES.get(said.status if said else "", "unreachable")


class AddOnLabelController:
    """Labels ManagedClusters by their add-ons."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.informers = addon_informers(context)

    def watches(self) -> Sequence[Watch]:
        """Add-ons, and the clusters that are labelled."""
        return [
            Watch(self.informers.addons.on_change, self.by_addon),
            Watch(self.context.informers.clusters.on_change, self.by_cluster),
        ]

    def by_addon(self, change: StoreChange) -> Iterable[Request]:
        """An add-on on a cluster changed."""
        yield cluster_request(change.key.namespace)

    def by_cluster(self, change: StoreChange) -> Iterable[Request]:
        """A cluster changed, perhaps its labels."""
        if feature_labels(change.old) != feature_labels(change.new):
            yield cluster_request(change.key.name)

    async def reconcile(self, request: Request) -> Result:
        """Label one cluster."""
        cluster = self.context.informers.cluster(request.key.name)
        if cluster is None or cluster.metadata.deleting:
            return Result.never()
        if find(cluster.status.conditions, CLUSTER_AVAILABLE) is None:
            return Result.never()
        addons = [
            self.informers.decoded_addon(each)
            for each in self.informers.addons.by_index("cluster", cluster.name)
        ]
        changes = label_changes(cluster.metadata.labels, addons)
        if changes:
            patch = {"metadata": {"labels": changes}}
            try:
                await self.context.client.patch(CLUSTERS, Key("", cluster.name), patch)
            except NotFound:
                return Result.never()
        return Result.never()


def feature_labels(manifest: Object | None) -> object:
    """The labels of a cluster that are about add-ons, and whether it has reported."""
    if manifest is None:
        return None
    labels: dict[str, str] = manifest["metadata"].get("labels") or {}
    status: Object = manifest.get("status") or {}
    conditions: list[Object] = status.get("conditions") or []
    return (
        {name: value for name, value in labels.items() if name.startswith(FEATURE_LABEL)},
        any(each["type"] == CLUSTER_AVAILABLE for each in conditions),
    )
