"""How decisions are put into objects, and what is published of them."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from knfleet.api.cluster.placement import (
    GROUP_INDEX_LABEL,
    GROUP_NAME_LABEL,
    PLACEMENT_LABEL,
    Placement,
    PlacementStatus,
)
from knfleet.api.inventory import DECISION_INDEX, DECISION_KEY, PLACEMENT_KEY
from knfleet.api.meta import Object
from knfleet.hub.placement.decisions.decision_objects import (
    Changes,
    DecisionObject,
    changes,
    held,
    placements_of,
    read,
    status_of,
)
from knfleet.hub.placement.decisions.published import (
    clusters_in,
    in_between,
    placement_of,
    publication,
)
from knfleet.hub.placement.decisions.write_order import Write
from knfleet.hub.placement.scheduler.fleet_state import Fleet
from knfleet.hub.placement.scheduler.schedule_model import Decision
from tests.unit.hub.placement.samples import (
    NAMESPACE,
    NOW,
    by_cel,
    decide,
    fleet,
    manifest,
    placement,
    plain,
)


def many(count: int) -> Fleet:
    return plain(*(f"c{number:03}" for number in range(count)))


def planned(chosen: Placement, known: Fleet, *existing: DecisionObject) -> Changes:
    """What to do for what a Placement selects now."""
    return changes(chosen, decide(chosen, known), existing, NOW)


def as_written(plan: Changes) -> list[DecisionObject]:
    """The objects after everything was done."""
    return [replace(each, version="1", owner="u") for each in plan.targets.values()]


def grouped(size: int | str, *named: Object) -> dict[str, Any]:
    strategy = {"clustersPerDecisionGroup": size, "decisionGroups": list(named)}
    return {"decisionStrategy": {"groupStrategy": strategy}}


CANARY: Object = {
    "groupName": "canary",
    "groupClusterSelector": {"labelSelector": {"matchLabels": {"canary": "yes"}}},
}


def test_an_object_has_at_most_a_hundred_decisions():
    plan = planned(placement(), many(250))

    assert {name: len(each.decisions) for name, each in plan.targets.items()} == {
        "web-decision-1": 100,
        "web-decision-2": 100,
        "web-decision-3": 50,
    }
    (group,) = plan.groups
    assert group.cluster_count == 250
    assert group.decisions == ["web-decision-1", "web-decision-2", "web-decision-3"]


def test_nothing_selected_is_one_empty_object():
    plan = planned(placement(), many(0))

    assert plan.writes == (Write("web-decision-1", frozenset()),)
    assert plan.groups[0].cluster_count == 0


def test_nothing_is_done_twice():
    known = many(120)
    first = planned(placement(), known)
    known.put_decided(placement().key, frozenset(known.clusters))

    second = planned(placement(), known, *as_written(first))

    assert second.writes == ()
    assert second.relabeled == ()
    assert second.rewritten == ()
    assert not second.scores_written


def test_groups_are_labels_of_objects():
    known = fleet(manifest("a", {"canary": "yes"}), manifest("b"))

    plan = planned(placement(**grouped("100%", CANARY)), known)

    assert [dict(each.labels) for each in plan.targets.values()] == [
        {PLACEMENT_LABEL: "web", GROUP_INDEX_LABEL: "0", GROUP_NAME_LABEL: "canary"},
        {PLACEMENT_LABEL: "web", GROUP_INDEX_LABEL: "1", GROUP_NAME_LABEL: ""},
    ]


def test_an_object_never_changes_its_group():
    """Its labels and its decisions are two writes, between which it would lie."""
    known = fleet(manifest("a", {"canary": "yes"}), manifest("b"))
    before = as_written(planned(placement(**grouped("100%", CANARY)), known))

    plan = planned(placement(), known, *before)

    assert plan.relabeled == ()
    (target,) = plan.targets.values()
    assert target.name == "web-decision-3"
    assert plan.writes == (
        Write("web-decision-3", frozenset("ab")),
        Write("web-decision-1", None),
        Write("web-decision-2", None),
    )


def test_labels_and_owners_are_set_right():
    known = many(2)
    (written,) = as_written(planned(placement(), known))
    orphan = replace(written, owner="somebody")
    bare = replace(written, labels={})

    assert [each.name for each in planned(placement(), known, orphan).relabeled] == [
        "web-decision-1"
    ]
    assert [each.name for each in planned(placement(), known, bare).relabeled] == ["web-decision-1"]


def test_objects_made_by_hand_are_deleted():
    known = many(2)
    (written,) = as_written(planned(placement(), known))
    foreign = replace(written, name="by-hand", decisions=(Decision("x", "", 0),))

    plan = planned(placement(), known, written, foreign)

    assert plan.writes == (Write("by-hand", None),)


def test_decisions_changed_by_hand_are_written_again():
    known = many(2)
    (written,) = as_written(planned(placement(), known))
    forged = replace(written, decisions=(Decision("x", "", 0),))
    doubled = replace(written, decisions=written.decisions * 2)

    assert planned(placement(), known, forged).writes == (
        Write("web-decision-1", frozenset(known.clusters)),
    )
    assert planned(placement(), known, doubled).rewritten == ("web-decision-1",)


class TestScores:
    def scored(self, minutes: float) -> tuple[Placement, Fleet, DecisionObject]:
        """A Placement whose scores were written some time ago, and have changed since."""
        known = many(2)
        written = (NOW - timedelta(minutes=minutes)).isoformat()
        chosen = replace(placement(), status=PlacementStatus(last_score_update_time=written))
        (made,) = as_written(planned(chosen, known))
        known.put_decided(chosen.key, frozenset(known.clusters))
        older = tuple(replace(each, score=7) for each in made.decisions)
        return chosen, known, replace(made, decisions=older)

    def test_they_alone_are_not_written_too_often(self):
        chosen, known, made = self.scored(0.5)

        plan = planned(chosen, known, made)

        assert plan.rewritten == ()
        assert not plan.scores_written
        assert plan.scores_due == NOW + timedelta(seconds=30)

    def test_they_are_after_a_while(self):
        chosen, known, made = self.scored(2)

        plan = planned(chosen, known, made)

        assert plan.rewritten == ("web-decision-1",)
        assert plan.scores_written
        assert plan.scores_due is None


class TestMisconfigured:
    WRONG = placement(predicates=by_cel("nonsense("))

    def test_objects_stay_as_they_are(self):
        known = many(120)
        before = as_written(planned(placement(), known))
        known.put_decided(placement().key, frozenset(known.clusters))

        plan = planned(self.WRONG, known, *before)

        assert plan.writes == ()
        assert plan.groups[0].cluster_count == 120

    def test_clusters_that_are_gone_are_taken_out(self):
        known = many(3)
        before = as_written(planned(placement(), known))
        known.put_decided(placement().key, frozenset(known.clusters))
        known.put_cluster("c001", None)

        plan = planned(self.WRONG, known, *before)

        assert plan.writes == (Write("web-decision-1", frozenset({"c000", "c002"})),)

    def test_one_whose_name_is_no_label_has_none(self):
        chosen = placement("p" * 64)

        assert planned(chosen, many(3)).writes == ()
        assert "more than 63 characters" in decide(chosen, many(3)).misconfigured.message

    def test_one_that_never_worked_has_an_empty_object(self):
        assert planned(self.WRONG, many(3)).writes == (Write("web-decision-1", frozenset()),)


def test_an_object_says_whose_it_is_by_label_or_name():
    meta = {"name": "a-decision-1-decision-12", "namespace": "n"}

    assert placements_of({"metadata": meta}) == ["n/a-decision-1"]
    assert placements_of({"metadata": {**meta, "labels": {PLACEMENT_LABEL: "b"}}}) == ["n/b"]
    assert placements_of({"metadata": {"name": "web-decision-x", "namespace": "n"}}) == []


def test_what_is_written_is_read_back():
    decisions = [Decision("a", "why", 7)]
    written: Object = {
        "metadata": {
            "name": "web-decision-1",
            "resourceVersion": "5",
            "labels": {PLACEMENT_LABEL: "web"},
            "ownerReferences": [{"uid": "x"}, {"uid": "u", "controller": True}],
        },
        "status": status_of(decisions),
    }

    found = read(written)

    assert found.decisions == tuple(decisions)
    assert (found.owner, found.version, found.number) == ("u", "5", 1)
    assert read({"metadata": {"name": "x"}}).decisions == ()


def test_a_write_in_between_has_more_than_its_own():
    a, b = Decision("a", "", 1), Decision("b", "", 2)
    targets = {"web-decision-1": DecisionObject("web-decision-1", {}, (b,))}

    given = held(Write("web-decision-1", frozenset("ab")), targets, {"a": a, "b": b})

    assert given == [b, a]


class TestPublished:
    def decisions(self, count: int) -> list[Decision]:
        return [Decision(f"c{number:03}", "why", 1) for number in range(count)]

    def test_decisions_refer_to_profiles(self):
        made = publication(placement(), self.decisions(120), []).manifests

        assert list(made) == ["web-decision-1", "web-decision-2"]
        second = made["web-decision-2"]
        assert second["metadata"]["labels"] == {
            DECISION_KEY: "web",
            DECISION_INDEX: "1",
            PLACEMENT_KEY: "web",
        }
        assert second["metadata"]["namespace"] == NAMESPACE
        assert second["schedulerName"] == "knfleet"
        assert second["decisions"][0] == {
            "clusterProfileRef": {"name": "c100"},
            "reason": "why",
        }
        assert placement_of(second) == [f"{NAMESPACE}/web"]

    def test_nothing_is_written_twice(self):
        first = publication(placement(), self.decisions(120), [])

        second = publication(placement(), self.decisions(120), list(first.manifests.values()))

        assert second.writes == ()
        assert second.rewritten == ()

    @pytest.mark.parametrize("field", ["decisions", "labels", "owner"])
    def test_what_was_changed_by_hand_is_written_again(self, field: str):
        made = publication(placement(), self.decisions(2), []).manifests["web-decision-1"]
        changed: Object = {**made, "metadata": {**made["metadata"]}}
        if field == "decisions":
            changed["decisions"] = [{**each, "reason": "x"} for each in made["decisions"]]
        elif field == "labels":
            changed["metadata"]["labels"] = {**made["metadata"]["labels"], DECISION_INDEX: "9"}
        else:
            changed["metadata"]["ownerReferences"] = []

        plan = publication(placement(), self.decisions(2), [changed])

        assert plan.rewritten == ("web-decision-1",)

    def test_objects_of_other_schedulers_are_not_ours(self):
        assert placement_of({"metadata": {"name": "x"}, "schedulerName": "other"}) == []

    def test_a_cluster_in_two_objects_is_published_once(self):
        twice = [*self.decisions(2), *self.decisions(1)]

        made = publication(placement(), twice, []).manifests["web-decision-1"]

        assert clusters_in(made) == {"c000", "c001"}
        assert len(made["decisions"]) == 2

    def test_a_spare_object_is_one_of_the_decision(self):
        plan = publication(placement(), self.decisions(2), [])

        spare = in_between(placement(), Write("web-decision-7", frozenset({"c001"})), plan)

        assert spare["metadata"]["labels"][DECISION_INDEX] == "6"
        assert clusters_in(spare) == {"c001"}


def test_ten_thousand_clusters_are_a_hundred_objects():
    known = many(10_000)
    first = planned(placement(), known)
    known.put_decided(placement().key, frozenset(known.clusters))
    known.put_cluster("c000", None)

    second = planned(placement(), known, *as_written(first))

    assert len(first.targets) == 100
    assert len(second.writes) == 100
    assert second.writes[-1].clusters is not None
