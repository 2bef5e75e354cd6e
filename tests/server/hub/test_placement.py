"""Placements on a real API server: decisions, conditions, repairs, and what others can read."""

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from knfleet.api.cluster.clusterset import BINDINGS, CLUSTER_SETS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.cluster.placement import (
    DECISIONS,
    GROUP_INDEX_LABEL,
    GROUP_NAME_LABEL,
    MISCONFIGURED,
    PLACEMENT_LABEL,
    PLACEMENTS,
    SATISFIED,
    SCHEDULING_DISABLED,
    SCORES,
)
from knfleet.api.core import NAMESPACES
from knfleet.api.inventory import DECISION_INDEX, DECISION_KEY, PUBLISHED_DECISIONS
from knfleet.api.meta import Key, Object
from knfleet.hub.manager import HubManager
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import NotFound
from testbed import hubs
from testbed.waiting import until
from tests.support.placements import (
    add_clusters,
    bind,
    clusters_in,
    condition,
    decided,
    history,
    objects_of,
    relabel,
    remove_clusters,
    says,
    thing,
)

SPACE = "apps"
NAMES = ("p-a", "p-b", "p-c")


@pytest.fixture
async def hub(fleet_connection: Connection) -> AsyncIterator[HubManager]:
    """A hub that runs."""
    async with hubs.running(fleet_connection) as running:
        yield running


@pytest.fixture
async def space(fleet: Client, hub: HubManager) -> AsyncIterator[Client]:
    """Three clusters in the set `default`, which is bound to a namespace."""
    await add_clusters(fleet, NAMES)
    await bind(fleet, SPACE, "default")
    yield fleet
    await fleet.delete_collection(PLACEMENTS, SPACE)
    await fleet.delete_collection(DECISIONS, SPACE)
    await fleet.delete_collection(PUBLISHED_DECISIONS, SPACE)
    await fleet.delete_collection(BINDINGS, SPACE)
    await remove_clusters(fleet, NAMES)


async def place(client: Client, name: str = "web", **spec: Any) -> Object:
    """Create a Placement."""
    return await client.create(PLACEMENTS, thing(PLACEMENTS, name, SPACE, spec=spec))


async def change(client: Client, name: str = "web", **spec: Any) -> None:
    """Change the spec of a Placement."""
    await client.patch(PLACEMENTS, Key(SPACE, name), {"spec": spec})


def by_labels(**labels: str) -> list[Object]:
    return [{"requiredClusterSelector": {"labelSelector": {"matchLabels": labels}}}]


def by_cel(*expressions: str) -> list[Object]:
    return [{"requiredClusterSelector": {"celSelector": {"celExpressions": list(expressions)}}}]


async def test_a_placement_gets_decisions_groups_and_conditions(space: Client):
    made = await place(space)

    await decided(space, SPACE, "web", *NAMES)

    (decision,) = await objects_of(space, SPACE, "web")
    assert decision["metadata"]["name"] == "web-decision-1"
    assert decision["metadata"]["labels"] == {
        PLACEMENT_LABEL: "web",
        GROUP_INDEX_LABEL: "0",
        GROUP_NAME_LABEL: "",
    }
    (owner,) = decision["metadata"]["ownerReferences"]
    assert owner["uid"] == made["metadata"]["uid"]
    assert owner["controller"] is True
    assert decision["status"]["decisions"][0] == {
        "clusterName": "p-a",
        "reason": "in a bound cluster set",
        "score": 200,
    }
    satisfied = await says(space, SPACE, "web", SATISFIED, "AllDecisionsScheduled")
    assert satisfied["message"] == "3 clusters selected."
    assert (await condition(space, SPACE, "web", MISCONFIGURED))["status"] == "False"
    status = (await space.get(PLACEMENTS, "web", SPACE))["status"]
    assert status["decisionGroups"] == [
        {
            "decisionGroupIndex": 0,
            "decisionGroupName": "",
            "decisions": ["web-decision-1"],
            "clusterCount": 3,
        }
    ]


