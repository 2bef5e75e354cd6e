"""Our agent on a hub of Open Cluster Management: it has that hub's roles, and nothing of ours."""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.certificate_requests import CERTIFICATES_GROUP
from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    AVAILABLE,
    CLUSTERS,
    JOINED,
    LEASE_NAME,
    REGISTER_GROUP,
    cluster_groups,
)
from knfleet.api.cluster.managedcluster import GROUP as CLUSTER_GROUP
from knfleet.api.core import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
)
from knfleet.api.crds.fleet import hub_definitions
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.api.operator import BOOTSTRAP_ACCOUNT, OPERATOR_NAMESPACE
from knfleet.api.rbac_rules import RBAC_GROUP, READ, cluster_role, rule
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.registration.rbac import lease
from knfleet.install.hub_manifests import bootstrap_binding, named
from knfleet.kube.client.verbs import Client
from testbed import hubs
from testbed.agent_process import Agent, Scene, bootstrap_token, condition, prepare_spoke
from testbed.clusters import Lend
from testbed.peers.ocm_hub import BOOTSTRAP
from testbed.waiting import until

pytestmark = pytest.mark.xdist_group("agent")
NAME = "open-cluster-management:managedcluster:c1"
SHARED = "open-cluster-management:managedcluster"

OWN = [
    rule(CERTIFICATES_GROUP, ["certificatesigningrequests"], ["create", *READ]),
    rule(REGISTER_GROUP, ["managedclusters/clientcertificates"], ["renew"]),
    rule(CLUSTER_GROUP, ["managedclusters"], [*READ, "update"], ["c1"]),
    rule(CLUSTER_GROUP, ["managedclusters/status"], ["patch", "update"], ["c1"]),
]
REGISTRATION = [
    rule("coordination.k8s.io", ["leases"], [*READ, "update"]),
    rule(ADDONS.group, ["managedclusteraddons"], READ),
    rule(ADDONS.group, ["managedclusteraddons/status"], ["patch", "update"]),
    rule("events.k8s.io", ["events"], ["create"]),
]
WORK = [
    rule("", ["events"], ["create", "patch", "update"]),
    rule(WORKS.group, ["manifestworks"], [*READ, "update", "patch"]),
    rule(WORKS.group, ["manifestworks/status"], ["patch", "update"]),
]


def bound(kind: str, name: str, role_name: str) -> Object:
    """A binding of one of the hub's roles to the agents of cluster c1."""
    subjects = [
        {"apiGroup": RBAC_GROUP, "kind": "Group", "name": group} for group in cluster_groups("c1")
    ]
    reference = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role_name}
    place = "c1" if kind == "RoleBinding" else ""
    made = named(f"{RBAC_GROUP}/v1", kind, name, place)
    return {**made, "roleRef": reference, "subjects": subjects}


async def grant(hub: Client) -> None:
    """Do what a hub of Open Cluster Management does with a cluster that it accepts."""
    await hub.apply(NAMESPACES, named("v1", "Namespace", "c1"))
    await hub.apply(LEASES, lease("c1", datetime.now(UTC)))
    roles = {NAME: OWN, f"{SHARED}:registration": REGISTRATION, f"{SHARED}:work": WORK}
    for name, rules in roles.items():
        await hub.apply(CLUSTER_ROLES, cluster_role(name, rules))
    for part in ("registration", "work"):
        binding = bound("RoleBinding", f"{NAME}:{part}", f"{SHARED}:{part}")
        await hub.apply(ROLE_BINDINGS, binding)
    # Last, since the agent begins when it may see its cluster.
    await hub.apply(CLUSTER_ROLE_BINDINGS, bound("ClusterRoleBinding", NAME, NAME))
    said = {
        "type": ACCEPTED,
        "status": "True",
        "reason": "HubClusterAdminAccepted",
        "message": "Accepted by hub cluster admin",
        "lastTransitionTime": timestamp(datetime.now(UTC)),
    }
    patch = {"status": {"conditions": [said]}}
    await hub.patch(CLUSTERS, Key("", "c1"), patch, subresource="status")


@pytest.fixture
async def foreign(lend: Lend, tmp_path: Path) -> AsyncIterator[Scene]:
    """A hub with nothing but the CRDs and roles of Open Cluster Management, and our agent."""
    hub_lent, spoke_lent = await lend(2)
    async with Client(hub_lent.connection) as hub, Client(spoke_lent.connection) as spoke:
        for each in hub_definitions():
            await hub.apply(CRDS, each)
            await hubs.established(hub, each["metadata"]["name"])
        await hub.apply(NAMESPACES, named("v1", "Namespace", OPERATOR_NAMESPACE))
        account = named("v1", "ServiceAccount", BOOTSTRAP_ACCOUNT, OPERATOR_NAMESPACE)
        await hub.apply(SERVICE_ACCOUNTS, account)
        binding = bootstrap_binding(OPERATOR_NAMESPACE)
        await hub.apply(CLUSTER_ROLES, cluster_role(binding["roleRef"]["name"], BOOTSTRAP))
        await hub.apply(CLUSTER_ROLE_BINDINGS, binding)
        await prepare_spoke(spoke)
        agent = Agent(spoke_lent, tmp_path)
        agent.point_to(hub_lent.connection.endpoint, await bootstrap_token(hub))
        try:
            yield Scene(hub, hub_lent, spoke, agent, AsyncExitStack())
        finally:
            await agent.end(signal.SIGKILL)


async def test_an_agent_of_ours_lives_with_the_roles_of_open_cluster_management(foreign: Scene):
    """It joins, renews its Lease again and again, reports, and is refused nothing but the token."""
    hub = foreign.hub
    await foreign.agent.start()
    await foreign.accept()
    await hub.patch(CLUSTERS, Key("", "c1"), {"spec": {"leaseDurationSeconds": 1}})
    await grant(hub)
    await condition(hub, JOINED, "True")
    await condition(hub, AVAILABLE, "True")

    renewals: set[str] = set()

    async def is_renewed() -> bool:
        found = await hub.get(LEASES, LEASE_NAME, "c1")
        renewals.add(found["spec"]["renewTime"])
        return len(renewals) > 3

    async def is_told() -> bool:
        found = await hub.list(EVENTS, "c1")
        return any(each["reason"] == "Available" for each in found.items)

    await until(is_renewed, f"the Lease is renewed: {foreign.agent.said()}")
    # Another wrote it meanwhile; the agent goes on all the same.
    touched = {"metadata": {"labels": {"touched": "true"}}}
    await hub.patch(LEASES, Key("c1", LEASE_NAME), touched)
    renewals.clear()
    await until(is_renewed, f"the Lease is renewed: {foreign.agent.said()}")
    assert (await hub.get(LEASES, LEASE_NAME, "c1"))["metadata"]["labels"]["touched"] == "true"
    await until(is_told, "an Event tells that the cluster is available")
    refusals = [line for line in foreign.agent.said().splitlines() if "forbidden" in line.lower()]
    assert [line for line in refusals if "knfleet-spoke-access" not in line] == []
