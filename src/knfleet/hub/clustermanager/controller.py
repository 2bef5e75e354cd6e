"""The controller of the ClusterManager's status."""

from collections.abc import Iterable, Sequence

from knfleet.api.conditions import put
from knfleet.api.core import DEPLOYMENTS
from knfleet.api.meta import Object, Request
from knfleet.api.operator import CLUSTER_MANAGER, CLUSTER_MANAGERS, OPERATOR_NAMESPACE
from knfleet.hub.clustermanager.rights import RULES
from knfleet.hub.clustermanager.status import conditions, status_patch
from knfleet.hub.context import HubContext, cluster_request
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.registration.drivers.registry import DRIVERS
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Conflict, Forbidden, NotFound
from knfleet.runtime.controller import Result

STATUS_SECONDS = 30.0
"""How often the status is checked when nothing changes: the state of watches is no event."""


class ClusterManagerController:
    """Reconciles the status of the ClusterManager."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.informers = context.informers

    def watches(self) -> Sequence[Watch]:
        """The ClusterManager itself."""
        return [Watch(self.informers.managers.on_change, by_manager)]

    async def reconcile(self, request: Request) -> Result:
        """Write the status of the hub, if it changed."""
        if self.informers.managers.get(request.key) is None:
            return Result.never()
        configuration = self.context.configuration
        manager = configuration.manager
        failing = self.informers.failing
        new = list(manager.status.conditions)
        drivers = frozenset(each.auth_type for each in DRIVERS)
        for condition in conditions(manager, "" if failing is None else str(failing), drivers):
            new = put(new, condition, self.context.now())
        deployment = await self.own_deployment()
        patch = status_patch(manager, new, deployment, configuration.related_resources)
        if patch:
            try:
                await self.client.patch(CLUSTER_MANAGERS, request.key, patch, subresource="status")
            except Conflict:
                return Result.after(0.05)
        return Result.after(STATUS_SECONDS)

    async def own_deployment(self) -> Object | None:
        """The hub's own Deployment; None when it runs as something else."""
        try:
            return await self.client.get(DEPLOYMENTS, CLUSTER_MANAGER, OPERATOR_NAMESPACE)
        except (NotFound, Forbidden):
            return None


def by_manager(change: StoreChange) -> Iterable[Request]:
    yield cluster_request(change.key.name)


CONTROLLER = HubController("clustermanager", ClusterManagerController, RULES)
