"""How an add-on leaves a cluster: hooks, then what is outside its namespace, then its works."""

from msgspec.structs import replace

from knfleet.api.addon.managedclusteraddon import ADDONS, ManagedClusterAddOn
from knfleet.api.addon.names import (
    HOSTING_CLEANUP,
    HOSTING_PRE_DELETE,
    PERMISSION_CLEANUP,
    PRE_DELETE,
)
from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.api.conditions import StandardCondition, put
from knfleet.api.meta import Key, Object
from knfleet.hub.addon.addon_informers import AddOnInformers
from knfleet.hub.addon.addon_writes import apply_work, delete_object, write_metadata, write_status
from knfleet.hub.addon.delivery import work_conditions
from knfleet.hub.addon.delivery.addon_works import hook_work, identifier
from knfleet.hub.addon.delivery.agent_delivery import (
    OUR_FINALIZERS,
    PreparedAddOn,
    Sources,
    prepare,
)
from knfleet.hub.addon.registration.agent_rights_controller import AgentRights
from knfleet.hub.context import HubContext
from knfleet.runtime.controller import Result

AGAIN_SECONDS = 5.0


class AddOnRemoval:
    """Removes add-ons from clusters."""

    def __init__(
        self,
        context: HubContext,
        informers: AddOnInformers,
        sources: Sources,
        rights: AgentRights,
    ) -> None:
        self.context = context
        self.client = context.client
        self.informers = informers
        self.sources = sources
        self.rights = rights

    async def step(self, addon: ManagedClusterAddOn, cluster: ManagedCluster | None) -> Result:
        """Do what can be done now; finalizers that are done are removed."""
        waiting = [each for each in addon.metadata.finalizers if each in OUR_FINALIZERS]
        if not waiting:
            return Result.never()
        prepared = prepare(addon, self.sources, cluster.metadata.annotations if cluster else {})
        done: set[str] = set()
        for hosting, finalizer in ((False, PRE_DELETE), (True, HOSTING_PRE_DELETE)):
            if finalizer in waiting and await self.run_hooks(addon, prepared, hosting=hosting):
                done.add(finalizer)
        hooks = {PRE_DELETE, HOSTING_PRE_DELETE} & set(waiting) - done
        if not hooks:
            if HOSTING_CLEANUP in waiting and await self.remove_hosted(addon):
                done.add(HOSTING_CLEANUP)
            if PERMISSION_CLEANUP in waiting:
                await self.rights.revoke(addon.key)
                done.add(PERMISSION_CLEANUP)
        if done:
            current = self.informers.addon(addon.key) or addon
            kept = [each for each in current.metadata.finalizers if each not in done]
            await write_metadata(self.client, current, {"finalizers": kept})
        return Result.never() if done == set(waiting) else Result.after(AGAIN_SECONDS)

    async def run_hooks(
        self, addon: ManagedClusterAddOn, prepared: object, *, hosting: bool
    ) -> bool:
        """Run the hooks of an add-on; True when they are complete, or cannot run any more."""
        if not isinstance(prepared, PreparedAddOn):
            self.context.events.warning(
                self.regarding(addon),
                "HooksSkipped",
                f"add-on {addon.key} is removed without its hooks: its template or configuration"
                " is gone or cannot be used",
            )
            return True
        hooks = prepared.delivery.hosting_hooks if hosting else prepared.delivery.managed_hooks
        if not hooks:
            return True
        wanted = hook_work(addon, prepared.template.spec.agent_spec, hooks, hosting=hosting)
        existing = {Key.of(each): each for each in self.informers.works_of(addon.key)}
        found = await apply_work(self.client, existing.get(Key.of(wanted)), wanted)
        state = work_conditions.work_state(found)
        said = work_conditions.hook_completed(state, [identifier(each) for each in hooks])
        if said.status == "True":
            return True
        await self.report(addon, said)
        return False

    async def report(self, addon: ManagedClusterAddOn, said: StandardCondition) -> None:
        """Write what a removal waits for."""
        conditions = put(addon.status.conditions, said, self.context.now())
        await write_status(self.client, addon, replace(addon.status, conditions=conditions))

    async def remove_hosted(self, addon: ManagedClusterAddOn) -> bool:
        """Remove what an add-on has on its hosting cluster; True when that is gone."""
        left = [
            each
            for each in self.informers.works_of(addon.key)
            if each["metadata"]["namespace"] != addon.cluster
        ]
        for each in left:
            await delete_object(self.client, each)
        return not left

    async def remove_leftovers(self, addon: Key) -> None:
        """Remove what an add-on that is gone has left on the hub."""
        for each in self.informers.works_of(addon):
            owners: list[Object] = each["metadata"].get("ownerReferences") or []
            if any(owner.get("kind") == ADDONS.kind for owner in owners):
                await delete_object(self.client, each)
        await self.rights.revoke(addon)

    def regarding(self, addon: ManagedClusterAddOn) -> Object:
        """An add-on as Events name it."""
        return {
            "apiVersion": ADDONS.api_version,
            "kind": ADDONS.kind,
            "metadata": {
                "name": addon.name,
                "namespace": addon.cluster,
                "uid": addon.metadata.uid,
            },
        }
