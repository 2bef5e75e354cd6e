"""Checks that the API server can convert add-on objects, and reports it on the ClusterManager.

Objects are stored in v1alpha1, which is what the hub and its agents use: without the webhook they
go on, nothing is lost, and only clients of v1beta1 get errors. So that this does not go unnoticed,
the API server is asked to convert an object that it does not store.
"""

from collections.abc import Iterable, Sequence

from knfleet.api.addon.managedclusteraddon import ADDONS, ADDONS_BETA
from knfleet.api.conditions import StandardCondition, put
from knfleet.api.core import CRDS
from knfleet.api.meta import Key, Object, Request
from knfleet.api.operator import CLUSTER_MANAGER, CLUSTER_MANAGERS, HUB_ADDON_DEGRADED
from knfleet.api.texts import bounded
from knfleet.hub.context import HubContext, cluster_request, plain
from knfleet.hub.hub_controller import Watch
from knfleet.hub.webhook.controller import definition_informer
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Conflict, KubeError, NotFound
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log

DEFINITION = f"{ADDONS.plural}.{ADDONS.group}"
EVERYTHING = cluster_request("addon-conversion")
GOOD_SECONDS = 600.0
BAD_SECONDS = (0.5, 30.0)
"""Between two checks while they fail: at first, and at most."""
CONFLICT_SECONDS = 0.1
MESSAGE_LENGTH = 1024


class ConversionCheckController:
    """Has an object converted when the CA changes, and now and then."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.definitions = definition_informer(context, CRDS, DEFINITION)
        self.failures = 0
        """Checks that failed, one after another."""
        self.reported: str | None = None
        """What was logged last."""

    def watches(self) -> Sequence[Watch]:
        """The CRD, whose CA decides on whether the webhook is trusted, and the ClusterManager."""
        return [
            Watch(self.definitions.on_change, by_definition),
            Watch(self.context.informers.managers.on_change, by_new_manager),
        ]

    async def reconcile(self, _request: Request) -> Result:
        """Check conversion, and write the condition if it changed."""
        problem = await self.problem()
        if problem != self.reported:
            self.reported = problem
            if problem:
                log.warning("add-on objects cannot be converted to v1beta1", error=problem)
            else:
                log.info("add-on objects can be converted to v1beta1")
        try:
            await self.write(degraded(problem))
        except Conflict:
            return Result.after(CONFLICT_SECONDS)
        first, most = BAD_SECONDS
        self.failures = self.failures + 1 if problem else 0
        seconds = min(first * 2 ** min(self.failures, 10), most)
        return Result.after(seconds if problem else GOOD_SECONDS)

    async def problem(self) -> str:
        """Why an object cannot be converted; empty when it can."""
        namespace = self.context.configuration.namespace
        meta = {"name": "knfleet-conversion-check", "namespace": namespace}
        manifest: Object = {
            "apiVersion": ADDONS_BETA.api_version,
            "kind": ADDONS_BETA.kind,
            "metadata": meta,
            "spec": {},
        }
        try:
            await self.client.create(ADDONS_BETA, manifest, namespace, dry_run=True)
        except KubeError as error:
            return bounded(str(error), MESSAGE_LENGTH)
        return ""

    async def write(self, condition: StandardCondition) -> None:
        """Put the condition on the ClusterManager, if there is one."""
        key = Key("", CLUSTER_MANAGER)
        if self.context.informers.managers.get(key) is None:
            return
        manager = self.context.configuration.manager
        new = put(manager.status.conditions, condition, self.context.now())
        if new == manager.status.conditions:
            return
        patch: Object = {
            "metadata": {"resourceVersion": manager.metadata.resource_version},
            "status": {"conditions": plain(new)},
        }
        try:
            await self.client.patch(CLUSTER_MANAGERS, key, patch, subresource="status")
        except NotFound:
            return


def by_definition(_change: StoreChange) -> Iterable[Request]:
    yield EVERYTHING


def by_new_manager(change: StoreChange) -> Iterable[Request]:
    if change.old is None:
        yield EVERYTHING


def degraded(problem: str) -> StandardCondition:
    """Whether add-ons can be used in both versions."""
    if not problem:
        return StandardCondition(
            type=HUB_ADDON_DEGRADED,
            status="False",
            reason="AddOnFunctional",
            message="Add-on objects are converted between v1alpha1 and v1beta1.",
        )
    return StandardCondition(
        type=HUB_ADDON_DEGRADED,
        status="True",
        reason="ConversionUnavailable",
        message="Add-on objects can be read and written in v1alpha1 only; nothing is lost. The API"
        f" server cannot call the hub's conversion webhook: {problem}",
    )
