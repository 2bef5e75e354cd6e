"""ManifestWorkReplicaSets on a real API server; agents are played by the tests."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from knfleet.api.cluster.clusterset import BINDINGS
from knfleet.api.cluster.placement import DECISIONS, PLACEMENTS
from knfleet.api.core import NAMESPACES
from knfleet.api.inventory import PUBLISHED_DECISIONS
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.api.work.manifestwork import WORKS
from knfleet.api.work.replicaset import (
    REPLICA_SET_FINALIZER,
    REPLICA_SET_LABEL,
    REPLICA_SETS,
    ROLLOUT_PAUSED,
    TEMPLATE_VARIABLES,
)
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.context import wall
from knfleet.hub.manager import HubManager
from knfleet.hub.work.replicasets.replica_template import work_name
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import AlreadyExists, NotFound
from testbed import hubs
from testbed.waiting import until
from tests.support.placements import add_clusters, bind, decided, relabel, remove_clusters, thing

SPACE = "rollouts"
NAMES = ("r-a", "r-b", "r-c")
NAME = work_name(Key(SPACE, "web"))
"""The name of the works of a replica set `web`."""


@pytest.fixture
async def hub(fleet_connection: Connection) -> AsyncIterator[HubManager]:
    """A hub that runs."""
    async with hubs.running(fleet_connection) as running:
        yield running


@pytest.fixture
async def space(fleet: Client, hub: HubManager) -> AsyncIterator[Client]:
    """Three clusters that a Placement `all` selects, with namespaces for works."""
    for name in NAMES:
        with suppress(AlreadyExists):
            await fleet.create(NAMESPACES, thing(NAMESPACES, name))
    await add_clusters(fleet, NAMES)
    await bind(fleet, SPACE, "default")
    await fleet.create(PLACEMENTS, thing(PLACEMENTS, "all", SPACE, spec={}))
    await decided(fleet, SPACE, "all", *NAMES)
    yield fleet
    await fleet.delete_collection(REPLICA_SETS, SPACE)

    async def gone() -> bool:
        return not (await fleet.list(REPLICA_SETS, SPACE)).items

    await until(gone, "the replica sets are gone")
    for resource in (PLACEMENTS, DECISIONS, PUBLISHED_DECISIONS, BINDINGS):
        await fleet.delete_collection(resource, SPACE)
    await remove_clusters(fleet, NAMES)


def config_map(**data: str) -> Object:
    meta = {"name": "web", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


async def replicate(
    client: Client,
    *manifests: Object,
    annotations: dict[str, str] | None = None,
    strategy: Object | None = None,
    **spec: Any,
) -> Object:
    """Create a replica set `web` for the Placement `all`."""
    reference: Object = {"name": "all"}
    if strategy is not None:
        reference["rolloutStrategy"] = strategy
    made = thing(
        REPLICA_SETS,
        "web",
        SPACE,
        spec={
            "placementRefs": [reference],
            "manifestWorkTemplate": {"workload": {"manifests": list(manifests)}},
            **spec,
        },
    )
    made["metadata"]["annotations"] = annotations or {}
    made["metadata"]["labels"] = {"team": "blue"}
    return await client.create(REPLICA_SETS, made)


async def found(client: Client) -> dict[str, Object]:
    """The works of the replica set, by cluster."""
    listing = await client.list(WORKS, labels=f"{REPLICA_SET_LABEL}={SPACE}.web")
    return {each["metadata"]["namespace"]: each for each in listing.items}


async def are_there(client: Client, *clusters: str) -> dict[str, Object]:
    """Wait until exactly these clusters have a work."""

    async def are() -> bool:
        return sorted(await found(client)) == sorted(clusters)

    await until(are, f"works are in {clusters}")
    return await found(client)


async def report(client: Client, cluster: str, since: str = "", **conditions: str) -> None:
    """Report conditions of a work, as an agent does."""
    key = Key(cluster, NAME)
    work = await client.get(WORKS, key.name, key.namespace)
    said = [
        {
            "type": type_,
            "status": status,
            "reason": "Reported",
            "message": "",
            "observedGeneration": work["metadata"]["generation"],
            "lastTransitionTime": since or timestamp(wall()),
        }
        for type_, status in conditions.items()
    ]
    await client.patch(WORKS, key, {"status": {"conditions": said}}, subresource="status")


async def says(client: Client, type_: str, status: str, reason: str) -> str:
    """Wait until the replica set has a condition; its message."""
    message = ""

    async def does() -> bool:
        nonlocal message
        replica_set = await client.get(REPLICA_SETS, "web", SPACE)
        for each in items(replica_set, "status", "conditions"):
            if (each["type"], each["status"], each["reason"]) == (type_, status, reason):
                message = each["message"]
                return True
        return False

    await until(does, f"the replica set says {type_} {status} {reason}")
    return message


async def test_every_selected_cluster_gets_a_work_and_the_summary_counts_them(space: Client):
    await replicate(space, config_map(colour="blue"))

    works = await are_there(space, *NAMES)

    work = works["r-a"]
    assert work["metadata"]["name"] == NAME
    assert work["metadata"]["labels"]["team"] == "blue"
    assert work["spec"]["workload"]["manifests"] == [config_map(colour="blue")]
    replica_set = await space.get(REPLICA_SETS, "web", SPACE)
    assert replica_set["metadata"]["finalizers"] == [REPLICA_SET_FINALIZER]
    await says(space, "PlacementVerified", "True", "AsExpected")
    await says(space, "ManifestworkApplied", "False", "Processing")
    for name in NAMES:
        await report(space, name, Applied="True", Available="True")
    await says(space, "PlacementRolledOut", "True", "Complete")
    await says(space, "ManifestworkApplied", "True", "AsExpected")
    status = (await space.get(REPLICA_SETS, "web", SPACE))["status"]
    counts = {
        "total": 3,
        "desiredTotal": 3,
        "updated": 3,
        "applied": 3,
        "available": 3,
        "progressing": 0,
        "degraded": 0,
    }
    assert status["summary"] == counts
    assert status["placementSummary"] == [
        {
            "name": "all",
            "availableDecisionGroups": "1 (3 / 3 clusters applied)",
            "summary": counts,
        }
    ]


async def test_a_progressive_rollout_advances_by_itself_and_stops_at_failures(space: Client):
    """Without a single rule in the template."""
    strategy = {"type": "Progressive", "progressive": {"maxConcurrency": 1}}
    await replicate(space, config_map(colour="blue"), strategy=strategy)

    await are_there(space, "r-a")
    await report(space, "r-a", Applied="True", Available="True")
    await are_there(space, "r-a", "r-b")
    await report(space, "r-b", Applied="False")
    message = await says(space, "ManifestworkApplied", "False", "NotAsExpected")
    assert message == "Works of 1 clusters failed (r-b)."
    message = await says(space, "PlacementRolledOut", "False", "Progressing")
    assert "1 waiting: r-b failed or timed out, where no failure is tolerated" in message
    assert sorted(await found(space)) == ["r-a", "r-b"]
    await report(space, "r-b", Applied="True", Available="True")
    await are_there(space, *NAMES)


@pytest.mark.parametrize(
    "since",
    [
        "0001-01-01T00:00:00+14:00",
        pytest.param("9999-12-31T23:59:59Z", marks=pytest.mark.full),
        pytest.param("2039-01-01T00:00:00Z", marks=pytest.mark.full),
    ],
)
async def test_a_time_that_an_agent_invents_stops_no_rollout(space: Client, since: str):
    """The work of one cluster must not decide on those of others."""
    progressive = {"maxConcurrency": 1, "minSuccessTime": "1s"}
    strategy = {"type": "Progressive", "progressive": progressive}
    await replicate(space, config_map(colour="blue"), strategy=strategy)

    await are_there(space, "r-a")
    await report(space, "r-a", since, Applied="True", Available="True")
    await are_there(space, "r-a", "r-b")


async def test_a_changed_template_goes_the_same_way_and_can_be_paused(space: Client):
    strategy = {"type": "Progressive", "progressive": {"maxConcurrency": 1}}
    await replicate(space, config_map(colour="blue"), strategy=strategy)
    for number, name in enumerate(NAMES, start=1):
        await are_there(space, *NAMES[:number])
        await report(space, name, Applied="True", Available="True")
    await says(space, "PlacementRolledOut", "True", "Complete")
    paused = {"metadata": {"annotations": {ROLLOUT_PAUSED: "true"}}}
    await space.patch(REPLICA_SETS, Key(SPACE, "web"), paused)
    template = {"workload": {"manifests": [config_map(colour="green")]}}
    await space.patch(REPLICA_SETS, Key(SPACE, "web"), {"spec": {"manifestWorkTemplate": template}})

    async def says_paused() -> bool:
        return "the rollout is paused" in await says(
            space, "PlacementRolledOut", "False", "Progressing"
        )

    await until(says_paused, "the rollout is paused")
    colours = {name: colour(work) for name, work in (await found(space)).items()}
    assert colours == dict.fromkeys(NAMES, "blue")
    resumed = {"metadata": {"annotations": {ROLLOUT_PAUSED: None}}}
    await space.patch(REPLICA_SETS, Key(SPACE, "web"), resumed)
    for number, name in enumerate(NAMES, start=1):

        async def changed(wanted: int = number) -> bool:
            works = await found(space)
            return [colour(works[each]) for each in NAMES] == (
                ["green"] * wanted + ["blue"] * (3 - wanted)
            )

        await until(changed, f"{number} clusters are green")
        await report(space, name, Applied="True", Available="True")
    await says(space, "PlacementRolledOut", "True", "Complete")


def colour(work: Object) -> str:
    """What the ConfigMap of a work says."""
    return work["spec"]["workload"]["manifests"][0]["data"].get("colour", "")


async def test_a_deployment_is_waited_for_by_a_rule_of_ours(space: Client):
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2},
    }
    strategy = {"type": "Progressive", "progressive": {"maxConcurrency": 1}}
    await replicate(space, deployment, strategy=strategy)
    works = await are_there(space, "r-a")
    (config,) = works["r-a"]["spec"]["manifestConfigs"]
    assert config["conditionRules"][0]["condition"] == "Progressing"

    await report(space, "r-a", Applied="True", Available="True", Progressing="True")
    await says(space, "ManifestworkApplied", "False", "Processing")
    assert sorted(await found(space)) == ["r-a"]
    await report(space, "r-a", Applied="True", Available="True", Progressing="False")

    await are_there(space, "r-a", "r-b")


async def test_clusters_that_are_no_longer_selected_lose_their_work(space: Client):
    await replicate(space, config_map())
    await are_there(space, *NAMES)
    labels = {"requiredClusterSelector": {"labelSelector": {"matchLabels": {"keep": "yes"}}}}
    await relabel(space, "r-a", keep="yes")

    await space.patch(PLACEMENTS, Key(SPACE, "all"), {"spec": {"predicates": [labels]}})

    await are_there(space, "r-a")


async def test_a_work_that_was_changed_by_hand_is_written_again(space: Client):
    await replicate(space, config_map(colour="blue"))
    await are_there(space, *NAMES)
    edited = {"spec": {"workload": {"manifests": [config_map(colour="red")]}}}

    await space.patch(WORKS, Key("r-b", NAME), edited)

    async def repaired() -> bool:
        return colour((await found(space))["r-b"]) == "blue"

    await until(repaired, "the work is as the template says")


async def test_a_placement_that_is_empty_or_gone_for_a_moment_deletes_nothing(space: Client):
    await replicate(space, config_map())
    works = await are_there(space, *NAMES)
    uids = {name: each["metadata"]["uid"] for name, each in works.items()}

    await space.delete(BINDINGS, Key(SPACE, "default"))
    await decided(space, SPACE, "all")
    message = await says(space, "PlacementVerified", "False", "PlacementDecisionEmpty")
    assert "3 works are deleted if that stays so" in message
    await bind(space, SPACE, "default")
    await says(space, "PlacementVerified", "True", "AsExpected")
    await space.delete(PLACEMENTS, Key(SPACE, "all"))
    await says(space, "PlacementVerified", "False", "PlacementDecisionNotFound")
    await space.create(PLACEMENTS, thing(PLACEMENTS, "all", SPACE, spec={}))
    await says(space, "PlacementVerified", "True", "AsExpected")

    after = await found(space)
    assert {name: each["metadata"]["uid"] for name, each in after.items()} == uids


async def test_variables_are_replaced_for_each_cluster(space: Client):
    await relabel(space, "r-a", region="eu")
    await relabel(space, "r-b", region="us")
    text = "{{cluster.name}} in {{cluster.labels.region}}"

    await replicate(space, config_map(text=text), annotations={TEMPLATE_VARIABLES: "true"})

    works = await are_there(space, "r-a", "r-b")
    message = await says(space, "ManifestworkApplied", "False", "NotAsExpected")
    assert message.endswith("(r-c); r-c: cluster r-c has no label region")
    texts = {
        name: each["spec"]["workload"]["manifests"][0]["data"]["text"]
        for name, each in works.items()
    }
    assert texts == {"r-a": "r-a in eu", "r-b": "r-b in us"}
    await relabel(space, "r-c", region="ap")
    await are_there(space, *NAMES)


async def test_a_work_of_another_client_is_left_alone(space: Client):
    """The name of works follows from that of the replica set, so anyone can have one of it."""
    workload = {"workload": {"manifests": [config_map(colour="theirs")]}}
    await space.create(WORKS, thing(WORKS, NAME, "r-b", spec=workload))

    await replicate(space, config_map(colour="ours"))

    await are_there(space, "r-a", "r-c")
    message = await says(space, "ManifestworkApplied", "False", "NotAsExpected")
    assert f"ManifestWork r-b/{NAME} exists and is not of this replica set" in message
    theirs = await space.get(WORKS, NAME, "r-b")
    assert theirs["spec"]["workload"]["manifests"][0]["data"] == {"colour": "theirs"}
    await space.delete(WORKS, Key("r-b", NAME))


async def test_a_cluster_without_a_namespace_holds_nobody_up(space: Client):
    await add_clusters(space, ["r-d"])
    await decided(space, SPACE, "all", *NAMES, "r-d")

    await replicate(space, config_map())

    await are_there(space, *NAMES)
    message = await says(space, "ManifestworkApplied", "False", "NotAsExpected")
    assert "(r-d); r-d: " in message
    assert 'namespaces "r-d" not found' in message
    await remove_clusters(space, ["r-d"])


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_works_are_deleted_with_their_replica_set(space: Client, policy: str):
    """Works wait for their agents; with Foreground, the replica set waits for the works."""
    await replicate(space, config_map(), cascadeDeletionPolicy=policy)
    await are_there(space, *NAMES)
    held = {"metadata": {"finalizers": ["example.com/agent"]}}
    await space.patch(WORKS, Key("r-a", NAME), held)

    await space.delete(REPLICA_SETS, Key(SPACE, "web"))

    await are_there(space, "r-a")
    if policy == "Foreground":
        replica_set = await space.get(REPLICA_SETS, "web", SPACE)
        assert part(replica_set, "metadata")["deletionTimestamp"]
    await space.patch(WORKS, Key("r-a", NAME), {"metadata": {"finalizers": None}})

    async def gone() -> bool:
        try:
            await space.get(REPLICA_SETS, "web", SPACE)
        except NotFound:
            return not await found(space)
        return False

    await until(gone, "replica set and works are gone")


async def test_works_of_another_controller_are_taken_over(space: Client):
    """Open Cluster Management gives works other names, and the same label."""
    for name in ("web-xk2v9", "web-zz2v9"):
        work = thing(WORKS, name, "r-a", spec={"workload": {"manifests": [config_map()]}})
        work["metadata"]["labels"] = {REPLICA_SET_LABEL: f"{SPACE}.web"}
        await space.create(WORKS, work)

    await replicate(space, config_map(colour="blue"))

    await are_there(space, *NAMES)

    async def one_is_left() -> bool:
        works = (await space.list(WORKS, "r-a")).items
        return [(each["metadata"]["name"], colour(each)) for each in works] == [
            ("web-xk2v9", "blue")
        ]

    await until(one_is_left, "one of the two is taken over, and the other one is deleted")
