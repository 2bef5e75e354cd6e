"""The controller of ManagedClusterAddOns: one pass makes the hub right for an add-on on a cluster.

owner → what it consists of → finalizers → rights, accounts, works → conditions
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from knfleet.api.addon.clustermanagementaddon import ClusterManagementAddOn
from knfleet.api.addon.managedclusteraddon import (
    HealthCheck,
    ManagedClusterAddOn,
    ManagedClusterAddOnStatus,
)
from knfleet.api.addon.names import (
    AVAILABLE,
    HOSTING_MANIFEST_APPLIED,
    HOSTING_VALIDITY,
    IMAGE_REGISTRIES,
    REGISTRATION_APPLIED,
)
from knfleet.api.cluster.managedcluster import AVAILABLE as CLUSTER_AVAILABLE
from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.api.conditions import StandardCondition, find, put
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.schema import decode
from knfleet.hub.addon.addon_informers import addon_informers, addon_key, binding_key
from knfleet.hub.addon.addon_removal import AddOnRemoval
from knfleet.hub.addon.addon_writes import (
    CONFLICT_SECONDS,
    apply_work,
    delete_object,
    write_metadata,
    write_status,
)
from knfleet.hub.addon.cluster_addon_controller import cluster_addon_owner, owner_uid
from knfleet.hub.addon.delivery import work_conditions
from knfleet.hub.addon.delivery.addon_works import (
    WorksError,
    deploy_works,
    probed_workloads,
    surplus,
    work_prefix,
)
from knfleet.hub.addon.delivery.agent_delivery import (
    OUR_FINALIZERS,
    DeliveryProblem,
    PreparedAddOn,
    Sources,
    prepare,
)
from knfleet.hub.addon.registration.agent_rights import registrations
from knfleet.hub.addon.registration.agent_rights_controller import AgentRights
from knfleet.hub.addon.resolution import BUILT_IN, TEMPLATE, supported_types, unsupported
from knfleet.hub.context import HubContext
from knfleet.hub.hub_controller import Watch
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Conflict
from knfleet.runtime.controller import Result

RESYNC_SECONDS = 300.0


class AddOnController:
    """Reconciles ManagedClusterAddOns."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.informers = addon_informers(context)
        found = self.informers
        self.sources = Sources(found.template, found.config, found.config_hash)
        self.rights = AgentRights(context, found)
        self.removal = AddOnRemoval(context, found, self.sources, self.rights)

    def watches(self) -> Sequence[Watch]:
        """Add-ons, and what they consist of on the hub."""
        watched = self.informers
        return [
            Watch(watched.addons.on_change, self.by_addon),
            Watch(watched.cluster_addons.on_change, self.by_cluster_addon),
            Watch(watched.works.on_change, self.by_work),
            Watch(watched.role_bindings.on_change, self.by_binding),
            Watch(self.context.informers.clusters.on_change, self.by_cluster),
        ]

    def by_addon(self, change: StoreChange) -> Iterable[Request]:
        """An add-on on a cluster changed."""
        yield Request(HUB, change.key)

    def by_cluster_addon(self, change: StoreChange) -> Iterable[Request]:
        """An add-on of the fleet changed: what it is may have."""
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        if old != new or change.type != "updated":
            for manifest in self.informers.addons.by_index("name", change.key.name):
                yield Request(HUB, Key.of(manifest))

    def by_work(self, change: StoreChange) -> Iterable[Request]:
        """A work of an add-on changed."""
        manifest = change.new or change.old
        if manifest is not None:
            yield Request(HUB, addon_key(manifest))

    def by_binding(self, change: StoreChange) -> Iterable[Request]:
        """A RoleBinding of an add-on's agent changed."""
        manifest = change.new or change.old
        if manifest is not None and binding_key(manifest).namespace:
            yield Request(HUB, binding_key(manifest))

    def by_cluster(self, change: StoreChange) -> Iterable[Request]:
        """A cluster changed in what its add-ons depend on."""
        if addon_view(change.old) != addon_view(change.new):
            for manifest in self.informers.addons.by_index("cluster", change.key.name):
                yield Request(HUB, Key.of(manifest))

    async def reconcile(self, request: Request) -> Result:
        """Make the hub right for one add-on on one cluster."""
        addon = self.informers.addon(request.key)
        if addon is None:
            await self.removal.remove_leftovers(request.key)
            return Result.never()
        cluster_addon = self.informers.cluster_addon(addon.name)
        cluster = self.context.informers.cluster(addon.cluster)
        try:
            if addon.metadata.deleting:
                return await self.removal.step(addon, cluster)
            if cluster_addon is not None and await self.own(addon, cluster_addon):
                return Result.never()
            return await self.update(addon, cluster_addon, cluster)
        except Conflict:
            return Result.after(CONFLICT_SECONDS)

    async def own(self, addon: ManagedClusterAddOn, cluster_addon: ClusterManagementAddOn) -> bool:
        """Make an add-on of the fleet the owner of what it has on a cluster; True when it was not.

        What belongs to a former one of the same name is left to be collected.
        """
        manifest = self.informers.addons.get(addon.key)
        if manifest is None or cluster_addon.metadata.deleting:
            return False
        uid = owner_uid(manifest)
        if uid == cluster_addon.metadata.uid:
            return False
        if uid:
            await delete_object(self.client, manifest, ManagedClusterAddOn.resource)
            return True
        owners: list[Object] = manifest["metadata"].get("ownerReferences") or []
        owner = cluster_addon_owner(cluster_addon)
        if any(each.get("controller") for each in owners):
            owner = {**owner, "controller": False}
        await write_metadata(self.client, addon, {"ownerReferences": [*owners, owner]})
        return True

    async def update(
        self,
        addon: ManagedClusterAddOn,
        cluster_addon: ClusterManagementAddOn | None,
        cluster: ManagedCluster | None,
    ) -> Result:
        """Deliver what an add-on consists of, and report how it is."""
        status = addon.status
        again = Result.never()
        if cluster_addon is not None and not cluster_addon.manages_itself:
            meta = cluster_addon.spec.add_on_meta
            status = replace(status, add_on_meta=status.add_on_meta or meta)
            if is_template_addon(cluster_addon, addon):
                status = replace(
                    status,
                    supported_configs=list(BUILT_IN),
                    health_check=HealthCheck(mode="Customized"),
                )
                delivered = await self.deliver(addon, status, cluster)
                if delivered is None:
                    return Result.never()
                status = delivered
                again = Result.after(RESYNC_SECONDS)
            status = self.with_progress(addon, status, cluster_addon)
        status, tokens = await self.rights.with_token_account(addon, status)
        status = self.with_cluster_state(status, cluster)
        await write_status(self.client, addon, status)
        return Result.after(RESYNC_SECONDS) if tokens else again

    async def deliver(
        self,
        addon: ManagedClusterAddOn,
        status: ManagedClusterAddOnStatus,
        cluster: ManagedCluster | None,
    ) -> ManagedClusterAddOnStatus | None:
        """Give an add-on its rights and works; None when it must be looked at again first."""
        annotations = cluster.metadata.annotations if cluster else {}
        prepared = prepare(addon, self.sources, annotations)
        if prepared is None:
            return status
        if isinstance(prepared, DeliveryProblem):
            return self.with_problem(status, prepared)
        finalizers = wanted_finalizers(addon, prepared.finalizers(addon))
        if finalizers != addon.metadata.finalizers:
            await write_metadata(self.client, addon, {"finalizers": finalizers})
            return None
        written = prepared.template.spec.registration
        status = replace(
            status,
            registrations=registrations(addon, written),
            namespace=prepared.rendered.namespace,
            config_references=[self.informers.observed(each) for each in status.config_references],
        )
        said = await self.rights.grant(addon, prepared.bindings, has_registration=bool(written))
        status = self.with_conditions(status, said)
        return await self.write_works(addon, status, prepared)

    def with_problem(
        self, status: ManagedClusterAddOnStatus, problem: DeliveryProblem
    ) -> ManagedClusterAddOnStatus:
        """The status with what is wrong; what was delivered before stays."""
        if problem.is_permission:
            return self.with_conditions(
                status,
                work_conditions.condition(
                    REGISTRATION_APPLIED, "False", "SetPermissionFailed", problem.text
                ),
            )
        return self.with_conditions(status, work_conditions.not_rendered(problem.text))

    async def write_works(
        self,
        addon: ManagedClusterAddOn,
        status: ManagedClusterAddOnStatus,
        prepared: PreparedAddOn,
    ) -> ManagedClusterAddOnStatus:
        """Write the works of an add-on, and what their agents report."""
        existing = self.informers.own_works(addon)
        parts = [(False, prepared.delivery.managed)]
        if addon.hosting_cluster:
            parts.append((True, prepared.delivery.hosting))
        states: list[work_conditions.DeliveredWork] = []
        for hosting, manifests in parts:
            if hosting and self.context.informers.cluster(addon.hosting_cluster) is None:
                status = self.with_conditions(status, hosting_validity(addon, valid=False))
                continue
            try:
                wanted = deploy_works(
                    addon,
                    prepared.template.spec.agent_spec,
                    manifests,
                    existing,
                    namespaces=() if hosting else prepared.rendered.missing_namespaces,
                    hosting=hosting,
                )
            except WorksError as error:
                return self.with_problem(status, DeliveryProblem(str(error)))
            own = await self.apply_works(addon, existing, wanted, hosting=hosting)
            states += own
            type_ = HOSTING_MANIFEST_APPLIED if hosting else work_conditions.MANIFEST_APPLIED
            status = self.with_conditions(status, work_conditions.manifest_applied(own, type_))
            if hosting:
                status = self.with_conditions(status, hosting_validity(addon, valid=True))
        probed = probed_workloads([*prepared.delivery.managed, *prepared.delivery.hosting])
        if not states and not probed:
            text = f"{addon.name} add-on is available."
            said = work_conditions.condition(AVAILABLE, "True", "ProbeAvailable", text)
            return self.with_conditions(status, said)
        return self.with_conditions(status, work_conditions.available(addon.name, states, probed))

    async def apply_works(
        self,
        addon: ManagedClusterAddOn,
        existing: Sequence[Object],
        wanted: Sequence[Object],
        *,
        hosting: bool,
    ) -> list[work_conditions.DeliveredWork]:
        """Write works that are not as they should be, and remove those that are too many."""
        by_key = {Key.of(each): each for each in existing}
        found = [await apply_work(self.client, by_key.get(Key.of(each)), each) for each in wanted]
        for key in surplus(existing, wanted, work_prefix(addon, hosting=hosting)):
            await delete_object(self.client, by_key[key])
        return [work_conditions.work_state(each) for each in found]

    def with_progress(
        self,
        addon: ManagedClusterAddOn,
        status: ManagedClusterAddOnStatus,
        cluster_addon: ClusterManagementAddOn,
    ) -> ManagedClusterAddOnStatus:
        """The status with how far the configurations are."""
        if wrong := unsupported(cluster_addon, replace(addon, status=status)):
            return self.with_conditions(status, work_conditions.unsupported_configuration(wrong))
        states = [
            work_conditions.work_state(each)
            for each in self.informers.own_works(addon)
            if "-pre-delete" not in each["metadata"]["name"]
        ]
        said = work_conditions.progressing(replace(addon, status=status), states)
        if said.reason == work_conditions.COMPLETED:
            applied = [
                replace(each, last_applied_config=each.desired_config)
                for each in status.config_references
            ]
            status = replace(status, config_references=applied)
        old = find(status.conditions, said.type)
        if old is not None and old.reason != said.reason:
            # Also from Failed to Completed, both False: a rollout counts from this moment.
            kept = [each for each in status.conditions if each is not old]
            status = replace(status, conditions=kept)
        return self.with_conditions(status, said)

    def with_cluster_state(
        self, status: ManagedClusterAddOnStatus, cluster: ManagedCluster | None
    ) -> ManagedClusterAddOnStatus:
        """The status of an add-on on a cluster whose agent is silent: nothing is known of it."""
        said = find(cluster.status.conditions, CLUSTER_AVAILABLE) if cluster else None
        if said is None or said.status != "Unknown":
            return status
        unknown = work_conditions.condition(AVAILABLE, "Unknown", said.reason, said.message)
        return self.with_conditions(status, unknown)

    def with_conditions(
        self, status: ManagedClusterAddOnStatus, *said: StandardCondition | None
    ) -> ManagedClusterAddOnStatus:
        """The status with some conditions replaced."""
        conditions = status.conditions
        for each in said:
            if each is not None:
                conditions = put(conditions, each, self.context.now())
        return replace(status, conditions=list(conditions))


