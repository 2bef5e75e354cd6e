"""Sets of clusters and their bindings: the two built-in sets, and what all of them say."""

from collections.abc import Iterable, Sequence

from knfleet.api.cluster.clusterset import (
    AUTO_UPDATE,
    BINDINGS,
    BOUND,
    CLUSTER_SET_EMPTY,
    CLUSTER_SETS,
    DEFAULT_SET,
    GLOBAL_SET,
    ManagedClusterSet,
    ManagedClusterSetBinding,
)
from knfleet.api.conditions import StandardCondition, put
from knfleet.api.meta import HUB, Key, Object, Request, Resource
from knfleet.api.schema import decode
from knfleet.hub.clustersets.rights import RULES
from knfleet.hub.context import HubContext, cluster_request, plain
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.informers import labels_of
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Conflict, NotFound
from knfleet.runtime.controller import Result

BUILT_IN: dict[str, Object] = {
    DEFAULT_SET: {"clusterSelector": {"selectorType": "ExclusiveClusterSetLabel"}},
    GLOBAL_SET: {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}},
}


def empty_condition(name: str, count: int) -> StandardCondition:
    """The condition about the number of clusters in a set."""
    if not count:
        return StandardCondition(
            type=CLUSTER_SET_EMPTY,
            status="True",
            reason="NoClusterMatched",
            message=f"No cluster belongs to set {name}.",
        )
    return StandardCondition(
        type=CLUSTER_SET_EMPTY,
        status="False",
        reason="ClustersSelected",
        message=f"{count} ManagedClusters selected",
    )


def bound_condition(name: str, *, exists: bool) -> StandardCondition:
    """The condition of a binding."""
    return StandardCondition(
        type=BOUND,
        status="True" if exists else "False",
        reason="ClusterSetBound" if exists else "ClusterSetNotFound",
        message="" if exists else f"There is no ManagedClusterSet {name}; create it.",
    )


class ClusterSetController:
    """Reconciles ManagedClusterSets (keys without a namespace) and their bindings."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client

    def watches(self) -> Sequence[Watch]:
        """Sets, their bindings, and the clusters that sets count."""
        informers = self.context.informers
        return [
            Watch(informers.sets.on_change, self.by_set),
            Watch(informers.bindings.on_change, self.by_binding),
            Watch(informers.clusters.on_change, self.by_cluster),
        ]

    def by_set(self, change: StoreChange) -> Iterable[Request]:
        """A set changed, and with it perhaps its bindings."""
        yield Request(HUB, change.key)
        if change.old is None or change.new is None:
            for manifest in self.context.informers.bindings.items():
                if manifest["spec"]["clusterSet"] == change.key.name:
                    yield Request(HUB, Key.of(manifest))

    def by_binding(self, change: StoreChange) -> Iterable[Request]:
        yield Request(HUB, change.key)

    def by_cluster(self, change: StoreChange) -> Iterable[Request]:
        """A cluster came, went, or changed its labels: sets count anew."""
        old, new = (labels_of(each) if each else None for each in (change.old, change.new))
        if old != new:
            yield from (
                Request(HUB, key) for key in list(self.context.informers.sets.store.objects)
            )

    async def reconcile(self, request: Request) -> Result:
        """Make one set or binding right."""
        try:
            if request.key.namespace:
                await self.bind(request.key)
            else:
                await self.select(request.key)
        except Conflict:
            return Result.after(0.05)
        return Result.never()

    async def select(self, key: Key) -> None:
        """Keep a built-in set as it should be, and say how many clusters a set has."""
        manifest = self.context.informers.sets.get(key)
        if self.context.configuration.has_default_sets and await self.ensure_built_in(
            key.name, manifest
        ):
            return
        if manifest is None or manifest["metadata"].get("deletionTimestamp"):
            return
        cluster_set = decode(manifest, ManagedClusterSet)
        clusters = self.context.informers.clusters.items()
        count = sum(cluster_set.has(labels_of(each)) for each in clusters)
        await self.write_condition(CLUSTER_SETS, cluster_set, empty_condition(key.name, count))

    async def ensure_built_in(self, name: str, manifest: Object | None) -> bool:
        """Make a built-in set, or set its spec right; True when that was needed."""
        if name not in BUILT_IN:
            return False
        if manifest is not None:
            annotations: dict[str, str] = manifest["metadata"].get("annotations") or {}
            if annotations.get(AUTO_UPDATE) == "false" or is_as_built(name, manifest):
                return False
        wanted: Object = {
            "apiVersion": CLUSTER_SETS.api_version,
            "kind": CLUSTER_SETS.kind,
            "metadata": {"name": name},
            "spec": BUILT_IN[name],
        }
        if manifest is None:
            await self.client.apply(CLUSTER_SETS, wanted)
        else:
            # A merge would keep what a client added to the selector.
            selector = BUILT_IN[name]["clusterSelector"]
            patch = [{"op": "add", "path": "/spec/clusterSelector", "value": selector}]
            await self.client.patch(CLUSTER_SETS, Key("", name), patch)
        return True

    async def bind(self, key: Key) -> None:
        """Say whether a binding's set exists."""
        manifest = self.context.informers.bindings.get(key)
        if manifest is None or manifest["metadata"].get("deletionTimestamp"):
            return
        binding = decode(manifest, ManagedClusterSetBinding)
        name = binding.spec.cluster_set
        exists = self.context.informers.sets.get(Key("", name)) is not None
        await self.write_condition(BINDINGS, binding, bound_condition(name, exists=exists))

    async def write_condition(
        self,
        resource: Resource,
        about: ManagedClusterSet | ManagedClusterSetBinding,
        condition: StandardCondition,
    ) -> None:
        """Write a condition, if that is news."""
        old = about.status.conditions
        new = put(old, condition, self.context.now())
        if new == old:
            return
        patch: Object = {
            "metadata": {"resourceVersion": about.metadata.resource_version},
            "status": {"conditions": plain(new)},
        }
        try:
            await self.client.patch(resource, about.metadata.key, patch, subresource="status")
        except NotFound:
            return


def is_as_built(name: str, manifest: Object) -> bool:
    """Whether a built-in set selects what it should; more than the selector is for users."""
    selector = decode(manifest, ManagedClusterSet).spec.cluster_selector
    wanted = decode({"metadata": {"name": name}, "spec": BUILT_IN[name]}, ManagedClusterSet)
    return selector == wanted.spec.cluster_selector


CONTROLLER = HubController(
    "managedclusterset",
    ClusterSetController,
    RULES,
    initial=tuple(cluster_request(name) for name in BUILT_IN),
)