async def test_decisions_follow_clusters_sets_and_bindings(space: Client):
    await place(space, predicates=by_labels(env="prod"))
    await decided(space, SPACE, "web")
    await says(space, SPACE, "web", SATISFIED, "NoManagedClusterMatched")

    await relabel(space, "p-b", env="prod")
    await decided(space, SPACE, "web", "p-b")
    await relabel(space, "p-b", env="test")
    await decided(space, SPACE, "web")

    await change(space, predicates=None)
    await decided(space, SPACE, "web", *NAMES)
    await space.delete(BINDINGS, Key(SPACE, "default"))
    await decided(space, SPACE, "web")
    await says(space, SPACE, "web", SATISFIED, "NoManagedClusterSetBindings")
    await bind(space, SPACE, "default")
    await decided(space, SPACE, "web", *NAMES)


async def test_a_set_that_is_deleted_takes_its_clusters_along(space: Client):
    await space.create(CLUSTER_SETS, thing(CLUSTER_SETS, "doomed", spec={}))
    await add_clusters(space, ["p-d"], "doomed")
    await bind(space, SPACE, "doomed")
    await place(space)
    await decided(space, SPACE, "web", *NAMES, "p-d")

    await space.delete(CLUSTER_SETS, Key("", "doomed"))

    await decided(space, SPACE, "web", *NAMES)
    await remove_clusters(space, ["p-d"])


async def test_a_misconfigured_placement_keeps_its_decisions_and_says_so(space: Client):
    await relabel(space, "p-a", env="prod")
    await place(space, predicates=by_cel("managedCluster.metadata.labels.env == 'prod'"))
    await decided(space, SPACE, "web", "p-a")

    await change(space, predicates=by_cel("managedCluster.metadata.labels.env = 'prod'"))

    said = await says(space, SPACE, "web", MISCONFIGURED, "Misconfigured")
    assert said["status"] == "True"
    assert "predicate 1: CEL expression" in said["message"]
    assert "Decisions stay as they are" in said["message"]
    await decided(space, SPACE, "web", "p-a")

    await change(space, predicates=by_cel("managedCluster.metadata.name == 'p-b'"))
    await decided(space, SPACE, "web", "p-b")
    await says(space, SPACE, "web", MISCONFIGURED, "Succeedconfigured")


async def test_a_new_misconfigured_placement_selects_nothing(space: Client):
    policy = {"configurations": [{"scoreCoordinate": {"builtIn": "Magic"}}]}
    await place(space, prioritizerPolicy=policy)

    said = await says(space, SPACE, "web", MISCONFIGURED, "Misconfigured")

    assert "'Magic' is not a prioritizer" in said["message"]
    await decided(space, SPACE, "web")


async def test_decisions_edited_by_hand_are_repaired(space: Client):
    await place(space)
    await decided(space, SPACE, "web", *NAMES)
    key = Key(SPACE, "web-decision-1")
    forged = {"clusterName": "not-ours", "reason": "by hand"}

    await space.patch(DECISIONS, key, {"status": {"decisions": [forged]}}, subresource="status")
    await decided(space, SPACE, "web", *NAMES)
    await space.delete(DECISIONS, key)
    await decided(space, SPACE, "web", *NAMES)
    await space.patch(DECISIONS, key, {"metadata": {"labels": {PLACEMENT_LABEL: None}}})
    await decided(space, SPACE, "web", *NAMES)
    other = thing(DECISIONS, "by-hand", SPACE)
    other["metadata"]["labels"] = {PLACEMENT_LABEL: "web"}
    await space.create(DECISIONS, other)
    with suppress(NotFound):
        await space.patch(
            DECISIONS,
            Key(SPACE, "by-hand"),
            {"status": {"decisions": [forged]}},
            subresource="status",
        )

    async def removed() -> bool:
        found = await objects_of(space, SPACE, "web")
        return [each["metadata"]["name"] for each in found] == ["web-decision-1"]

    await until(removed, "the object made by hand is gone")
    await decided(space, SPACE, "web", *NAMES)


async def test_unchanged_decisions_are_not_written(space: Client):
    await place(space, predicates=by_labels(env="prod"))
    await relabel(space, "p-a", env="prod")
    await decided(space, SPACE, "web", "p-a")
    before = await objects_of(space, SPACE, "web")
    placement = await space.get(PLACEMENTS, "web", SPACE)

    await relabel(space, "p-b", env="test", other="x")
    await place(space, "later", predicates=by_labels(env="test"))
    await decided(space, SPACE, "later", "p-b")

    assert await objects_of(space, SPACE, "web") == before
    after = await space.get(PLACEMENTS, "web", SPACE)
    assert after["metadata"]["resourceVersion"] == placement["metadata"]["resourceVersion"]


