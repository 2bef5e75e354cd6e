"""Clusters that are heard of and lost, on a real hub; sets, taints, and how clusters leave."""

from datetime import UTC, datetime, timedelta

import pytest

from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.cluster.clusterset import BINDINGS, BOUND, CLUSTER_SETS
from knfleet.api.cluster.managedcluster import (
    API_FINALIZER,
    AVAILABLE,
    CLEANUP_FINALIZER,
    CLEANUP_PRIORITY,
    CLOCK_SYNCED,
    CLUSTERS,
    FORCE_DETACH,
    LEASE_NAME,
    UNAVAILABLE,
    UNREACHABLE,
)
from knfleet.api.core import CLUSTER_ROLES, EVENTS, LEASES
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import CLUSTER_MANAGERS
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden, Invalid, NotFound
from testbed import hubs
from testbed.waiting import until
from tests.support import hub_works as works
from tests.support.registration import Agent, condition, is_said


async def taints(client: Client, cluster: str) -> dict[str, str]:
    """The taints of a cluster, and when they were added."""
    found = await client.get(CLUSTERS, cluster)
    listed: list[Object] = found["spec"].get("taints") or []
    return {each["key"]: each.get("timeAdded", "") for each in listed}


async def is_gone(client: Client, resource: Resource, name: str, namespace: str = "") -> bool:
    """Whether an object is not there."""
    try:
        await client.get(resource, name, namespace)
    except NotFound:
        return True
    return False


