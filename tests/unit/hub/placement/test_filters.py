"""Which clusters a Placement can select: sets, predicates, taints."""

from datetime import timedelta
from typing import Any

import pytest

from knfleet.api.cluster.placement import MISCONFIGURED, SATISFIED
from knfleet.api.meta import Key, Object
from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates, Unfinished
from knfleet.hub.placement.scheduler.schedule import schedule
from tests.unit.hub.placement.samples import (
    NAMESPACE,
    NOW,
    by_cel,
    by_labels,
    decide,
    fleet,
    manifest,
    names,
    placement,
    plain,
    published,
    selected,
    taint,
)


class TestSets:
    CLUSTERS = (manifest("a"), manifest("b", set_="prod"), manifest("c", set_="prod"))

    def test_clusters_come_from_all_bound_sets(self):
        assert selected(fleet(*self.CLUSTERS, bound=["default", "prod"])) == ["a", "b", "c"]
        assert selected(fleet(*self.CLUSTERS, bound=["prod"])) == ["b", "c"]

    def test_given_sets_are_used_as_far_as_they_are_bound(self):
        known = fleet(*self.CLUSTERS, bound=["default"])

        assert selected(known, clusterSets=["default", "prod"]) == ["a"]

    @pytest.mark.parametrize(
        ("bound", "spec", "reason"),
        [
            ([], {}, "NoManagedClusterSetBindings"),
            (["missing"], {}, "NoManagedClusterSetBindings"),
            (["default"], {"clusterSets": ["prod"]}, "NoIntersection"),
            (["empty"], {}, "AllManagedClusterSetsEmpty"),
            (["default"], {"predicates": by_labels(env="x")}, "NoManagedClusterMatched"),
            (["default"], {"numberOfClusters": 2}, "NotAllDecisionsScheduled"),
        ],
    )
    def test_a_placement_that_gets_too_little_says_why(
        self, bound: list[str], spec: dict[str, Any], reason: str
    ):
        decided = decide(placement(**spec), fleet(*self.CLUSTERS, bound=bound))

        assert decided.satisfied is not None
        assert (decided.satisfied.type, decided.satisfied.status) == (SATISFIED, "False")
        assert decided.satisfied.reason == reason
        assert decided.satisfied.observed_generation == 3
        assert decided.satisfied.message

    def test_one_that_gets_all_says_so(self):
        decided = decide(placement(numberOfClusters=1), fleet(*self.CLUSTERS))

        assert decided.satisfied is not None
        assert decided.satisfied.status == "True"
        assert decided.satisfied.reason == "AllDecisionsScheduled"
        assert decided.misconfigured.status == "False"
        assert decided.misconfigured.reason == "Succeedconfigured"

    def test_a_set_that_is_deleted_takes_its_clusters_with_it(self):
        known = fleet(*self.CLUSTERS, bound=["default", "prod"])

        known.put_set("prod", None)

        assert selected(known) == ["a"]

    def test_a_cluster_in_two_sets_is_selected_once(self):
        known = plain("a")
        known.put_set("also", known.sets["default"])
        known.put_binding(Key(NAMESPACE, "also"), "also")

        assert selected(known) == ["a"]


class TestPredicates:
    KNOWN = fleet(
        manifest("a", {"env": "prod", "region": "eu"}, claims={"platform": "aws"}),
        manifest("b", {"env": "prod", "region": "us"}, claims={"platform": "gcp"}),
        manifest("c", {"env": "dev", "region": "eu"}),
    )

    def test_predicates_are_alternatives(self):
        either = [*by_labels(env="dev"), *by_labels(region="us")]

        assert selected(self.KNOWN, predicates=either) == ["b", "c"]

    def test_the_parts_of_a_predicate_must_all_match(self):
        selector: Object = {
            "labelSelector": {"matchLabels": {"env": "prod"}},
            "claimSelector": {
                "matchExpressions": [{"key": "platform", "operator": "In", "values": ["aws"]}]
            },
        }

        assert selected(self.KNOWN, predicates=[{"requiredClusterSelector": selector}]) == ["a"]

    @pytest.mark.parametrize(
        ("operator", "values", "expected"),
        [
            ("In", ["aws", "gcp"], ["a", "b"]),
            ("NotIn", ["aws"], ["b", "c"]),
            ("Exists", [], ["a", "b"]),
            ("DoesNotExist", [], ["c"]),
        ],
    )
    def test_claims_are_selected_like_labels(
        self, operator: str, values: list[str], expected: list[str]
    ):
        requirement = {"key": "platform", "operator": operator, "values": values}
        selector = {"claimSelector": {"matchExpressions": [requirement]}}

        assert selected(self.KNOWN, predicates=[{"requiredClusterSelector": selector}]) == expected

    def test_a_claim_that_nobody_has_selects_nothing(self):
        requirement = {"key": "unknown", "operator": "In", "values": ["x"]}
        selector = {"claimSelector": {"matchExpressions": [requirement]}}

        assert selected(self.KNOWN, predicates=[{"requiredClusterSelector": selector}]) == []

    def test_an_empty_predicate_selects_all(self):
        assert selected(self.KNOWN, predicates=[{}]) == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("selector", "words"),
        [
            (
                {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
                "predicate 1: operator In of a needs values",
            ),
            (
                {"claimSelector": {"matchExpressions": [{"key": "a", "operator": "Has"}]}},
                "predicate 1: 'Has' of a is not an operator",
            ),
            (
                {"celSelector": {"celExpressions": ["managedCluster."]}},
                "predicate 1: CEL expression 'managedCluster.': 1:16: Syntax error",
            ),
            (
                {"celSelector": {"celExpressions": ["string(managedCluster.metadata.name)"]}},
                "the value of the expression is a string, not true or false",
            ),
        ],
    )
    def test_a_selector_without_sense_is_a_misconfiguration(self, selector: Object, words: str):
        chosen = placement(predicates=[{"requiredClusterSelector": selector}])

        decided = decide(chosen, self.KNOWN)

        assert decided.misconfigured.type == MISCONFIGURED
        assert decided.misconfigured.status == "True"
        assert decided.misconfigured.reason == "Misconfigured"
        assert words in decided.misconfigured.message
        assert decided.satisfied is None


