"""Names of clusters that are those of something else, on new hubs and on installed ones."""

import pytest

from knfleet.api.cluster.managedcluster import ACCEPTED, CLUSTER_NAME_LABEL, CLUSTERS, GROUP_PREFIX
from knfleet.api.core import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, ROLE_BINDINGS
from knfleet.api.meta import Object
from knfleet.hub.admission.policies import POLICY_VERSION
from knfleet.hub.registration import rbac
from knfleet.hub.registration.rbac import cluster_role
from knfleet.hub.tunnel.rights import AGENT_ROLE as TUNNEL_ROLE
from knfleet.install.hub_manifests import hub_objects
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden
from knfleet.workflows.object_lists import apply_all
from testbed import hubs
from testbed.clusters import Lend
from testbed.waiting import until
from tests.support.registration import Agent, accept, condition, is_said, managed_cluster

OLD = "open-cluster-management:managedcluster"
RESERVED = [
    "registration",
    "work",
    "managed-clusters",
    "addon",
    "knfleet-spoke-access",
    "hub-kubeconfig-secret",
    "knative-serving",
]


@pytest.mark.parametrize("name", RESERVED)
async def test_a_name_of_something_else_is_refused(fleet: Client, bootstrap: Connection, name: str):
    """To the administrator as to one who asks to join."""
    with pytest.raises(Forbidden, match="choose another"):
        await fleet.create(CLUSTERS, managed_cluster(name), dry_run=True)
    async with Client(bootstrap) as asking:
        with pytest.raises(Forbidden, match="choose another"):
            await asking.create(CLUSTERS, managed_cluster(name), dry_run=True)


def as_it_was(cluster: str) -> list[Object]:
    """The objects of an accepted cluster, and the shared roles, as older releases made them."""
    roles = [
        {**each, "metadata": {"name": f"{OLD}:{word}", "labels": {CLUSTER_NAME_LABEL: ""}}}
        for word, each in zip(("registration", "work"), rbac.shared_roles(), strict=False)
    ]
    bindings = rbac.role_bindings(cluster)[:2]
    for word, each in zip(("registration", "work"), bindings, strict=True):
        each["roleRef"]["name"] = f"{OLD}:{word}"
    return [
        rbac.namespace(cluster),
        *roles,
        cluster_role(cluster, accepted=True),
        rbac.cluster_role_binding(cluster),
        *bindings,
    ]


async def test_an_installed_hub_with_such_names_comes_right(lend: Lend):
    """Roles of older releases are replaced while agents keep their rights."""
    (lent,) = await lend(1)
    admin = lent.connection
    wanted = hub_objects()
    rules = [each for each in wanted if each["apiVersion"] == POLICY_VERSION]
    async with Client(admin) as fleet:
        await apply_all(fleet, [each for each in wanted if each not in rules])
        for name in ("registration", "managed-clusters", "plain"):
            await fleet.create(CLUSTERS, managed_cluster(name))
            await accept(fleet, name)
        await apply_all(fleet, [*as_it_was("plain"), *as_it_was("managed-clusters")])
        await apply_all(fleet, rules)
        async with hubs.running(admin):
            for name in ("plain", "registration"):
                await until(lambda n=name: is_said(fleet, n, ACCEPTED, "True"), f"{name} accepted")
            await until(lambda: is_said(fleet, "managed-clusters", ACCEPTED, "False"), "refused")
            assert "reserved" in (await condition(fleet, "managed-clusters", ACCEPTED))["message"]
            agent = Agent(await hubs.as_bootstrap(admin), "late")
            async with Client(await agent.join(fleet)) as own:
                await agent.renew(own)
                await agent.report(own)

            async def is_replaced() -> bool:
                found = await fleet.list(CLUSTER_ROLES, labels=f"{CLUSTER_NAME_LABEL}=")
                return not any(each["metadata"]["name"].startswith(OLD) for each in found.items)

            await until(is_replaced, "shared roles of older releases are gone")

        bound = (await fleet.list(ROLE_BINDINGS, "plain")).items
        assert {each["roleRef"]["name"] for each in bound} == set(rbac.SHARED_ROLES)
        (own_role,) = [
            each
            for each in (await fleet.list(CLUSTER_ROLES)).items
            if each["metadata"]["name"] == f"{OLD}:registration"
        ]
        assert own_role["rules"] == cluster_role("registration", accepted=True)["rules"]
        everybody = f"{GROUP_PREFIX}managed-clusters"
        found = [
            *(await fleet.list(CLUSTER_ROLE_BINDINGS)).items,
            *(await fleet.list(ROLE_BINDINGS)).items,
        ]
        others = [each for each in found if each["metadata"]["name"] != TUNNEL_ROLE]
        assert not [each for each in others if everybody in str(each.get("subjects"))]
        assert (await fleet.get(NAMESPACES, "managed-clusters"))["metadata"]["name"]