async def test_a_lost_cluster_becomes_unknown_and_returns(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """The taint has the time of the condition, also when somebody took it away meanwhile."""
    agent = Agent(bootstrap, "lost")
    async with (
        hubs.running(fleet_connection),
        Client(await agent.join(fleet, leaseDurationSeconds=1)) as own,
    ):
        await agent.renew(own)
        await agent.report(own)

        async def has_taints(*keys: str) -> bool:
            return set(keys) == set(await taints(fleet, "lost"))

        await until(has_taints, "no taint")
        await until(lambda: is_said(fleet, "lost", AVAILABLE, "Unknown"), "lost")
        said = await condition(fleet, "lost", AVAILABLE)
        assert said["reason"] == "ManagedClusterLeaseUpdateStopped"
        await until(lambda: has_taints(UNREACHABLE), "tainted")
        assert (await taints(fleet, "lost"))[UNREACHABLE] == said["lastTransitionTime"]

        mine = [{"key": "mine", "effect": "NoSelect"}]
        await fleet.patch(CLUSTERS, Key("", "lost"), {"spec": {"taints": mine}})
        await until(lambda: has_taints("mine", UNREACHABLE), "tainted again")
        found = await taints(fleet, "lost")
        assert found[UNREACHABLE] == said["lastTransitionTime"]
        assert found["mine"]

        await agent.renew(own)
        await agent.report(own, "False")
        await until(lambda: has_taints("mine", UNAVAILABLE), "unavailable")
        await agent.renew(own)
        await agent.report(own)
        await until(lambda: has_taints("mine"), "untainted")


async def test_a_wrong_clock_is_told_and_does_not_make_a_cluster_lost(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    agent = Agent(bootstrap, "clock")
    async with hubs.running(fleet_connection), Client(await agent.join(fleet)) as own:
        await agent.report(own)
        await agent.renew(own, datetime.now(UTC) - timedelta(hours=1))
        await until(lambda: is_said(fleet, "clock", CLOCK_SYNCED, "False"), "told")
        said = await condition(fleet, "clock", CLOCK_SYNCED)
        assert "60 min behind" in said["message"]
        assert await is_said(fleet, "clock", AVAILABLE, "True")

        await agent.renew(own)
        await until(lambda: is_said(fleet, "clock", CLOCK_SYNCED, "True"), "agrees")


async def test_a_deleted_lease_comes_back(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    agent = Agent(bootstrap, "leased")
    async with hubs.running(fleet_connection), Client(await agent.join(fleet)) as own:
        await agent.report(own)
        await fleet.delete(LEASES, Key("leased", LEASE_NAME))

        async def is_back() -> bool:
            return not await is_gone(fleet, LEASES, LEASE_NAME, "leased")

        await until(is_back, "the Lease is back")
        assert await is_said(fleet, "leased", AVAILABLE, "True")


async def test_nobody_backdates_a_taint(fleet: Client, bootstrap: Connection):
    """Somebody who may change clusters, but is not the hub."""
    agent = Agent(bootstrap, "dated")
    dated = [{"key": "k", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"}]

    with pytest.raises((Forbidden, Invalid), match="leave out timeAdded"):
        await agent.introduce(taints=dated)


async def test_built_in_sets_come_back_and_count_their_clusters(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    async with hubs.running(fleet_connection):
        await Agent(bootstrap, "counted").introduce()

        async def says(resource: Resource, name: str, type_: str, namespace: str = "") -> str:
            try:
                found = await fleet.get(resource, name, namespace)
            except NotFound:
                return ""
            said: list[Object] = found.get("status", {}).get("conditions") or []
            return next((each["status"] for each in said if each["type"] == type_), "")

        async def has_clusters() -> bool:
            return {
                await says(CLUSTER_SETS, name, "ClusterSetEmpty") for name in ("default", "global")
            } == {"False"}

        await until(has_clusters, "both sets have clusters")
        await fleet.delete(CLUSTER_SETS, Key("", "default"))
        await until(has_clusters, "the set is back")

        binding = {
            "apiVersion": BINDINGS.api_version,
            "kind": BINDINGS.kind,
            "metadata": {"name": "mine"},
            "spec": {"clusterSet": "mine"},
        }
        await fleet.create(BINDINGS, binding, "default")

        async def is_bound(status: str) -> bool:
            return await says(BINDINGS, "mine", BOUND, "default") == status

        await until(lambda: is_bound("False"), "not bound")
        made = {"apiVersion": CLUSTER_SETS.api_version, "kind": CLUSTER_SETS.kind}
        await fleet.create(CLUSTER_SETS, {**made, "metadata": {"name": "mine"}})
        await until(lambda: is_bound("True"), "bound")


def work(name: str, priority: str) -> Object:
    """A work that an agent must clean up."""
    return works.kept(works.work(name, annotations={CLEANUP_PRIORITY: priority}))


async def test_works_leave_in_the_order_of_their_priority(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """Add-ons before them, each group only when the one before is gone; the rights go last."""
    agent = Agent(bootstrap, "leaves")
    order: list[str] = []
    async with hubs.running(fleet_connection), Client(await agent.join(fleet)) as own:
        await agent.report(own)
        for name, priority in (("last", "100"), ("first", "odd"), ("middle", "10")):
            await fleet.create(WORKS, work(name, priority), "leaves")
        meta = {"name": "add-on", "finalizers": ["example.com/test"]}
        add_on: Object = {"apiVersion": ADDONS.api_version, "kind": ADDONS.kind, "metadata": meta}
        await fleet.create(ADDONS, {**add_on, "spec": {}}, "leaves")
        await fleet.delete(CLUSTERS, Key("", "leaves"))

        async def clean_up() -> bool:
            """What agents do."""
            if await is_gone(fleet, CLUSTERS, "leaves"):
                return True
            for resource, client in ((ADDONS, fleet), (WORKS, own)):
                for each in (await fleet.list(resource, "leaves")).items:
                    if each["metadata"].get("deletionTimestamp"):
                        key = Key.of(each)
                        order.append(key.name)
                        await client.patch(resource, key, {"metadata": {"finalizers": None}})
            return False

        await until(clean_up, "the cluster is gone")

    assert order == ["add-on", "first", "middle", "last"]
    role = "open-cluster-management:managedcluster:leaves"
    assert await is_gone(fleet, CLUSTER_ROLES, role)
    assert await is_gone(fleet, LEASES, LEASE_NAME, "leaves")


async def test_a_cluster_that_is_gone_for_good_is_let_go_when_the_administrator_says_so(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """Not before, and an Event names what is orphaned."""
    agent = Agent(bootstrap, "dead")
    async with hubs.running(fleet_connection):
        await agent.join(fleet)
        await fleet.create(WORKS, work("orphan", "0"), "dead")
        await fleet.delete(CLUSTERS, Key("", "dead"))
        await until(lambda: is_said(fleet, "dead", "Deleting", "False"), "it waits")
        assert FORCE_DETACH in (await condition(fleet, "dead", "Deleting"))["message"]

        forced = {"metadata": {"annotations": {FORCE_DETACH: "0s"}}}
        await fleet.patch(CLUSTERS, Key("", "dead"), forced)
        await until(lambda: is_gone(fleet, CLUSTERS, "dead"), "it is gone")

        async def is_told() -> bool:
            found = await fleet.list(EVENTS, "dead")
            return any(
                each["reason"] == "Orphaned" and "orphan" in each["message"] for each in found.items
            )

        await until(is_told, "the orphan is named")


async def test_the_hub_says_how_it_stands_and_heeds_its_features(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """With ResourceCleanup off, clusters leave without their works being removed for them."""
    manager = {
        "apiVersion": CLUSTER_MANAGERS.api_version,
        "kind": CLUSTER_MANAGERS.kind,
        "metadata": {"name": "cluster-manager"},
        "spec": {"registrationConfiguration": {"registrationDrivers": [{"authType": "grpc"}]}},
    }
    async with hubs.running(fleet_connection):
        await fleet.create(CLUSTER_MANAGERS, manager)

        async def says() -> dict[str, str]:
            found = await fleet.get(CLUSTER_MANAGERS, "cluster-manager")
            said: list[Object] = found.get("status", {}).get("conditions") or []
            return {each["type"]: each["status"] for each in said}

        async def is_degraded(status: str) -> bool:
            return (await says()).get("HubRegistrationDegraded") == status

        await until(lambda: is_degraded("True"), "degraded")
        drivers = {"spec": {"registrationConfiguration": {"registrationDrivers": None}}}
        await fleet.patch(CLUSTER_MANAGERS, Key("", "cluster-manager"), drivers)
        await until(lambda: is_degraded("False"), "well")
        assert (await says())["Applied"] == "True"

        async def has_finalizers(*wanted: str) -> bool:
            found = await fleet.get(CLUSTERS, "gated")
            return found["metadata"].get("finalizers") == list(wanted)

        async def switch(mode: str) -> None:
            gates = [{"feature": "ResourceCleanup", "mode": mode}]
            patch = {"spec": {"registrationConfiguration": {"featureGates": gates}}}
            await fleet.patch(CLUSTER_MANAGERS, Key("", "cluster-manager"), patch)

        await Agent(bootstrap, "gated").introduce()
        both = (API_FINALIZER, CLEANUP_FINALIZER)
        await until(lambda: has_finalizers(*both), "cleaned up")
        await switch("Disable")
        await until(lambda: has_finalizers(API_FINALIZER), "not cleaned up")
        await switch("Enable")
        await until(lambda: has_finalizers(*both), "cleaned up again")