class TestExpressions:
    KNOWN = fleet(
        manifest("a", {"version": "1.30.4"}, claims={"limits": '{"gpu": 2}'}),
        manifest("b", {"version": "1.31.0"}, claims={"limits": "none"}),
        manifest("c"),
    )

    def test_expressions_must_all_be_true(self):
        predicates = by_cel(
            "has(managedCluster.metadata.labels.version)",
            "semver(managedCluster.metadata.labels.version).isGreaterThan(semver('1.30.9'))",
        )

        assert selected(self.KNOWN, predicates=predicates) == ["b"]

    def test_a_cluster_for_which_an_expression_has_no_value_is_not_selected(self):
        gpu = "managedCluster.status.clusterClaims[0].value.parseJSON().gpu == 2"

        decided = decide(placement(predicates=by_cel(gpu)), self.KNOWN)

        assert names(decided) == ["a"]
        assert set(decided.failures) == {"b", "c"}
        assert decided.misconfigured.status == "False"
        assert "no value for b, c" in decided.misconfigured.message

    def test_expressions_read_scores_of_add_ons(self):
        known = plain("a", "b")
        published(known, "a", {"cpu": 40})
        published(known, "b", {"cpu": 60})
        predicates = by_cel(
            "managedCluster.scores('usage').exists(s, s.name == 'cpu' && s.value > 50)"
        )

        assert selected(known, predicates=predicates) == ["b"]
        published(known, "a", {"cpu": 70})
        assert selected(known, predicates=predicates) == ["a", "b"]

    def test_a_cluster_without_scores_is_not_selected(self):
        """As Open Cluster Management has it: the expression has no value."""
        known = plain("a", "b")
        published(known, "a", {})

        decided = decide(
            placement(predicates=by_cel("managedCluster.scores('usage').size() == 0")), known
        )

        assert names(decided) == ["a"]
        assert "no AddOnPlacementScore 'usage'" in decided.failures["b"]

    def test_an_expression_beyond_the_budget_selects_nothing(self):
        bomb = "['aaaaaaaa']" + ".map(a, a + a)" * 26 + "[0].size() > 1"

        decided = decide(placement(predicates=by_cel(bomb)), self.KNOWN)

        assert names(decided) == []
        assert "too much time or memory" in decided.failures["a"]

    def test_an_expression_is_evaluated_once_for_each_version_of_a_cluster(self):
        known = plain("a", "b", "c")
        cel = CelPredicates(60)
        expression = "managedCluster.metadata.name != 'b'"
        chosen = placement(predicates=by_cel(expression))
        schedule(chosen, known.view(chosen), cel, NOW)
        before = dict(cel.results[expression])

        cel.ends = 0
        again = schedule(chosen, known.view(chosen), cel, NOW)

        assert names(again) == ["a", "c"]
        assert cel.results[expression] == before

    def test_a_pass_ends_after_its_time_and_the_next_goes_on(self):
        known = plain(*(f"c{number}" for number in range(50)))
        cel = CelPredicates(pass_seconds=0)
        chosen = placement(predicates=by_cel("managedCluster.metadata.name != 'c7'"))
        cel.begin()

        with pytest.raises(Unfinished):
            schedule(chosen, known.view(chosen), cel, NOW)
        cel.pass_seconds = 60
        cel.begin()

        assert len(names(schedule(chosen, known.view(chosen), cel, NOW))) == 49


