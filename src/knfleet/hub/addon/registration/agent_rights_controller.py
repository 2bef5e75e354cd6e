"""Gives the agents of add-ons their rights and accounts on the hub, and takes them away again."""

import asyncio

from msgspec.structs import replace

from knfleet.api.addon.managedclusteraddon import ManagedClusterAddOn, ManagedClusterAddOnStatus
from knfleet.api.addon.names import REGISTRATION_APPLIED, TOKEN_READY
from knfleet.api.conditions import StandardCondition, find, put
from knfleet.api.core import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object
from knfleet.hub.addon.addon_informers import AddOnInformers
from knfleet.hub.addon.addon_writes import delete_object, has_metadata
from knfleet.hub.addon.delivery.work_conditions import condition
from knfleet.hub.addon.registration.agent_rights import token_infrastructure, uses_tokens
from knfleet.hub.context import HubContext, remove
from knfleet.kube.errors import ApiError, Forbidden, Invalid, NotFound

RESYNC_SECONDS = 300.0
KINDS = {"ServiceAccount": SERVICE_ACCOUNTS, "Role": ROLES, "RoleBinding": ROLE_BINDINGS}


class AgentRights:
    """Writes RoleBindings and accounts of add-ons' agents."""

    def __init__(self, context: HubContext, informers: AddOnInformers) -> None:
        self.context = context
        self.client = context.client
        self.informers = informers
        self.accounts: dict[str, tuple[str, float]] = {}
        """By uid of an add-on the uid of its account, and when that was last applied."""

    async def grant(
        self, addon: ManagedClusterAddOn, bindings: list[Object], *, has_registration: bool
    ) -> StandardCondition:
        """Bind what a template asks for, remove what it no longer does; whether that went well."""
        found = {
            Key.of(each): each
            for each in self.informers.role_bindings.by_index("addon", str(addon.key))
        }
        wanted = {Key.of(each) for each in bindings}
        for key, each in found.items():
            if key not in wanted:
                await delete_object(self.client, each, ROLE_BINDINGS)
        for each in bindings:
            try:
                await self.bind(found.get(Key.of(each)), each)
            except (Forbidden, Invalid, NotFound) as error:
                return self.refused(each, error)
        if not has_registration:
            return condition(
                REGISTRATION_APPLIED,
                "True",
                "NilRegistration",
                "Registration of the addon agent is configured",
            )
        return condition(
            REGISTRATION_APPLIED,
            "True",
            "SetPermissionApplied",
            "Registration of the addon agent is configured",
        )

    def refused(self, binding: Object, error: ApiError) -> StandardCondition:
        """Why a role could not be bound, and what helps."""
        role = binding["roleRef"]
        namespace = binding["metadata"]["namespace"]
        help_ = (
            f" Permit the verb bind on {role['kind']} {role['name']} to the hub's ServiceAccount."
            if isinstance(error, Forbidden)
            else ""
        )
        return condition(
            REGISTRATION_APPLIED,
            "False",
            "SetPermissionFailed",
            f"Failed to bind {role['kind']} {role['name']} in namespace {namespace}:"
            f" {error.message}.{help_}",
        )

    async def bind(self, found: Object | None, wanted: Object) -> None:
        """Write a RoleBinding, if it is not as it should be."""
        if found is not None and found["roleRef"] != wanted["roleRef"]:
            await delete_object(self.client, found, ROLE_BINDINGS)
        elif (
            found is not None
            and found.get("subjects") == wanted["subjects"]
            and has_metadata(found, wanted)
        ):
            return
        await self.client.apply(ROLE_BINDINGS, wanted)

    async def revoke(self, addon: Key) -> None:
        """Take all bound roles away from the agents of an add-on on a cluster."""
        for each in self.informers.role_bindings.by_index("addon", str(addon)):
            await delete_object(self.client, each, ROLE_BINDINGS)

    async def with_token_account(
        self, addon: ManagedClusterAddOn, status: ManagedClusterAddOnStatus
    ) -> tuple[ManagedClusterAddOnStatus, bool]:
        """The status with the account of an agent that uses tokens, and whether it has one."""
        old = find(status.conditions, TOKEN_READY)
        if not uses_tokens(replace(addon, status=status)):
            if old is not None:
                for each in token_infrastructure(addon):
                    await remove(self.client, KINDS[each["kind"]], Key.of(each))
                conditions = [each for each in status.conditions if each.type != TOKEN_READY]
                status = replace(status, conditions=conditions)
            return status, False
        try:
            uid = await self.account(addon)
        except (Forbidden, Invalid, NotFound) as error:
            text = f"Failed to apply token infrastructure: {error.message}"
            said = condition(TOKEN_READY, "False", "TokenInfrastructureApplyFailed", text)
        else:
            account = token_infrastructure(addon)[0]["metadata"]["name"]
            text = f"ServiceAccount {addon.cluster}/{account} (UID: {uid}) is ready"
            said = condition(TOKEN_READY, "True", "TokenInfrastructureReady", text)
        return replace(status, conditions=put(status.conditions, said, self.context.now())), True

    async def account(self, addon: ManagedClusterAddOn) -> str:
        """The uid of an agent's account, which is made with its rights once in a while."""
        now = asyncio.get_running_loop().time()
        known = self.accounts.get(addon.metadata.uid)
        if known is not None and now - known[1] < RESYNC_SECONDS:
            return known[0]
        written = [
            await self.client.apply(KINDS[each["kind"]], each)
            for each in token_infrastructure(addon)
        ]
        uid = str(written[0]["metadata"]["uid"])
        self.accounts[addon.metadata.uid] = (uid, now)
        return uid