def is_template_addon(cluster_addon: ClusterManagementAddOn, addon: ManagedClusterAddOn) -> bool:
    """Whether the hub itself delivers an add-on, from a template."""
    return TEMPLATE in supported_types(cluster_addon, addon) or any(
        each.type == TEMPLATE for each in addon.status.config_references
    )


def wanted_finalizers(addon: ManagedClusterAddOn, ours: Sequence[str]) -> list[str]:
    """The finalizers that an add-on should have; those of others stay."""
    kept = [
        each for each in addon.metadata.finalizers if each not in OUR_FINALIZERS or each in ours
    ]
    return [*kept, *(each for each in ours if each not in kept)]


def hosting_validity(addon: ManagedClusterAddOn, *, valid: bool) -> StandardCondition:
    """Whether the hosting cluster of an add-on is one of the fleet."""
    name = addon.hosting_cluster
    if valid:
        text = f"hosting cluster {name} is a managed cluster of the hub"
        return work_conditions.condition(HOSTING_VALIDITY, "True", "HostingClusterValid", text)
    text = f"hosting cluster {name} is not a managed cluster of the hub"
    return work_conditions.condition(HOSTING_VALIDITY, "False", "HostingClusterInvalid", text)


def addon_view(manifest: Object | None) -> object:
    """What add-ons depend on in a cluster."""
    if manifest is None:
        return None
    cluster = decode(manifest, ManagedCluster)
    available = find(cluster.status.conditions, CLUSTER_AVAILABLE)
    return (
        cluster.metadata.annotations.get(IMAGE_REGISTRIES),
        available.status if available else "",
    )
