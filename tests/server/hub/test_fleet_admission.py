"""What the API server refuses to those who may not accept clusters, whether or not a hub runs."""

from typing import Any

import pytest

from knfleet.api.cluster.clusterset import BINDINGS
from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    AGENT_ANNOTATIONS,
    AGENT_NAME,
    ALLOW_REREGISTRATION,
    API_FINALIZER,
    AUTO_ACCEPTED,
    CLUSTERS,
    DELETE_NAMESPACE,
    FORCE_DETACH,
    SET_LABEL,
    SKIP_CLOCK_CHECK,
)
from knfleet.api.core import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
)
from knfleet.api.meta import Key, Object
from knfleet.api.rbac_rules import rule
from knfleet.install.deployments import HubInstall
from knfleet.install.hub_manifests import hub_objects
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden, NotFound
from knfleet.workflows.join_token import INFO, PUBLIC, ROOT_CA
from knfleet.workflows.object_lists import apply_all
from testbed import hubs
from testbed.waiting import until
from tests.support.registration import DANGLING, Agent, accept, is_said, managed_cluster

OURS: dict[str, Object] = {
    "namespace": {"annotations": {DELETE_NAMESPACE: "true"}},
    "force": {"annotations": {FORCE_DETACH: "0s"}},
    "agent": {"annotations": {AGENT_NAME: "mine"}},
    "again": {"annotations": {ALLOW_REREGISTRATION: "true"}},
    "accepted": {"annotations": {AUTO_ACCEPTED: "2026-01-01T00:00:00Z"}},
    "clock": {"annotations": {SKIP_CLOCK_CHECK: "true"}},
    "our finalizer": {"finalizers": [API_FINALIZER]},
    "any finalizer": {"finalizers": ["example.com/never"]},
    "owner": {"ownerReferences": [DANGLING]},
}
"""Metadata that the hub, or Kubernetes, acts on."""


def dressed(name: str, meta: Object) -> Object:
    """A cluster that asks to join, with more metadata than its name."""
    made = managed_cluster(name)
    made["metadata"] |= meta
    return made


@pytest.fixture
async def editor(fleet: Client, fleet_connection: Connection) -> Connection:
    """The connection of one who may change clusters, but not accept them."""
    rules = [rule(CLUSTERS.group, [CLUSTERS.plural], ["create", "get", "update", "patch"])]
    return await one_who_may(fleet, fleet_connection, "edits-clusters", rules)


async def one_who_may(
    fleet: Client, connection: Connection, name: str, rules: list[Object]
) -> Connection:
    """The connection of an account with a role of that name."""
    api = CLUSTER_ROLES.api_version
    account = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    reference = {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": name}
    made: Object = {"apiVersion": api, "metadata": {"name": name}}
    await fleet.apply(CLUSTER_ROLES, {**made, "kind": "ClusterRole", "rules": rules})
    bound = {"kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [account]}
    await fleet.apply(CLUSTER_ROLE_BINDINGS, {**made, **bound})
    return await hubs.as_account(connection, "default", "default")


@pytest.mark.parametrize("meta", OURS.values(), ids=OURS)
async def test_a_join_token_sets_nothing_that_the_hub_acts_on(bootstrap: Connection, meta: Object):
    """By a finalizer and an owner that is gone, a cluster would delete what the hub gave others."""
    async with Client(bootstrap) as asking:
        with pytest.raises(Forbidden, match="managedclusters/accept"):
            await asking.create(CLUSTERS, dressed("prod", meta))


@pytest.mark.parametrize("meta", OURS.values(), ids=OURS)
async def test_neither_does_one_who_may_only_change_clusters(
    fleet: Client, editor: Connection, meta: Object
):
    """What was there before stays as it is, and other changes are fine."""
    name = "edited"
    key = Key("", name)
    before: Object = {
        "annotations": {DELETE_NAMESPACE: "false"},
        "finalizers": ["example.com/before"],
    }
    await fleet.create(CLUSTERS, dressed(name, before))
    try:
        async with Client(editor) as changing:
            await changing.patch(CLUSTERS, key, {"metadata": {"annotations": {"mine": "yes"}}})
            removed: list[Object] = [meta, {"annotations": {DELETE_NAMESPACE: None}}]
            for each in removed:
                with pytest.raises(Forbidden, match="managedclusters/accept"):
                    await changing.patch(CLUSTERS, key, {"metadata": each})
            await changing.patch(CLUSTERS, key, {"metadata": {"finalizers": None}})
    finally:
        await fleet.patch(CLUSTERS, key, {"metadata": {"finalizers": None}})
        await fleet.delete(CLUSTERS, key)


async def test_a_join_token_reads_no_configmaps_but_those_of_the_hubs_ca(
    fleet: Client, bootstrap: Connection
):
    meta = {"name": "settings"}
    private = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "b"}}
    await fleet.create(CONFIG_MAPS, private, "default")
    async with Client(bootstrap) as asking:
        assert (await asking.get(CONFIG_MAPS, ROOT_CA, "kube-system"))["data"]["ca.crt"]
        with pytest.raises(NotFound):
            await asking.get(CONFIG_MAPS, INFO, PUBLIC)
        with pytest.raises(Forbidden):
            await asking.get(CONFIG_MAPS, "settings", "default")


