"""The CRDs of placement on a real API server: what it stores, adds and refuses."""

from typing import Any

import pytest

from knfleet.api.cluster.placement import (
    DECISIONS,
    PLACEMENTS,
    SCORES,
    AddOnPlacementScore,
    Placement,
    PlacementDecision,
)
from knfleet.api.inventory import PUBLISHED_DECISIONS, PublishedDecision
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.schema import decode
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Invalid

EVERYTHING: Object = {
    "clusterSets": ["default"],
    "numberOfClusters": 3,
    "predicates": [
        {
            "requiredClusterSelector": {
                "labelSelector": {
                    "matchLabels": {"env": "prod"},
                    "matchExpressions": [
                        {"key": "local-cluster", "operator": "NotIn", "values": ["true"]}
                    ],
                },
                "claimSelector": {
                    "matchExpressions": [
                        {
                            "key": "platform.open-cluster-management.io",
                            "operator": "In",
                            "values": ["aws"],
                        }
                    ]
                },
                "celSelector": {"celExpressions": ["managedCluster.metadata.name != 'a'"]},
            }
        }
    ],
    "prioritizerPolicy": {
        "mode": "Exact",
        "configurations": [
            {"scoreCoordinate": {"type": "BuiltIn", "builtIn": "Steady"}, "weight": -3},
            {
                "scoreCoordinate": {
                    "type": "AddOn",
                    "addOn": {"resourceName": "usage", "scoreName": "cpu"},
                }
            },
        ],
    },
    "spreadPolicy": {
        "spreadConstraints": [
            {"topologyKey": "region", "topologyKeyType": "Label", "maxSkew": 2},
            {
                "topologyKey": "region.open-cluster-management.io",
                "topologyKeyType": "Claim",
                "whenUnsatisfiable": "DoNotSchedule",
            },
        ]
    },
    "tolerations": [
        {"key": "cluster.open-cluster-management.io/unreachable", "operator": "Exists"},
        {"key": "gpu", "value": "a", "effect": "NoSelect", "tolerationSeconds": 300},
    ],
    "decisionStrategy": {
        "groupStrategy": {
            "clustersPerDecisionGroup": 5,
            "decisionGroups": [
                {
                    "groupName": "canary",
                    "groupClusterSelector": {"labelSelector": {"matchLabels": {"canary": "yes"}}},
                }
            ],
        }
    },
    "sortBy": "Score",
    "scoreRateLimit": "30s",
}


def thing(resource: Resource, name: str, **parts: Any) -> Object:
    """An object of a kind."""
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **parts}


async def test_a_placement_is_stored_with_all_its_fields(fleet: Client):
    made = await fleet.create(PLACEMENTS, thing(PLACEMENTS, "everything", spec=EVERYTHING))

    assert made["spec"]["prioritizerPolicy"]["configurations"][1]["weight"] == 1
    constraints = made["spec"]["spreadPolicy"]["spreadConstraints"]
    assert constraints[0]["whenUnsatisfiable"] == "ScheduleAnyway"
    assert constraints[1]["maxSkew"] == 1
    assert made["spec"]["tolerations"][1]["operator"] == "Equal"
    placement = decode(made, Placement)
    assert placement.spec.prioritizer_policy.configurations[0].weight == -3
    assert placement.spec.decision_strategy.group_strategy.clusters_per_decision_group == 5
    await fleet.delete(PLACEMENTS, Key("default", "everything"))


async def test_an_empty_placement_gets_the_defaults_of_open_cluster_management(fleet: Client):
    made = await fleet.create(
        PLACEMENTS, thing(PLACEMENTS, "empty", spec={"decisionStrategy": {"groupStrategy": {}}})
    )

    assert made["spec"] == {
        "decisionStrategy": {"groupStrategy": {"clustersPerDecisionGroup": "100%"}},
        "sortBy": "ClusterName",
        "scoreRateLimit": "1m",
    }
    await fleet.delete(PLACEMENTS, Key("default", "empty"))


GROUP: Object = {"groupName": "x", "groupClusterSelector": {}}


REFUSED: list[tuple[Object, str]] = [
    (
        {"decisionStrategy": {"groupStrategy": {"clustersPerDecisionGroup": "0%"}}},
        "should match",
    ),
    (
        {"decisionStrategy": {"groupStrategy": {"clustersPerDecisionGroup": "-5"}}},
        "should match",
    ),
    (
        {"decisionStrategy": {"groupStrategy": {"clustersPerDecisionGroup": "101%"}}},
        "should match",
    ),
    ({"decisionStrategy": {"groupStrategy": {"decisionGroups": [GROUP]}}}, "groupName"),
    (
        {
            "prioritizerPolicy": {
                "configurations": [{"scoreCoordinate": {"builtIn": "Steady"}, "weight": 11}]
            }
        },
        "weight",
    ),
    ({"prioritizerPolicy": {"configurations": [{"weight": 1}]}}, "scoreCoordinate"),
    ({"tolerations": [{"effect": "NoExecute"}]}, "effect"),
    ({"sortBy": "Size"}, "sortBy"),
    ({"scoreRateLimit": "often"}, "scoreRateLimit"),
    ({"spreadPolicy": {"spreadConstraints": [{"topologyKey": "a"}]}}, "topologyKeyType"),
]


@pytest.mark.parametrize(("spec", "words"), REFUSED)
async def test_what_open_cluster_management_refuses_is_refused(
    fleet: Client, spec: Object, words: str
):
    with pytest.raises(Invalid, match=words):
        await fleet.create(PLACEMENTS, thing(PLACEMENTS, "wrong", spec=spec))


async def test_decisions_and_scores_are_stored_in_the_status(fleet: Client):
    await fleet.create(DECISIONS, thing(DECISIONS, "web-decision-1"))
    await fleet.create(SCORES, thing(SCORES, "usage"))
    key = Key("default", "web-decision-1")

    bare = {"clusterName": "a", "reason": ""}
    decision = await fleet.patch(
        DECISIONS, key, {"status": {"decisions": [{**bare, "score": 7}]}}, subresource="status"
    )
    scores = {"validUntil": "2026-11-15T12:00:00Z", "scores": [{"name": "cpu", "value": -100}]}
    score = await fleet.patch(
        SCORES, Key("default", "usage"), {"status": scores}, subresource="status"
    )
    with pytest.raises(Invalid, match="value"):
        await fleet.patch(
            SCORES,
            Key("default", "usage"),
            {"status": {"scores": [{"name": "cpu", "value": 101}]}},
            subresource="status",
        )

    assert decode(decision, PlacementDecision).decisions[0].score == 7
    assert decode(score, AddOnPlacementScore).status.scores[0].value == -100
    await fleet.delete(DECISIONS, key)
    await fleet.delete(SCORES, Key("default", "usage"))


async def test_published_decisions_refer_to_at_most_a_hundred_profiles(fleet: Client):
    chosen = [{"clusterProfileRef": {"name": f"c{index}"}} for index in range(101)]
    published = thing(PUBLISHED_DECISIONS, "web-decision-0")

    with pytest.raises(Invalid, match="decisions"):
        await fleet.create(PUBLISHED_DECISIONS, {**published, "decisions": chosen})
    made = await fleet.create(PUBLISHED_DECISIONS, {**published, "decisions": chosen[:100]})

    assert decode(made, PublishedDecision).decisions[99].cluster_profile_ref.name == "c99"
    await fleet.delete(PUBLISHED_DECISIONS, Key("default", "web-decision-0"))
