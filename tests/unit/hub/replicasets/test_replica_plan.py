"""What replica sets do: states of works, what is written and deleted, what is said."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.api.work.replicaset import (
    PLACEMENT_NAME_LABEL,
    ROLLOUT_STARTED,
    TEMPLATE_HASH,
    ManifestWorkReplicaSet,
)
from knfleet.hub.rollout.rollout_model import Group, GroupReference, Progress, State, Strategy
from knfleet.hub.work.replicasets import replica_status
from knfleet.hub.work.replicasets.replica_plan import (
    PlacementSource,
    ReplicaSetPlan,
    ReplicaSetView,
    plan_replicas,
)
from knfleet.hub.work.replicasets.replica_state import ReplicaWork, progress_of, replica_work

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
LONG_AGO = "2026-11-15T10:00:00Z"
STARTED = "2026-11-15T11:58:00Z"
SET = decode(
    {
        "metadata": {"name": "web", "namespace": "apps", "generation": 4},
        "spec": {"placementRefs": [{"name": "all"}]},
    },
    ManifestWorkReplicaSet,
)


def said(type_: str, status: str = "True", generation: int = 1, since: str = LONG_AGO) -> Object:
    return {
        "type": type_,
        "status": status,
        "reason": "R",
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }


def work(
    cluster: str,
    *conditions: Object,
    hash_: str = "new",
    name: str = "web-1",
    placement: str = "all",
) -> ReplicaWork:
    meta = {
        "name": name,
        "namespace": cluster,
        "uid": f"{cluster}-{name}",
        "generation": 1,
        "labels": {PLACEMENT_NAME_LABEL: placement},
        "annotations": {TEMPLATE_HASH: hash_, ROLLOUT_STARTED: STARTED},
    }
    return replica_work({"metadata": meta, "status": {"conditions": list(conditions)}})


def done(cluster: str, **extra: Any) -> ReplicaWork:
    return work(cluster, said("Applied"), said("Available"), **extra)


class TestStates:
    @pytest.mark.parametrize(
        ("conditions", "has_rule", "state"),
        [
            ([], False, State.PROGRESSING),
            ([said("Applied", generation=0), said("Available")], False, State.PROGRESSING),
            ([said("Applied", "False")], False, State.FAILED),
            ([said("Applied"), said("Available")], False, State.SUCCEEDED),
            ([said("Applied"), said("Available", "False")], False, State.PROGRESSING),
            ([said("Applied"), said("Available")], True, State.PROGRESSING),
            ([said("Applied"), said("Progressing")], True, State.PROGRESSING),
            ([said("Applied"), said("Progressing", "False")], True, State.SUCCEEDED),
            ([said("Applied"), said("Progressing"), said("Degraded")], True, State.FAILED),
            ([said("Applied"), said("Complete")], False, State.SUCCEEDED),
        ],
    )
    def test_a_work_is_as_far_as_its_agent_reported(
        self, conditions: list[Object], has_rule: bool, state: State
    ):
        found = progress_of(work("a", *conditions), "new", has_progress_rule=has_rule)

        assert found.state is state

    def test_a_work_of_an_older_template_has_the_change_before_it(self):
        assert progress_of(done("a"), "newer", has_progress_rule=False).state is State.TO_APPLY

    def test_success_counts_from_the_rollout_though_the_condition_is_older(self):
        """Conditions keep their time when only the spec changes."""
        found = progress_of(done("a"), "new", has_progress_rule=False)

        assert found.since == datetime(2026, 11, 15, 11, 58, tzinfo=UTC)


def source(*clusters: str, **extra: Any) -> PlacementSource:
    given: dict[str, Any] = {
        "name": "all",
        "groups": (Group(0, tuple(clusters)),),
        "strategy": Strategy(),
        **extra,
    }
    return PlacementSource(**given)


def planned(
    *placements: PlacementSource,
    works: tuple[ReplicaWork, ...] = (),
    now: datetime = NOW,
    **extra: Any,
) -> ReplicaSetPlan:
    names = {name for each in placements for name in each.clusters}
    given: dict[str, Any] = {
        "placements": placements,
        "works": works,
        "hashes": dict.fromkeys(names, "new"),
        "work_name": "web-1",
        **extra,
    }
    return plan_replicas(ReplicaSetView(**given), now)


def acts(plan: ReplicaSetPlan) -> list[tuple[str, str]]:
    return [(each.placement.name, name) for each in plan.placements for name in each.plan.act]


class TestPlans:
    def test_clusters_without_a_work_or_with_an_old_one_get_it(self):
        plan = planned(source("a", "b", "c"), works=(done("a"), done("b", hash_="old")))

        assert acts(plan) == [("all", "b"), ("all", "c")]
        assert plan.deleted == ()

    def test_the_rollout_decides_on_the_order(self):
        groups = (Group(0, ("c",), "canary"), Group(1, ("a", "b")))
        strategy = Strategy(
            type="Progressive", mandatory=(GroupReference("canary"),), max_concurrency=1
        )
        placement = source(groups=groups, strategy=strategy)

        assert acts(planned(placement)) == [("all", "c")]
        assert acts(planned(placement, works=(done("c"),))) == [("all", "a")]
        busy = (done("c"), work("a"))
        assert acts(planned(placement, works=busy)) == []

    def test_a_cluster_of_two_placements_has_one_work(self):
        plan = planned(source("a", "b"), source("b", "c", name="more"))

        assert acts(plan) == [("all", "a"), ("all", "b"), ("more", "c")]

    def test_of_several_works_of_a_cluster_one_is_kept(self):
        """Of what another controller made before, for example."""
        spare = done("a", name="web-zzzzz")

        plan = planned(source("a"), works=(done("a"), spare))

        assert plan.deleted == (spare,)

    def test_a_cluster_that_is_not_selected_any_more_loses_its_work(self):
        plan = planned(source("a"), works=(done("a"), done("b")))

        assert [each.cluster for each in plan.deleted] == ["b"]

    @pytest.mark.parametrize(
        "uncertain",
        [
            source("a", is_complete=False),
            source(exists=False, has_decisions=False),
            source(has_decisions=False),
            source(empty_since=NOW - timedelta(seconds=10)),
        ],
    )
    def test_nothing_is_deleted_while_it_is_not_certain(self, uncertain: PlacementSource):
        plan = planned(uncertain, works=(done("a"), done("b")))

        assert plan.deleted == ()
        assert plan.kept

    def test_nor_while_another_placement_is_uncertain(self):
        plan = planned(source("a"), source("c", name="more", is_complete=False), works=(done("b"),))

        assert plan.deleted == ()

    def test_a_placement_that_stays_empty_loses_its_works(self):
        empty = source(empty_since=NOW - timedelta(seconds=10))
        works = (done("a"),)

        early = planned(empty, works=works)
        late = planned(empty, works=works, now=NOW + timedelta(seconds=50))

        assert early.next_look == NOW + timedelta(seconds=50)
        assert [each.cluster for each in late.deleted] == ["a"]

    def test_one_that_wants_no_clusters_loses_them_at_once(self):
        plan = planned(source(), works=(done("a"),))

        assert [each.cluster for each in plan.deleted] == ["a"]

    def test_a_work_that_was_just_written_is_not_written_again(self):
        written = {"a": Progress(State.PROGRESSING, NOW)}

        plan = planned(source("a"), written=written)

        assert acts(plan) == []
        assert plan.placements[0].plan.progressing == ("a",)

    def test_a_cluster_that_cannot_get_a_work_holds_nobody_up(self):
        strategy = Strategy(type="Progressive", max_concurrency=1, max_failures=1)

        plan = planned(source("a", "b", strategy=strategy), unfit={"a": "has no label"})

        assert acts(plan) == [("all", "b")]

    def test_a_strategy_without_sense_begins_nothing(self):
        assert acts(planned(source("a", strategy=None, problem="maxFailures: …"))) == []

    def test_a_pause_begins_nothing(self):
        assert acts(planned(source("a"), paused=True)) == []


def conditions(plan: ReplicaSetPlan, **problems: str) -> dict[str, tuple[str, str, str]]:
    found = replica_status.conditions(SET, plan, problems)
    assert {each.observed_generation for each in found} == {4}
    return {each.type: (each.status, each.reason, each.message) for each in found}


class TestStatus:
    def test_everything_done(self):
        plan = planned(source("a", "b"), works=(done("a"), done("b")))

        found = conditions(plan)

        assert found["PlacementVerified"] == ("True", "AsExpected", "")
        assert found["PlacementRolledOut"][:2] == ("True", "Complete")
        assert found["ManifestworkApplied"] == ("True", "AsExpected", "")

    def test_a_rollout_says_what_it_waits_for(self):
        strategy = Strategy(type="Progressive", max_concurrency=1)
        plan = planned(source("a", "b", "c", strategy=strategy), works=(done("a"), work("b")))

        found = conditions(plan)

        assert found["PlacementRolledOut"] == (
            "False",
            "Progressing",
            (
                "Placement all: 1 of 3 clusters done, 1 in progress (b), 1 waiting: at most 1"
                " clusters are changed at a time; waiting for b."
            ),
        )
        assert found["ManifestworkApplied"] == ("False", "Processing", "1 of 3 works are applied.")

    @pytest.mark.parametrize(
        ("placement", "reason"),
        [
            (source(exists=False, has_decisions=False), "PlacementDecisionNotFound"),
            (source(has_decisions=False), "PlacementDecisionNotFound"),
            (source(), "PlacementDecisionEmpty"),
            (source("a", strategy=None, problem="maxFailures: no"), "NotAsExpected"),
        ],
    )
    def test_placements_that_cannot_be_followed_are_named(
        self, placement: PlacementSource, reason: str
    ):
        found = conditions(planned(placement, works=(done("z"),)))

        assert found["PlacementVerified"][:2] == ("False", reason)
        assert "Placement all" in found["PlacementVerified"][2]

    def test_clusters_without_their_work_are_named(self):
        found = conditions(planned(source("a")), a="namespace a does not exist")

        assert found["ManifestworkApplied"] == (
            "False",
            "NotAsExpected",
            "1 clusters do not get their work (a); a: namespace a does not exist",
        )

    def test_works_that_failed_are_named(self):
        found = conditions(planned(source("a"), works=(work("a", said("Applied", "False")),)))

        assert found["ManifestworkApplied"][2] == "Works of 1 clusters failed (a)."

    def test_works_are_counted(self):
        groups = (Group(0, ("a", "b")), Group(1, ("c", "d")))
        works = (
            done("a"),
            done("b"),
            work("c", said("Applied", "False")),
            done("d", hash_="old"),
        )
        plan = planned(source(groups=groups), works=works)
        hashes = dict.fromkeys("abcd", "new")

        summaries = replica_status.placement_summaries(plan, hashes)
        fields = replica_status.status_fields(summaries, 0)

        assert fields["summary"] == {
            "total": 4,
            "desiredTotal": 4,
            "updated": 3,
            "applied": 3,
            "available": 3,
            "progressing": 1,
            "degraded": 1,
        }
        assert fields["placementSummary"][0]["name"] == "all"
        assert fields["placementSummary"][0]["availableDecisionGroups"] == (
            "1 (3 / 4 clusters applied)"
        )