class TestTaints:
    def test_a_tainted_cluster_is_not_selected(self):
        known = fleet(manifest("a", taints=[taint("gpu")]), manifest("b"))

        assert selected(known) == ["b"]

    @pytest.mark.parametrize(
        ("toleration", "tolerated"),
        [
            ({"key": "gpu", "operator": "Exists"}, True),
            ({"operator": "Exists"}, True),
            ({"key": "gpu", "operator": "Equal", "value": "a"}, True),
            ({"key": "gpu", "value": "a"}, True),
            ({"key": "gpu", "value": "b"}, False),
            ({"key": "gpu"}, False),
            ({"key": "other", "operator": "Exists"}, False),
            ({"key": "gpu", "operator": "Exists", "effect": "NoSelect"}, True),
            ({"key": "gpu", "operator": "Exists", "effect": "NoSelectIfNew"}, False),
        ],
    )
    def test_a_toleration_matches_key_value_and_effect(self, toleration: Object, tolerated: bool):
        known = fleet(manifest("a", taints=[taint("gpu", value="a")]))

        assert selected(known, tolerations=[toleration]) == (["a"] if tolerated else [])

    def test_all_taints_must_be_tolerated(self):
        known = fleet(manifest("a", taints=[taint("one"), taint("two")]))

        assert selected(known, tolerations=[{"key": "one", "operator": "Exists"}]) == []

    def test_no_select_if_new_keeps_what_is_selected(self):
        known = fleet(
            manifest("a", taints=[taint("draining", "NoSelectIfNew")]),
            manifest("b", taints=[taint("draining", "NoSelectIfNew")]),
        )
        known.put_decided(placement().key, frozenset({"b"}))

        assert selected(known) == ["b"]

    def test_prefer_no_select_comes_last(self):
        known = fleet(manifest("a", taints=[taint("old", "PreferNoSelect")]), manifest("b"))

        assert selected(known, numberOfClusters=1) == ["b"]
        assert selected(known) == ["a", "b"]
        tolerations = [{"key": "old", "operator": "Exists"}]
        assert selected(known, numberOfClusters=1, tolerations=tolerations) == ["a"]

    def test_a_toleration_ends_after_its_seconds(self):
        added = (NOW - timedelta(seconds=100)).isoformat()
        known = fleet(manifest("a", taints=[taint("gone", added=added)]))
        chosen = placement(
            tolerations=[{"key": "gone", "operator": "Exists", "tolerationSeconds": 300}]
        )

        early = decide(chosen, known)
        late = decide(chosen, known, NOW + timedelta(seconds=200))

        assert names(early) == ["a"]
        assert early.next_moment == NOW + timedelta(seconds=200)
        assert names(late) == []
        assert late.next_moment is None

    def test_the_longest_toleration_counts(self):
        added = (NOW - timedelta(seconds=100)).isoformat()
        known = fleet(manifest("a", taints=[taint("gone", added=added)]))
        tolerations = [
            {"key": "gone", "operator": "Exists", "tolerationSeconds": seconds}
            for seconds in (10, 300, 200)
        ]

        decided = decide(placement(tolerations=tolerations), known)

        assert decided.next_moment == NOW + timedelta(seconds=200)

    def test_seconds_count_from_now_until_the_hub_has_recorded_the_taint(self):
        known = fleet(manifest("a", taints=[taint("gone")]))
        tolerations = [{"key": "gone", "operator": "Exists", "tolerationSeconds": 60}]

        decided = decide(placement(tolerations=tolerations), known)

        assert names(decided) == ["a"]
        assert decided.next_moment == NOW + timedelta(seconds=60)

    def test_seconds_have_no_effect_on_no_select_if_new(self):
        known = fleet(
            manifest("a", taints=[taint("x", "NoSelectIfNew", added="2020-01-01T00:00:00Z")])
        )
        tolerations = [{"key": "x", "operator": "Exists", "tolerationSeconds": 1}]

        assert selected(known, tolerations=tolerations) == ["a"]

    @pytest.mark.parametrize(
        "toleration",
        [
            {"operator": "Equal"},
            {"key": "a", "operator": "Exists", "value": "b"},
            {"key": "a", "operator": "Like"},
        ],
    )
    def test_a_toleration_without_sense_is_a_misconfiguration(self, toleration: Object):
        decided = decide(placement(tolerations=[toleration]), plain("a"))

        assert decided.misconfigured.status == "True"
        assert "toleration" in decided.misconfigured.message


class TestMisconfiguration:
    def test_what_was_selected_stays(self):
        known = plain("a", "b", "c")
        known.put_decided(placement().key, frozenset({"a", "b"}))

        decided = decide(placement(predicates=by_cel("nonsense(")), known)

        assert decided.kept == {"a", "b"}
        assert "Decisions stay as they are" in decided.misconfigured.message

    def test_what_is_no_longer_bound_does_not(self):
        """A Placement with an error must not be a way to keep clusters that were taken away."""
        known = fleet(manifest("a"), manifest("b", set_="prod"), bound=["default"])
        known.put_decided(placement().key, frozenset({"a", "b", "gone"}))

        decided = decide(placement(predicates=by_cel("nonsense(")), known)

        assert decided.kept == {"a"}

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ({"numberOfClusters": -1}, "numberOfClusters must not be negative"),
            ({"scoreRateLimit": "often"}, "scoreRateLimit"),
            ({"prioritizerPolicy": {"mode": "Some"}}, "prioritizerPolicy.mode"),
        ],
    )
    def test_values_without_sense_are_named(self, spec: dict[str, Any], words: str):
        assert words in decide(placement(**spec), plain("a")).misconfigured.message
