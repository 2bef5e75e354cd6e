"""Decision groups, and explanations."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.meta import Object
from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates
from knfleet.hub.placement.scheduler.fleet_state import Fleet
from knfleet.hub.placement.scheduler.placement_explanation import ClusterExplanation, explain
from knfleet.hub.placement.scheduler.schedule import schedule
from tests.unit.hub.placement.samples import (
    NOW,
    by_cel,
    by_labels,
    decide,
    fleet,
    manifest,
    placement,
    plain,
    prioritizers,
    taint,
)


def group(name: str, **labels: str) -> Object:
    selector = {"labelSelector": {"matchLabels": labels}}
    return {"groupName": name, "groupClusterSelector": selector}


def divided(known: Fleet, size: int | str = "100%", *named: Object, **spec: Any):
    strategy = {"clustersPerDecisionGroup": size, "decisionGroups": list(named)}
    chosen = placement(decisionStrategy={"groupStrategy": strategy}, **spec)
    return [
        (each.index, each.name, [decision.cluster for decision in each.decisions])
        for each in decide(chosen, known).groups
    ]


def test_without_a_strategy_there_is_one_group():
    assert divided(plain("b", "a")) == [(0, "", ["a", "b"])]


def test_nothing_selected_is_one_empty_group():
    assert divided(plain(), "100%", group("canary", x="y")) == [(0, "", [])]


def test_named_groups_come_first_and_the_rest_follows():
    known = fleet(manifest("a"), manifest("b", {"canary": "yes"}), manifest("c", {"canary": "yes"}))

    assert divided(known, "100%", group("canary", canary="yes")) == [
        (0, "canary", ["b", "c"]),
        (1, "", ["a"]),
    ]


def test_a_cluster_belongs_to_the_first_group_that_selects_it():
    known = fleet(manifest("a", {"x": "1", "y": "1"}), manifest("b", {"y": "1"}))

    assert divided(known, "100%", group("one", x="1"), group("two", y="1")) == [
        (0, "one", ["a"]),
        (1, "two", ["b"]),
    ]


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(2, [2, 2, 1]), ("2", [2, 2, 1]), ("40%", [2, 2, 1]), ("30%", [2, 2, 1]), ("1%", [1] * 5)],
)
def test_groups_are_cut(size: int | str, sizes: list[int]):
    known = plain(*(f"c{number}" for number in range(5)))

    assert [len(clusters) for _, _, clusters in divided(known, size)] == sizes


def test_a_named_group_that_is_cut_keeps_its_name():
    known = fleet(*(manifest(f"c{number}", {"canary": "yes"}) for number in range(3)))

    assert divided(known, 2, group("canary", canary="yes")) == [
        (0, "canary", ["c0", "c1"]),
        (1, "canary", ["c2"]),
    ]


def test_groups_select_by_claims_too():
    known = fleet(manifest("a", claims={"cloud": "aws"}), manifest("b"))
    requirement = {"key": "cloud", "operator": "Exists"}
    by_claim = {
        "groupName": "aws",
        "groupClusterSelector": {"claimSelector": {"matchExpressions": [requirement]}},
    }

    assert divided(known, "100%", by_claim) == [(0, "aws", ["a"]), (1, "", ["b"])]


def test_decisions_can_be_sorted_by_score():
    known = fleet(manifest("a", allocatable={"cpu": "1"}), manifest("b", allocatable={"cpu": "2"}))
    policy = prioritizers(ResourceAllocatableCPU=1)

    assert divided(known, sortBy="Score", prioritizerPolicy=policy) == [(0, "", ["b", "a"])]


def test_a_group_without_sense_is_a_misconfiguration():
    requirement = {"key": "a", "operator": "Has"}
    wrong = {
        "groupName": "wrong",
        "groupClusterSelector": {"labelSelector": {"matchExpressions": [requirement]}},
    }
    strategy = {"decisionGroups": [wrong]}

    decided = decide(placement(decisionStrategy={"groupStrategy": strategy}), plain("a"))

    assert "decision group wrong: 'Has' of a" in decided.misconfigured.message


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30),
    st.one_of(st.integers(1, 40), st.sampled_from(["1%", "33%", "100%"])),
)
def test_groups_have_every_selected_cluster_once(
    clusters: list[tuple[bool, bool]], size: int | str
):
    known = fleet(
        *(
            manifest(f"c{number}", {"x": str(x).lower(), "y": str(y).lower()})
            for number, (x, y) in enumerate(clusters)
        )
    )

    groups = divided(known, size, group("one", x="true"), group("two", y="true"))

    every = [name for _, _, found in groups for name in found]
    assert sorted(every) == sorted(f"c{number}" for number in range(len(clusters)))
    assert [index for index, _, _ in groups] == list(range(len(groups)))


class TestExplanations:
    KNOWN = fleet(
        manifest("a", {"env": "prod"}),
        manifest("b", {"env": "prod"}),
        manifest("dev", {"env": "dev"}),
        manifest("bare"),
        manifest("tainted", {"env": "prod"}, taints=[taint("gpu", value="a")]),
        manifest("elsewhere", {"env": "prod"}, set_="prod"),
    )

    def explained(self, **spec: Any) -> dict[str, ClusterExplanation]:
        cel = CelPredicates(60)
        chosen = placement(**spec)
        decided = schedule(chosen, self.KNOWN.view(chosen), cel, NOW)
        found = explain(chosen, decided, self.KNOWN, cel, NOW)
        return {each.cluster: each for each in found}

    def test_every_cluster_has_the_filter_that_left_it_out(self):
        found = self.explained(predicates=by_labels(env="prod"), numberOfClusters=1)

        assert {name: each.step for name, each in found.items()} == {
            "a": "Selected",
            "b": "Rank",
            "tainted": "TaintToleration",
            "bare": "Predicate",
            "dev": "Predicate",
            "elsewhere": "ClusterSets",
        }
        assert next(iter(found)) == "a"
        assert found["dev"].reason == "predicate 1: label env is 'dev', must be In prod"
        assert found["bare"].reason == "predicate 1: label env is absent, must be In prod"
        assert found["tainted"].reason == "taint gpu=a:NoSelect is not tolerated"
        assert found["elsewhere"].reason == "not in default"
        assert found["a"].scores == {"Balance": 100, "Steady": 0}
        assert found["a"].total == 100

    def test_expressions_are_explained(self):
        found = self.explained(predicates=by_cel("managedCluster.metadata.labels.env == 'prod'"))

        assert "is false" in found["dev"].reason
        assert 'has no value: Key not found in map : "env"' in found["bare"].reason

    def test_without_bindings_nothing_is_eligible(self):
        found = self.explained(clusterSets=["missing"])

        assert {each.step for each in found.values()} == {"ClusterSets"}
        assert found["a"].reason == "no wanted cluster set is bound to namespace apps"