async def test_an_agent_that_asks_to_join_may_describe_its_cluster(bootstrap: Connection):
    described: dict[str, Any] = {"annotations": {f"{AGENT_ANNOTATIONS}region": "here"}}
    async with Client(bootstrap) as asking:
        await asking.create(CLUSTERS, dressed("described", described))


async def test_an_agent_chooses_no_labels_by_which_sets_and_placements_choose(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """Neither when it asks to join nor later; some are its own, and others may be made so."""
    foreign = {"environment": "prod"}
    own = {f"{AGENT_ANNOTATIONS}zone": "a", "feature.open-cluster-management.io/x": "available"}
    agent = Agent(bootstrap, "labelled")
    async with Client(bootstrap) as asking:
        with pytest.raises(Forbidden, match=r"knfleet-agent-labels.*feature\.open-cluster"):
            await asking.create(CLUSTERS, dressed("enters", {"labels": foreign}))
        await asking.create(CLUSTERS, dressed("describes", {"labels": {**own, SET_LABEL: "x"}}))
    async with hubs.running(fleet_connection):
        connection = await agent.join(fleet)
    key = Key("", "labelled")
    await fleet.patch(CLUSTERS, key, {"metadata": {"labels": {"tier": "test"}}})
    async with Client(connection) as client:
        await client.patch(CLUSTERS, key, {"metadata": {"labels": own}})
        for labels in (foreign, {"tier": "prod"}, {"tier": None}):
            with pytest.raises(Forbidden, match="knfleet-agent-labels"):
                await client.patch(CLUSTERS, key, {"metadata": {"labels": labels}})
        await client.patch(CLUSTERS, key, {"metadata": {"labels": dict.fromkeys(own)}})

        permitted = HubInstall(image="", agent_labels=("environment",))
        rules = [each for each in hub_objects(permitted) if "agent-labels" in str(each["metadata"])]
        try:
            await apply_all(fleet, rules)

            async def is_permitted() -> bool:
                try:
                    await client.patch(CLUSTERS, key, {"metadata": {"labels": foreign}})
                except Forbidden:
                    return False
                return True

            await until(is_permitted, "the label is the agent's own")
        finally:
            await apply_all(fleet, hub_objects())


async def is_there(client: Client, namespace: str) -> bool:
    """Whether a namespace is there and stays."""
    try:
        found = await client.get(NAMESPACES, namespace)
    except NotFound:
        return False
    return not found["metadata"].get("deletionTimestamp")


async def leave(fleet: Client, name: str) -> None:
    """Have a cluster deleted with its namespace."""
    wanted = {"metadata": {"annotations": {DELETE_NAMESPACE: "true"}}}
    await fleet.patch(CLUSTERS, Key("", name), wanted)
    await fleet.delete(CLUSTERS, Key("", name))

    async def is_gone() -> bool:
        return not (await fleet.list(CLUSTERS, fields=f"metadata.name={name}")).items

    await until(is_gone, f"{name} is gone")


async def test_only_a_namespace_that_the_hub_made_leaves_with_its_cluster(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """One that was there before stays; so does that of a cluster that was never accepted."""
    for name in ("theirs", "unaccepted"):
        meta = {"name": name}
        await fleet.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    async with hubs.running(fleet_connection):
        for name in ("made", "theirs"):
            await Agent(bootstrap, name).join(fleet)
        await Agent(bootstrap, "unaccepted").introduce()
        for name in ("made", "theirs", "unaccepted"):
            await leave(fleet, name)

        assert [await is_there(fleet, name) for name in ("made", "theirs", "unaccepted")] == [
            False,
            True,
            True,
        ]

        async def is_told() -> bool:
            found = await fleet.list(EVENTS, "theirs")
            return any(each["reason"] == "NamespaceKept" for each in found.items)

        await until(is_told, "it is told that the namespace stays")


async def test_a_namespace_that_the_hub_made_belongs_to_the_next_cluster_of_its_name(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    async with hubs.running(fleet_connection):
        await Agent(bootstrap, "again").join(fleet)
        await fleet.delete(CLUSTERS, Key("", "again"))

        async def is_gone() -> bool:
            return not (await fleet.list(CLUSTERS, fields="metadata.name=again")).items

        await until(is_gone, "the first one is gone")
        assert await is_there(fleet, "again")
        await Agent(bootstrap, "again").introduce()
        await accept(fleet, "again")
        await until(lambda: is_said(fleet, "again", ACCEPTED, "True"), "accepted")
        await leave(fleet, "again")

        assert not await is_there(fleet, "again")


async def test_a_set_is_bound_only_by_those_who_may_bind_it(
    fleet: Client, fleet_connection: Connection
):
    """Who may write bindings in a namespace has no clusters by that."""
    rules = [
        rule(BINDINGS.group, [BINDINGS.plural], ["create"]),
        rule(BINDINGS.group, ["managedclustersets/bind"], ["create"], ["granted"]),
    ]
    tenant = await one_who_may(fleet, fleet_connection, "binds-one-set", rules)
    async with Client(tenant) as own:
        with pytest.raises(Forbidden, match="to bind set global"):
            await own.create(BINDINGS, binding("global"), "default", dry_run=True)
        await own.create(BINDINGS, binding("granted"), "default", dry_run=True)


def binding(name: str) -> Object:
    """Binds a set of clusters to a namespace."""
    meta = {"name": name}
    api = BINDINGS.api_version
    return {
        "apiVersion": api,
        "kind": BINDINGS.kind,
        "metadata": meta,
        "spec": {"clusterSet": name},
    }
