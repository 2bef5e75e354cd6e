"""Which of the possible clusters a Placement selects: scores, spreading, stability."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.meta import Key, Object
from knfleet.hub.placement.scheduler.schedule_model import cluster_of
from tests.unit.hub.placement.samples import (
    NAMESPACE,
    NOW,
    by_labels,
    decide,
    fleet,
    manifest,
    names,
    placement,
    plain,
    prioritizers,
    published,
    selected,
)


def add_on(resource: str, score: str, weight: int = 1) -> Object:
    coordinate = {"type": "AddOn", "addOn": {"resourceName": resource, "scoreName": score}}
    return {
        "mode": "Exact",
        "configurations": [{"scoreCoordinate": coordinate, "weight": weight}],
    }


class TestPrioritizers:
    def test_equal_clusters_are_taken_by_name(self):
        assert selected(plain("c", "a", "b"), numberOfClusters=2) == ["a", "b"]

    def test_what_is_selected_stays_selected(self):
        known = plain("a", "b", "c")
        known.put_decided(placement().key, frozenset({"c"}))

        assert selected(known, numberOfClusters=1) == ["c"]
        exact = {"mode": "Exact"}
        assert selected(known, numberOfClusters=1, prioritizerPolicy=exact) == ["a"]

    def test_clusters_with_few_decisions_are_preferred(self):
        known = plain("a", "b", "c")
        known.put_decided(Key("x", "one"), frozenset({"a", "b"}))
        known.put_decided(Key("x", "two"), frozenset({"a"}))

        decided = decide(placement(numberOfClusters=2), known)

        assert names(decided) == ["b", "c"]
        assert decided.rankings[0].scores == {"a": -100, "b": 0, "c": 100}

    def test_own_decisions_do_not_count_for_balance(self):
        known = plain("a", "b")
        known.put_decided(placement().key, frozenset({"a"}))

        decided = decide(placement(), known)

        assert decided.rankings[0].name == "Balance"
        assert decided.rankings[0].scores == {"a": 100, "b": 100}

    @pytest.mark.parametrize(
        ("prioritizer", "resource"),
        [("ResourceAllocatableCPU", "cpu"), ("ResourceAllocatableMemory", "memory")],
    )
    def test_resources_are_scored_between_the_least_and_the_most(
        self, prioritizer: str, resource: str
    ):
        known = fleet(
            manifest("a", allocatable={resource: "10"}),
            manifest("b", allocatable={resource: "20k"}),
            manifest("c", allocatable={resource: "5005"}),
            manifest("d"),
        )
        policy = prioritizers("Exact", **{prioritizer: 1})

        decided = decide(placement(prioritizerPolicy=policy), known)

        assert decided.rankings[0].scores == {"a": -100, "b": 100, "c": -50, "d": -100}

    def test_equal_resources_all_have_the_most(self):
        known = fleet(*(manifest(name, allocatable={"cpu": "4"}) for name in ("a", "b")))
        policy = prioritizers(ResourceAllocatableCPU=1)

        decided = decide(placement(prioritizerPolicy=policy), known)

        assert decided.rankings[0].scores == {"a": 100, "b": 100}

    def test_scores_of_add_ons_count_until_they_expire(self):
        known = plain("a", "b", "c")
        until = NOW + timedelta(minutes=5)
        published(known, "b", {"cpu": 30, "memory": -5}, until.isoformat())
        published(known, "c", {"cpu": 20})
        chosen = placement(numberOfClusters=1, prioritizerPolicy=add_on("usage", "cpu"))

        early = decide(chosen, known)
        late = decide(chosen, known, until)

        assert names(early) == ["b"]
        assert early.next_moment == until
        assert early.rankings[0].scores == {"a": 0, "b": 30, "c": 20}
        assert early.rankings[0].note == "no valid score for a"
        assert names(late) == ["c"]
        assert late.next_moment is None

    def test_scores_beyond_the_range_are_cut(self):
        known = plain("a", "b")
        published(known, "a", {"cpu": 30_000})
        chosen = placement(prioritizerPolicy=add_on("usage", "cpu"))

        assert decide(chosen, known).rankings[0].scores["a"] == 100

    def test_a_negative_weight_prefers_the_least(self):
        known = fleet(
            manifest("a", allocatable={"cpu": "8"}), manifest("b", allocatable={"cpu": "4"})
        )
        policy = prioritizers(ResourceAllocatableCPU=-1)

        assert selected(known, numberOfClusters=1, prioritizerPolicy=policy) == ["b"]

    def test_additive_keeps_the_defaults_unless_they_are_configured(self):
        def weights(**spec: Any) -> dict[str, int]:
            decided = decide(placement(**spec), plain("a"))
            return {each.name: each.weight for each in decided.rankings}

        assert weights() == {"Balance": 1, "Steady": 1}
        added = prioritizers("Additive", ResourceAllocatableCPU=2, Steady=3)
        assert weights(prioritizerPolicy=added) == {
            "Balance": 1,
            "Steady": 3,
            "ResourceAllocatableCPU": 2,
        }
        off = prioritizers("Additive", Balance=0)
        assert weights(prioritizerPolicy=off) == {"Steady": 1}
        assert weights(prioritizerPolicy=prioritizers("Exact", Steady=2)) == {"Steady": 2}

    def test_decisions_carry_score_and_reason(self):
        known = fleet(manifest("a", {"env": "prod"}), manifest("b", {"env": "prod"}))
        known.put_decided(placement().key, frozenset({"b"}))
        chosen = placement(
            numberOfClusters=1,
            predicates=by_labels(env="prod"),
            prioritizerPolicy=prioritizers("Additive", Steady=3),
        )

        (decision,) = decide(chosen, known).decisions

        assert decision.cluster == "b"
        assert decision.score == 100 + 3 * 100
        assert decision.reason == "matches predicate 1, and ranks among the first 1"

    @pytest.mark.parametrize(
        ("policy", "words"),
        [
            (prioritizers(Magic=1), "'Magic' is not a prioritizer"),
            (prioritizers(Steady=11), "weight 11"),
            (prioritizers(Steady=-1), "weight of Steady is negative"),
            (
                {"configurations": [{"scoreCoordinate": {"type": "AddOn"}}]},
                "needs addOn",
            ),
        ],
    )
    def test_a_policy_without_sense_is_a_misconfiguration(self, policy: Object, words: str):
        decided = decide(placement(prioritizerPolicy=policy), plain("a"))

        assert words in decided.misconfigured.message


def constraint(key: str, **extra: Any) -> Object:
    return {"topologyKey": key, "topologyKeyType": "Label", **extra}


def spread(*constraints: Object) -> Object:
    return {"spreadConstraints": list(constraints)}


class TestSpread:
    KNOWN = fleet(
        *(manifest(f"eu{number}", {"region": "eu", "tier": "x"}) for number in range(6)),
        *(manifest(f"us{number}", {"region": "us", "tier": "y"}) for number in range(3)),
        manifest("zz", claims={"zone": "z1"}),
    )

    def test_clusters_are_taken_from_all_topologies(self):
        chosen = selected(self.KNOWN, numberOfClusters=4, spreadPolicy=spread(constraint("region")))

        assert chosen == ["eu0", "eu1", "us0", "us1"]

    def test_a_soft_constraint_is_exceeded_if_it_must_be(self):
        chosen = selected(self.KNOWN, numberOfClusters=8, spreadPolicy=spread(constraint("region")))

        assert chosen == ["eu0", "eu1", "eu2", "eu3", "eu4", "us0", "us1", "us2"]

    def test_a_hard_constraint_is_not(self):
        hard = constraint("region", whenUnsatisfiable="DoNotSchedule")

        decided = decide(placement(numberOfClusters=8, spreadPolicy=spread(hard)), self.KNOWN)

        assert names(decided) == ["eu0", "eu1", "eu2", "eu3", "us0", "us1", "us2"]
        assert decided.satisfied is not None
        assert decided.satisfied.reason == "NotAllDecisionsScheduled"
        assert "3 left out by spreadPolicy" in decided.satisfied.message

    def test_the_skew_may_be_larger(self):
        hard = constraint("region", maxSkew=2, whenUnsatisfiable="DoNotSchedule")

        chosen = selected(self.KNOWN, numberOfClusters=20, spreadPolicy=spread(hard))

        assert len([name for name in chosen if name.startswith("eu")]) == 5

    def test_claims_are_topologies_too(self):
        by_claim = {"topologyKey": "zone", "topologyKeyType": "Claim"}

        chosen = selected(self.KNOWN, numberOfClusters=1, spreadPolicy=spread(by_claim))

        assert chosen == ["zz"]

    def test_clusters_outside_of_all_topologies_come_last(self):
        soft = selected(self.KNOWN, numberOfClusters=9, spreadPolicy=spread(constraint("region")))
        hard = constraint("region", whenUnsatisfiable="DoNotSchedule", maxSkew=9)

        assert "zz" not in soft
        assert "zz" not in selected(self.KNOWN, spreadPolicy=spread(hard))
        assert "zz" in selected(self.KNOWN, spreadPolicy=spread(constraint("region")))

    def test_the_first_constraint_is_the_most_important(self):
        known = fleet(
            manifest("a1", {"region": "a", "cloud": "x"}),
            manifest("a2", {"region": "a", "cloud": "y"}),
            manifest("b1", {"region": "b", "cloud": "x"}),
        )

        first = selected(
            known,
            numberOfClusters=2,
            spreadPolicy=spread(constraint("region"), constraint("cloud")),
        )
        second = selected(
            known,
            numberOfClusters=2,
            spreadPolicy=spread(constraint("cloud"), constraint("region")),
        )

        assert first == ["a1", "b1"]
        assert second == ["a1", "a2"]

    def test_the_prioritizer_prefers_the_best_of_each_topology(self):
        policy = prioritizers(Spread=1)
        chosen = placement(prioritizerPolicy=policy, spreadPolicy=spread(constraint("region")))

        scores = decide(chosen, self.KNOWN).rankings[-1].scores

        assert (scores["eu0"], scores["eu5"]) == (100, -100)
        assert (scores["us0"], scores["us1"]) == (100, 60)
        assert scores["zz"] == -100

    def test_without_constraints_the_prioritizer_says_nothing(self):
        decided = decide(placement(prioritizerPolicy=prioritizers(Spread=1)), plain("a"))

        assert decided.rankings[0].scores == {"a": 0}


LABELS = st.fixed_dictionaries(
    {"env": st.sampled_from(["prod", "dev"]), "region": st.sampled_from(["eu", "us"])}
)
CLUSTERS = st.dictionaries(
    st.sampled_from([f"c{number:02}" for number in range(20)]),
    st.tuples(LABELS, st.integers(1, 64)),
    max_size=12,
)
SPECS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "numberOfClusters": st.integers(0, 8),
        "prioritizerPolicy": st.sampled_from(
            [
                prioritizers("Additive", ResourceAllocatableCPU=3),
                prioritizers("Exact", Steady=1),
                prioritizers("Exact", Balance=-10, Steady=10, ResourceAllocatableMemory=7),
            ]
        ),
        "spreadPolicy": st.sampled_from([{}, spread(constraint("region"))]),
        "predicates": st.just(by_labels(env="prod")),
    }
)


def known_by(clusters: dict[str, tuple[dict[str, str], int]]):
    return fleet(
        *(
            manifest(name, labels, allocatable={"cpu": str(cpu)})
            for name, (labels, cpu) in clusters.items()
        )
    )


@given(CLUSTERS, SPECS)
def test_placing_again_changes_nothing(
    clusters: dict[str, tuple[dict[str, str], int]], spec: dict[str, Any]
):
    known = known_by(clusters)
    first = selected(known, **spec)
    known.put_decided(placement().key, frozenset(first))

    second = selected(known, **spec)

    known.put_decided(placement().key, frozenset(second))
    assert selected(known, **spec) == second


@given(CLUSTERS, SPECS)
def test_placing_is_stable_when_unrelated_clusters_join(
    clusters: dict[str, tuple[dict[str, str], int]], spec: dict[str, Any]
):
    """Clusters that no predicate selects, or that are in other sets."""
    known = known_by(clusters)
    before = decide(placement(**spec), known)
    for name, labels, set_ in (("aa", {"env": "test"}, "default"), ("ab", {"env": "prod"}, "prod")):
        known.put_cluster(name, cluster_of(manifest(name, labels, set_=set_)))

    after = decide(placement(**spec), known)

    assert after.groups == before.groups


@given(CLUSTERS, SPECS, st.lists(st.integers(-(10**6), 10**6), min_size=4, max_size=4))
def test_scores_never_leave_their_range(
    clusters: dict[str, tuple[dict[str, str], int]], spec: dict[str, Any], values: list[int]
):
    known = known_by(clusters)
    for index, name in enumerate(sorted(clusters)[:4]):
        published(known, name, {"cpu": values[index]})
        known.put_decided(Key(NAMESPACE, f"other{index}"), frozenset(sorted(clusters)[: index + 1]))
    policy: Object = {
        "mode": "Additive",
        "configurations": [
            *spec["prioritizerPolicy"]["configurations"],
            *add_on("usage", "cpu")["configurations"],
            {"scoreCoordinate": {"builtIn": "Spread"}},
        ],
    }

    decided = decide(placement("web", **{**spec, "prioritizerPolicy": policy}), known)

    scores = [score for each in decided.rankings for score in each.scores.values()]
    assert all(-100 <= score <= 100 for score in scores)
    assert len(decided.decisions) <= spec["numberOfClusters"]


@given(CLUSTERS, st.integers(0, 8))
def test_hard_constraints_are_kept(clusters: dict[str, tuple[dict[str, str], int]], wanted: int):
    known = known_by(clusters)
    hard = constraint("region", whenUnsatisfiable="DoNotSchedule")

    chosen = selected(known, numberOfClusters=wanted, spreadPolicy=spread(hard))

    regions = {labels["region"] for labels, _ in clusters.values()}
    counts = [sum(clusters[name][0]["region"] == region for name in chosen) for region in regions]
    assert max(counts, default=0) - min(counts, default=0) <= 1
