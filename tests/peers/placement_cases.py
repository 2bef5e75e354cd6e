"""Random fleets and Placements from a seed, of everything that both projects promise.

What one Placement selects must not depend on others, so that none asks for balance.
"""

from random import Random
from typing import Any

from msgspec import Struct

from knfleet.api.cluster.clusterset import CLUSTER_SETS
from knfleet.api.cluster.managedcluster import AVAILABLE, CLUSTERS, SET_LABEL
from knfleet.api.cluster.placement import PLACEMENTS, SCORES
from knfleet.api.meta import Object
from tests.support.placements import thing

SETS = ("s1", "s2", "s3")
NAMESPACES = {"all": SETS, "two": ("s1", "s2"), "one": ("s3",), "none": ()}
"""The sets that are bound to each namespace."""
REGIONS = ("eu", "us", "ap")
TIERS = ("prod", "test")
TAINTS = ("gpu", "drain")
CEL = (
    'managedCluster.metadata.labels["region"] == "eu"',
    'managedCluster.metadata.labels.exists(k, k == "tier")',
    'managedCluster.status.clusterClaims.exists(c, c.name == "zone" && c.value.startsWith("a"))',
    'managedCluster.metadata.name.endsWith("3") || managedCluster.metadata.name.endsWith("7")',
    'semver(managedCluster.status.version.kubernetes).isGreaterThan(semver("1.30.0"))',
    'managedCluster.scores("load").filter(s, s.name == "cpu").all(s, s.value > 0)',
    "size(managedCluster.status.clusterClaims) > 1",
)


class PlacementCases(Struct, frozen=True):
    """A fleet, and what is asked of it."""

    sets: list[Object]
    clusters: list[Object]
    scores: list[Object]
    placements: list[Object]


def cases(seed: int, placements: int = 200, clusters: int = 24) -> PlacementCases:
    """A fleet and Placements."""
    random = Random(seed)
    members = [cluster(random, number) for number in range(clusters)]
    return PlacementCases(
        [thing(CLUSTER_SETS, name, spec=by_set_label()) for name in SETS],
        members,
        [score(random, each["metadata"]["name"]) for each in members if random.random() < 0.8],
        [placement(random, number) for number in range(placements)],
    )


def by_set_label() -> Object:
    """Clusters belong to the set that their label names."""
    return {"clusterSelector": {"selectorType": "ExclusiveClusterSetLabel"}}


