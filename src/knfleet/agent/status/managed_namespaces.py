"""The namespaces that the cluster's sets want on it: made here, and reported to the hub.

One that no set wants any more is kept, for a client may use it; its label says so.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from knfleet.agent.agent_controller import AgentController, Wake
from knfleet.agent.hub_session import HubSession
from knfleet.agent.status.cluster_status import is_accepted
from knfleet.api.cluster.managedcluster import CLUSTERS, NAMESPACE_AVAILABLE, ManagedCluster
from knfleet.api.conditions import StandardCondition, put
from knfleet.api.core import NAMESPACES
from knfleet.api.meta import Key, Object, Request
from knfleet.api.rbac_rules import rule
from knfleet.api.schema import decode
from knfleet.apply.manifest_fields import items
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import ApiError, Conflict, Forbidden
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Component

MANAGER = "knfleet-agent-namespaces"
LABEL_PREFIX = "clusterset.open-cluster-management.io/"
LOOK_SECONDS = 300.0
RETRY_SECONDS = 30.0
LONGEST_NAME = 63


def hub_label(server: str) -> str:
    """The label of namespaces that sets of a hub want; the hub's address tells hubs apart."""
    digest = hashlib.sha256(server.encode()).hexdigest()
    return f"{LABEL_PREFIX}{digest[:LONGEST_NAME]}"


def namespace(name: str, label: str, *, is_wanted: bool) -> Object:
    """A namespace that is wanted by a set, or was."""
    labels = {label: "true" if is_wanted else "false"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def condition(problem: str) -> StandardCondition:
    """How a namespace stands."""
    return StandardCondition(
        type=NAMESPACE_AVAILABLE,
        status="False" if problem else "True",
        reason="NamespaceApplyFailed" if problem else "NamespaceApplied",
        message=problem or "Namespace applied successfully",
    )


def patch_of(cluster: ManagedCluster, problems: Mapping[str, str], now: datetime) -> Object:
    """The merge patch that tells how the namespaces stand; empty when it is current."""
    old = cluster.status.managed_namespaces
    new = [
        replace(each, conditions=put(each.conditions, condition(problems[each.name]), now))
        if each.name in problems
        else each
        for each in old
    ]
    if new == old:
        return {}
    return {
        "metadata": {"resourceVersion": cluster.metadata.resource_version},
        "status": {"managedNamespaces": msgspec.to_builtins(new)},
    }


class ManagedNamespaceController:
    """Makes the namespaces, and tells how they stand."""

    def __init__(self, session: HubSession) -> None:
        self.session = session
        self.label = hub_label(session.address.endpoint.server)

    def watch(self, wake: Wake) -> Sequence[Component]:
        """The namespaces that the hub lists for an accepted cluster."""
        self.session.on_cluster(wake, wanted_namespaces)
        return []

    async def reconcile(self, _request: Request) -> Result:
        """Have the namespaces there that are wanted, and mark the others."""
        cluster = self.session.cluster()
        if cluster is None or not is_accepted(cluster):
            return Result.never()
        wanted = {each.name for each in cluster.status.managed_namespaces}
        problems = {name: await self.make(name) for name in sorted(wanted)}
        await self.mark_unwanted(wanted)
        patch = patch_of(cluster, problems, datetime.now(UTC))
        if patch:
            key = Key("", cluster.name)
            try:
                await self.session.hub.patch(CLUSTERS, key, patch, subresource="status")
            except Conflict:
                return Result.after(0.1)
        return Result.after(RETRY_SECONDS if any(problems.values()) else LOOK_SECONDS)

    async def make(self, name: str) -> str:
        """Have one namespace there; why it is not, if so."""
        try:
            await applied(self.session.spoke, namespace(name, self.label, is_wanted=True))
        except ApiError as error:
            log.warning("namespace of a set not made", namespace=name, error=str(error))
            return error.message
        return ""

    async def mark_unwanted(self, wanted: Iterable[str]) -> None:
        """Say of namespaces that no set wants any more that none does."""
        try:
            found = await self.session.spoke.list(
                NAMESPACES, labels=f"{self.label}=true", metadata_only=True
            )
        except Forbidden as error:
            log.debug("namespaces cannot be listed", error=str(error))
            return
        for each in found.items:
            name = each["metadata"]["name"]
            if name not in wanted:
                log.info("namespace no longer listed by a set", namespace=name)
                await applied(self.session.spoke, namespace(name, self.label, is_wanted=False))


async def applied(spoke: Client, manifest: Object) -> None:
    """Write a namespace's label; what else it has stays."""
    await spoke.apply(NAMESPACES, manifest, manager=MANAGER)


def wanted_namespaces(manifest: Object | None) -> object:
    """The namespaces that are wanted on a cluster; None while it is not accepted."""
    if manifest is None or not is_accepted(decode(manifest, ManagedCluster)):
        return None
    return [each["name"] for each in items(manifest, "status", "managedNamespaces")]


CONTROLLER = AgentController(
    "namespaces",
    ManagedNamespaceController,
    managed_rules=(rule("", ["namespaces"], ["list", "create", "patch"]),),
)