async def test_another_scheduler_may_decide(space: Client):
    manifest = thing(PLACEMENTS, "theirs", SPACE, spec={})
    manifest["metadata"]["annotations"] = {SCHEDULING_DISABLED: "true"}
    await space.create(PLACEMENTS, manifest)
    other = thing(DECISIONS, "theirs-decision-1", SPACE)
    other["metadata"]["labels"] = {PLACEMENT_LABEL: "theirs"}
    await space.create(DECISIONS, other)
    chosen = [{"clusterName": "p-c", "reason": "ours"}]
    await space.patch(
        DECISIONS,
        Key(SPACE, "theirs-decision-1"),
        {"status": {"decisions": chosen}},
        subresource="status",
    )

    await place(space)
    await decided(space, SPACE, "web", *NAMES)

    assert clusters_in(await objects_of(space, SPACE, "theirs")) == ["p-c"]
    assert "status" not in await space.get(PLACEMENTS, "theirs", SPACE)

    async def published() -> bool:
        found = (await space.list(PUBLISHED_DECISIONS, SPACE)).items
        return {
            each["metadata"]["name"]: [
                one["clusterProfileRef"]["name"] for one in each["decisions"]
            ]
            for each in found
        } == {"theirs-decision-1": ["p-c"], "web-decision-1": list(NAMES)}

    await until(published, "the decisions of both schedulers are published")


async def test_named_groups_have_objects_of_their_own(space: Client):
    await relabel(space, "p-c", canary="yes")
    strategy = {
        "decisionGroups": [
            {
                "groupName": "canary",
                "groupClusterSelector": {"labelSelector": {"matchLabels": {"canary": "yes"}}},
            }
        ]
    }
    await place(space, decisionStrategy={"groupStrategy": strategy})
    await decided(space, SPACE, "web", *NAMES)

    found = await objects_of(space, SPACE, "web")
    assert [
        (
            each["metadata"]["labels"][GROUP_INDEX_LABEL],
            each["metadata"]["labels"][GROUP_NAME_LABEL],
            clusters_in([each]),
        )
        for each in found
    ] == [("0", "canary", ["p-c"]), ("1", "", ["p-a", "p-b"])]

    await relabel(space, "p-c", canary=None)

    async def regrouped() -> bool:
        objects = await objects_of(space, SPACE, "web")
        return [each["metadata"]["labels"][GROUP_NAME_LABEL] for each in objects] == [""]

    await until(regrouped, "there is one group")
    await decided(space, SPACE, "web", *NAMES)


async def test_scores_of_add_ons_decide(space: Client):
    with suppress(Exception):
        for name in NAMES:
            await space.create(NAMESPACES, thing(NAMESPACES, name))
    coordinate = {"type": "AddOn", "addOn": {"resourceName": "usage", "scoreName": "cpu"}}
    policy = {"mode": "Exact", "configurations": [{"scoreCoordinate": coordinate}]}
    await place(space, numberOfClusters=1, prioritizerPolicy=policy)
    await decided(space, SPACE, "web", "p-a")

    await space.create(SCORES, thing(SCORES, "usage", "p-b"))
    scores = {"scores": [{"name": "cpu", "value": 80}]}
    await space.patch(SCORES, Key("p-b", "usage"), {"status": scores}, subresource="status")

    await decided(space, SPACE, "web", "p-b")
    (decision,) = (await objects_of(space, SPACE, "web"))[0]["status"]["decisions"]
    assert decision["score"] == 80


