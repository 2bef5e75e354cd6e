"""How works end: by their time to live, and with their cluster."""

from datetime import UTC, datetime, timedelta

import msgspec

from knfleet.api.cluster.managedcluster import CLEANUP_PRIORITY, CLUSTERS, FORCE_DETACH
from knfleet.api.core import CLUSTER_ROLES, EVENTS
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.api.operator import CLUSTER_MANAGERS, COMPLETED_WORKS_GATE, HUB_ROLE
from knfleet.api.work.manifestwork import COMPLETE, DELETING, WORKS
from knfleet.hub.work.time_to_live import REPLICA_SET_LABEL
from knfleet.install.deployments import HubInstall, cluster_manager
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from testbed import hubs
from testbed.waiting import until
from tests.support.hub_works import config_map, kept, work
from tests.support.registration import Agent, condition


async def names(client: Client, namespace: str) -> list[str]:
    """The works of a namespace."""
    return sorted(each["metadata"]["name"] for each in (await client.list(WORKS, namespace)).items)


async def report(client: Client, key: Key, type_: str, since: datetime, **more: str) -> None:
    """Write a condition of a work, as agents do."""
    said = {
        "type": type_,
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": timestamp(since),
        **more,
    }
    await client.patch(WORKS, key, {"status": {"conditions": [said]}}, subresource="status")


async def told(client: Client, namespace: str, reason: str) -> str:
    """What the Events of a reason say."""
    found = (await client.list(EVENTS, namespace)).items
    return "\n".join(each["message"] for each in found if each["reason"] == reason)


async def test_completed_works_go_when_their_time_is_over(
    fleet: Client, fleet_connection: Connection
):
    """At that moment; those of a replica set, and those that are not complete, stay."""
    now = datetime.now(UTC)
    option = {"ttlSecondsAfterFinished": 3600}
    for name in ("done", "open", "replica", "later"):
        made = work(name, deleteOption=option)
        if name == "replica":
            made["metadata"]["labels"] = {REPLICA_SET_LABEL: "default.set"}
        await fleet.create(WORKS, made, "default")
    for name in ("done", "replica"):
        await report(fleet, Key("default", name), COMPLETE, now - timedelta(seconds=3599))
    await report(fleet, Key("default", "later"), COMPLETE, now)
    async with hubs.running(fleet_connection):

        async def is_gone() -> bool:
            return await names(fleet, "default") == ["later", "open", "replica"]

        await until(is_gone, "the completed work is gone")

        async def is_told() -> bool:
            return "deleted 3600 s after" in await told(fleet, "default", "CompletedWorkDeleted")

        await until(is_told, "an Event says why")
        await report(fleet, Key("default", "open"), COMPLETE, now - timedelta(hours=2))

        async def is_next_gone() -> bool:
            return await names(fleet, "default") == ["later", "replica"]

        await until(is_next_gone, "the other one is gone as soon as it is complete")


async def test_a_work_that_is_nested_too_deep_keeps_no_other_from_being_seen(
    fleet: Client, fleet_connection: Connection
):
    """API servers store ten thousand levels; anybody who may write works can send them."""
    await fleet.create(WORKS, work("first", deleteOption={"ttlSecondsAfterFinished": 0}), "default")
    text = msgspec.json.encode(work("deep", config_map("deep", data="HERE")))
    deep = text.replace(b'"data":"HERE"', b'"data":' + b'{"a":' * 3000 + b"1" + b"}" * 3000)
    path = f"/apis/{WORKS.api_version}/namespaces/default/manifestworks"
    json = {"Content-Type": "application/json"}

    await fleet.raw("POST", path, body=deep, headers=json)
    async with hubs.running(fleet_connection):
        await report(fleet, Key("default", "first"), COMPLETE, datetime.now(UTC))
        await until(lambda: work_is_gone(fleet, "first"), "works that were there before are seen")

        await fleet.delete(WORKS, Key("default", "deep"))
        await fleet.create(
            WORKS, work("second", deleteOption={"ttlSecondsAfterFinished": 0}), "default"
        )
        await fleet.raw("POST", path, body=deep, headers=json)
        await report(fleet, Key("default", "second"), COMPLETE, datetime.now(UTC))
        await until(lambda: work_is_gone(fleet, "second"), "so are those that come later")
    await fleet.delete(WORKS, Key("default", "deep"))


async def work_is_gone(fleet: Client, name: str) -> bool:
    """Whether a work is gone."""
    return name not in await names(fleet, "default")


async def test_the_feature_that_deletes_completed_works_can_be_switched_off_and_on(
    fleet: Client, fleet_connection: Connection
):
    manager = cluster_manager(HubInstall(image=""))
    gate = {"feature": COMPLETED_WORKS_GATE, "mode": "Disable"}
    manager["spec"]["workConfiguration"] = {"featureGates": [gate]}
    await fleet.apply(CLUSTER_MANAGERS, manager)
    made = work("kept", deleteOption={"ttlSecondsAfterFinished": 0})
    await fleet.create(WORKS, made, "kube-system")
    async with hubs.running(fleet_connection) as running:
        await report(fleet, Key("kube-system", "kept"), COMPLETE, datetime.now(UTC))

        def is_reconciled() -> bool:
            found = running.informers.works.get(Key("kube-system", "kept"))
            queues = [each.queue for each in running.controllers if each.name == "manifestwork"]
            is_idle = all(not each.running and not each.depth for each in queues)
            return found is not None and "status" in found and is_idle

        await until(is_reconciled, "the hub has looked at it")
        assert await names(fleet, "kube-system") == ["kept"]

        manager["spec"]["workConfiguration"] = {"featureGates": [{**gate, "mode": "Enable"}]}
        await fleet.apply(CLUSTER_MANAGERS, manager)

        async def is_gone() -> bool:
            return await names(fleet, "kube-system") == []

        await until(is_gone, "it is gone")