def cluster(random: Random, number: int) -> Object:
    """A ManagedCluster with a status."""
    labels = {SET_LABEL: random.choice(SETS), "region": random.choice(REGIONS)}
    if random.random() < 0.7:
        labels["tier"] = random.choice(TIERS)
    taints = [
        {
            "key": random.choice(TAINTS),
            "value": random.choice(("", "yes")),
            "effect": random.choice(("NoSelect", "NoSelectIfNew")),
            "timeAdded": "2026-01-01T00:00:00Z",
        }
        for _ in range(random.choice((0, 0, 0, 1)))
    ]
    made = thing(CLUSTERS, f"c{number:02}", spec={"taints": taints} if taints else {})
    made["metadata"]["labels"] = labels
    claims = [{"name": "zone", "value": random.choice(("a1", "a2", "b1"))}]
    if random.random() < 0.5:
        claims.append({"name": "platform", "value": random.choice(("kind", "eks"))})
    sizes = {"cpu": str(random.choice((4, 8, 16, 32))), "memory": f"{random.choice((8, 64))}Gi"}
    made["status"] = {
        "conditions": [
            {
                "type": AVAILABLE,
                "status": "True",
                "reason": "Tested",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "version": {"kubernetes": random.choice(("v1.29.4", "v1.31.0", "v1.33.1"))},
        "clusterClaims": claims,
        "allocatable": sizes,
        "capacity": sizes,
    }
    return made


def score(random: Random, name: str) -> Object:
    """The scores that an add-on gives a cluster."""
    values = [{"name": "cpu", "value": random.randint(-100, 100)}]
    if random.random() < 0.7:
        values.append({"name": "disk", "value": random.randint(-100, 100)})
    return {**thing(SCORES, "load", name), "status": {"scores": values}}


def placement(random: Random, number: int) -> Object:
    """A Placement."""
    spec: Object = {}
    namespace = random.choice(("all", "all", "all", "two", "one", "none"))
    if random.random() < 0.3:
        spec["clusterSets"] = random.sample(SETS, random.randint(1, 2))
    if random.random() < 0.7:
        spec["predicates"] = [
            {"requiredClusterSelector": selector(random)} for _ in range(random.randint(1, 2))
        ]
    if random.random() < 0.4:
        spec["tolerations"] = [toleration(random) for _ in range(random.randint(1, 2))]
    spec["prioritizerPolicy"] = {"mode": "Exact", "configurations": configurations(random)}
    if random.random() < 0.6:
        spec["numberOfClusters"] = random.randint(1, 12)
    if random.random() < 0.5:
        spec["decisionStrategy"] = {"groupStrategy": groups(random)}
    return thing(PLACEMENTS, f"p{number:03}", namespace, spec=spec)


def selector(random: Random) -> Object:
    """What a predicate asks for, of one to three sorts."""
    sorts: dict[str, Any] = {
        "labelSelector": label_selector(random),
        "claimSelector": {"matchExpressions": [claim_requirement(random)]},
        "celSelector": {"celExpressions": random.sample(CEL, random.randint(1, 2))},
    }
    chosen = random.sample(sorted(sorts), random.choice((1, 1, 1, 2, 3)))
    return {name: sorts[name] for name in chosen}


def label_selector(random: Random) -> Object:
    """A label selector."""
    if random.random() < 0.5:
        return {"matchLabels": {"region": random.choice(REGIONS)}}
    return {"matchExpressions": [requirement(random, "region", REGIONS, "tier")]}


def claim_requirement(random: Random) -> Object:
    """A requirement for claims."""
    return requirement(random, "zone", ("a1", "a2", "b1"), "platform")


def requirement(random: Random, key: str, values: tuple[str, ...], other: str) -> Object:
    """A requirement of one of the four operators."""
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    if operator in ("In", "NotIn"):
        return {"key": key, "operator": operator, "values": random.sample(values, 2)}
    return {"key": other, "operator": operator}


def toleration(random: Random) -> Object:
    """A toleration."""
    made: Object = {"key": random.choice(TAINTS)}
    if random.random() < 0.5:
        made["operator"] = "Exists"
    else:
        made |= {"operator": "Equal", "value": random.choice(("", "yes"))}
    if random.random() < 0.4:
        made["effect"] = random.choice(("NoSelect", "NoSelectIfNew"))
    return made


def configurations(random: Random) -> list[Object]:
    """Prioritizers with their weights."""
    choices: list[Object] = [
        built_in("Steady"),
        built_in("ResourceAllocatableCPU"),
        built_in("ResourceAllocatableMemory"),
        {"type": "AddOn", "addOn": {"resourceName": "load", "scoreName": "cpu"}},
        {"type": "AddOn", "addOn": {"resourceName": "load", "scoreName": "disk"}},
    ]
    weights = (-3, -1, 1, 2, 10)
    return [
        {
            "scoreCoordinate": each,
            # Clusters that are disliked because they are selected would change without end.
            "weight": random.choice(weights[2:] if each.get("builtIn") == "Steady" else weights),
        }
        for each in random.sample(choices, random.randint(1, 3))
    ]


def built_in(name: str) -> Object:
    """The coordinate of a built-in prioritizer."""
    return {"type": "BuiltIn", "builtIn": name}


def groups(random: Random) -> Object:
    """How the selected clusters are divided."""
    made: Object = {}
    if random.random() < 0.7:
        made["decisionGroups"] = [
            {
                "groupName": f"g{number}",
                "groupClusterSelector": {"labelSelector": label_selector(random)},
            }
            for number in range(random.randint(1, 3))
        ]
    if random.random() < 0.7:
        made["clustersPerDecisionGroup"] = random.choice((1, 2, 3, "25%", "50%", "34%"))
    return made