async def test_a_toleration_ends_when_its_time_is_over(fleet: Client, fleet_connection: Connection):
    """The hub's clock is an hour ahead the second time; nothing waits."""
    taint = {"key": "maintenance", "effect": "NoSelect"}
    await add_clusters(fleet, ["p-t"])
    await bind(fleet, "tolerant", "default")
    toleration: Object = {"key": "maintenance", "operator": "Exists", "tolerationSeconds": 1800}
    async with hubs.running(fleet_connection):
        spec: Object = {"tolerations": [toleration]}
        await fleet.create(PLACEMENTS, thing(PLACEMENTS, "web", "tolerant", spec=spec))
        await decided(fleet, "tolerant", "web", "p-t")
        await fleet.patch(CLUSTERS, Key("", "p-t"), {"spec": {"taints": [taint]}})

        async def recorded() -> bool:
            found = await fleet.get(CLUSTERS, "p-t")
            return bool(found["spec"]["taints"][0].get("timeAdded"))

        await until(recorded, "the hub records when the taint was added")
        await decided(fleet, "tolerant", "web", "p-t")
    async with hubs.running(fleet_connection, ahead=timedelta(hours=1)):
        await decided(fleet, "tolerant", "web")
        await fleet.delete(PLACEMENTS, Key("tolerant", "web"))
        await remove_clusters(fleet, ["p-t"])


async def test_no_cluster_is_ever_in_no_decision_object(fleet: Client, hub: HubManager):
    """A watcher sees every state of 250 clusters that shift between objects, and back."""
    many = [f"m{number:03}" for number in range(250)]
    await add_clusters(fleet, many, "many", available=False)
    await fleet.create(CLUSTER_SETS, thing(CLUSTER_SETS, "many", spec={}))
    await bind(fleet, "crowd", "many")
    # Clusters are tainted until they are available.
    everything: Object = {"tolerations": [{"operator": "Exists"}]}
    await fleet.create(PLACEMENTS, thing(PLACEMENTS, "all", "crowd", spec=everything))
    await decided(fleet, "crowd", "all", *many)
    await until(lambda: is_published(fleet, 250), "all clusters are published")
    async with (
        history(fleet, "crowd", f"{PLACEMENT_LABEL}=all") as seen,
        history(
            fleet,
            "crowd",
            f"{DECISION_KEY}=all",
            PUBLISHED_DECISIONS,
            lambda each: [one["clusterProfileRef"]["name"] for one in each["decisions"]],
        ) as published,
    ):
        first = ["a-first", "a-second"]
        await add_clusters(fleet, first, "many", available=False)
        await decided(fleet, "crowd", "all", *many, *first)
        group = {"clustersPerDecisionGroup": 60}
        spec = {"decisionStrategy": {"groupStrategy": group}}
        await fleet.patch(PLACEMENTS, Key("crowd", "all"), {"spec": spec})

        async def grouped() -> bool:
            placement = await fleet.get(PLACEMENTS, "all", "crowd")
            groups = placement["status"]["decisionGroups"]
            return [each["clusterCount"] for each in groups] == [60, 60, 60, 60, 12]

        await until(grouped, "there are five groups")
        await decided(fleet, "crowd", "all", *many, *first)
        await fleet.patch(PLACEMENTS, Key("crowd", "all"), {"spec": {"decisionStrategy": None}})
        await until(lambda: ungrouped(fleet), "there is one group")
        await remove_clusters(fleet, first)
        await decided(fleet, "crowd", "all", *many)

        async def all_published() -> bool:
            return published.seen[-1] == frozenset(many)

        await until(all_published, "the published decisions follow")
    for each, states in ((seen, 10), (published, 3)):
        assert len(each.seen) >= states
        assert [sorted(frozenset(many) - state) for state in each.seen] == [[]] * len(each.seen)
        assert each.largest <= 100
    indexes = [
        each["metadata"]["labels"][DECISION_INDEX]
        for each in (await fleet.list(PUBLISHED_DECISIONS, "crowd")).items
    ]
    assert sorted(indexes) == ["0", "1", "2"]
    await fleet.delete(PLACEMENTS, Key("crowd", "all"))


async def is_published(client: Client, count: int) -> bool:
    """Whether so many clusters are published."""
    found = (await client.list(PUBLISHED_DECISIONS, "crowd")).items
    return sum(len(each["decisions"]) for each in found) == count


async def ungrouped(client: Client) -> bool:
    """Whether the Placement has one group."""
    placement = await client.get(PLACEMENTS, "all", "crowd")
    return [each["clusterCount"] for each in placement["status"]["decisionGroups"]] == [252]