async def message(fleet: Client, cluster: str) -> str:
    """What the condition of a cluster's deletion says."""
    found = await condition(fleet, cluster, DELETING)
    return f"{found.get('reason')}: {found.get('message')}"


async def is_gone(fleet: Client, cluster: str) -> bool:
    """Whether there is no such cluster."""
    return not (await fleet.list(CLUSTERS, fields=f"metadata.name={cluster}")).items


async def test_a_cluster_that_leaves_names_its_works_and_what_holds_them(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """Each pass is because a work changed: the message follows what the agent reports."""
    agent = Agent(bootstrap, "named")
    async with hubs.running(fleet_connection), Client(await agent.join(fleet)) as own:
        await agent.report(own)
        for number in range(7):
            await fleet.create(WORKS, kept(work(f"w{number}")), "named")
        last = work("zlast", annotations={CLEANUP_PRIORITY: "50"})
        await fleet.create(WORKS, kept(last), "named")
        foreign = {"op": "add", "path": "/metadata/finalizers/-", "value": "a.b/c"}
        await fleet.patch(CLUSTERS, Key("", "named"), [foreign])
        await fleet.delete(CLUSTERS, Key("", "named"))

        async def says(*words: str) -> bool:
            found = await message(fleet, "named")
            return all(each in found for each in words)

        first = (
            "ResourceRemaining: 8 manifestworks (w0, w1, w2, w3, w4 and 3 more) left in"
            " namespace named, of which 7 are being deleted: w0, w1, w2, w3, w4 and 2 more."
        )
        await until(lambda: says(first), "the works are named")
        stuck = "ConfigMap default/w3 waits for its finalizer example.com/x"
        await report(own, Key("named", "w3"), DELETING, datetime.now(UTC), message=stuck)
        await until(lambda: says(f"w3: {stuck}"), "the obstacle is named")
        for number in range(7):
            await own.patch(WORKS, Key("named", f"w{number}"), {"metadata": {"finalizers": None}})
        await until(lambda: says("1 manifestworks (zlast)", "of which 1 are"), "the last is next")
        assert "--force" not in await message(fleet, "named")
        await own.patch(WORKS, Key("named", "zlast"), {"metadata": {"finalizers": None}})
        await until(lambda: says("NoResource", "finalizers of others: a.b/c"), "nothing is left")
        await fleet.patch(CLUSTERS, Key("", "named"), {"metadata": {"finalizers": None}})
        await until(lambda: is_gone(fleet, "named"), "the cluster is gone")


async def test_all_orphans_of_a_cluster_that_is_given_up_are_named(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """When it has been unreachable for as long as the administrator said, not sooner."""
    async with hubs.running(fleet_connection):
        await Agent(bootstrap, "lost").join(fleet)
        for number in range(12):
            await fleet.create(WORKS, kept(work(f"orphan-{number}")), "lost")
        forced = {"metadata": {"annotations": {FORCE_DETACH: "5s"}}}
        await fleet.patch(CLUSTERS, Key("", "lost"), forced)
        await fleet.delete(CLUSTERS, Key("", "lost"))
        await until(lambda: is_gone(fleet, "lost"), "the cluster is gone")
        assert await names(fleet, "lost") == []

        async def is_told() -> bool:
            said = await told(fleet, "lost", "Orphaned")
            return "12 manifestworks" in said and all(
                f"orphan-{number}" in said for number in range(12)
            )

        await until(is_told, "all orphans are named")


async def test_a_deletion_that_fails_says_why_and_goes_on(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    role = await fleet.get(CLUSTER_ROLES, HUB_ROLE)
    limited: list[Object] = [
        {**each, "verbs": [verb for verb in each["verbs"] if verb != "delete"]}
        if WORKS.plural in each["resources"]
        else each
        for each in role["rules"]
    ]
    async with hubs.running(fleet_connection):
        await Agent(bootstrap, "fails").join(fleet)
        await fleet.create(WORKS, work("w"), "fails")
        await fleet.patch(CLUSTER_ROLES, Key("", HUB_ROLE), {"rules": limited})
        try:
            await fleet.delete(CLUSTERS, Key("", "fails"))

            async def is_told() -> bool:
                said = await message(fleet, "fails")
                return said.startswith("DeletingError") and "cannot delete" in said

            await until(is_told, "the condition says what is missing")
        finally:
            await fleet.patch(CLUSTER_ROLES, Key("", HUB_ROLE), {"rules": role["rules"]})
        await until(lambda: is_gone(fleet, "fails"), "the cluster is gone")
