"""The rollout engine: who gets a change now, who waits and why."""

from datetime import UTC, datetime, timedelta

import pytest

from knfleet.hub.rollout.rollout_model import Group, GroupReference, Plan, Progress, State, Strategy
from knfleet.hub.rollout.rollout_plan import plan

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
CANARY = "canary"
NINE = [Group(0, ("c1",), CANARY), Group(1, tuple(f"c{number}" for number in range(2, 10)))]
"""Nine clusters, one of which is the mandatory group."""
MANDATORY = (GroupReference(CANARY),)


def since(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def states(**given: State) -> dict[str, Progress]:
    """States that began a moment ago, except those that take long."""
    return {name: Progress(state, since(1)) for name, state in given.items()}


def succeeded(*names: str) -> dict[str, Progress]:
    return {name: Progress(State.SUCCEEDED, since(60)) for name in names}


class TestDefectsOfTheReferenceEngine:
    """Each situation in which the engine of Open Cluster Management does something else."""

    def test_a_remaining_cluster_that_timed_out_is_tolerated(self):
        """Theirs returns nothing more to roll out, for ever."""
        strategy = Strategy(
            type="Progressive",
            mandatory=MANDATORY,
            max_concurrency=2,
            max_failures=2,
            deadline_seconds=600,
        )
        known = {**succeeded("c1"), "c2": Progress(State.PROGRESSING, since(11))}

        decided = plan(NINE, strategy, known, NOW)

        assert decided.act == ("c3", "c4")
        assert decided.timed_out == ("c2",)
        assert not decided.stopped

    def test_the_same_without_mandatory_groups(self):
        strategy = Strategy(
            type="Progressive", max_concurrency=2, max_failures=2, deadline_seconds=600
        )
        known = {**succeeded("c1"), "c2": Progress(State.PROGRESSING, since(11))}

        assert plan(NINE, strategy, known, NOW).act == ("c3", "c4")

    def test_both_slots_are_used(self):
        """Theirs waits for the whole batch."""
        strategy = Strategy(type="Progressive", mandatory=MANDATORY, max_concurrency=2)
        known = {**succeeded("c1"), **states(c2=State.PROGRESSING)}

        decided = plan(NINE, strategy, known, NOW)

        assert decided.act == ("c3",)
        assert decided.progressing == ("c2",)

    def test_more_failures_than_clusters_may_be_tolerated(self):
        """Theirs takes 20 of 9 for none."""
        strategy = Strategy(type="Progressive", max_concurrency=2, max_failures=20)
        known = {**succeeded("c1"), **states(c2=State.FAILED, c3=State.TIMED_OUT)}

        assert plan(NINE, strategy, known, NOW).act == ("c4", "c5")


class TestAll:
    def test_all_clusters_are_changed_at_once(self):
        decided = plan(NINE, Strategy(), {}, NOW)

        assert decided.act == tuple(f"c{number}" for number in range(1, 10))
        assert decided.waiting == {}

    def test_failures_stop_nothing_and_time_outs_are_reported(self):
        known = {**states(c1=State.FAILED), "c2": Progress(State.PROGRESSING, since(11))}

        decided = plan(NINE, Strategy(deadline_seconds=600), known, NOW)

        assert decided.failed == ("c1",)
        assert decided.timed_out == ("c2",)
        assert len(decided.act) == 7

    def test_success_counts_at_once(self):
        known = {name: Progress(State.SUCCEEDED, NOW) for name in ("c1", "c2")}

        assert plan(NINE, Strategy(min_success_seconds=300), known, NOW).done == ("c1", "c2")


class TestProgressive:
    def test_mandatory_groups_come_one_after_another_and_whole(self):
        groups = [
            Group(0, ("w1", "w2"), "west"),
            Group(1, ("e1",), "east"),
            Group(2, ("a", "b", "c")),
        ]
        strategy = Strategy(
            type="Progressive",
            mandatory=(GroupReference("east"), GroupReference("west")),
            max_concurrency=1,
        )

        first = plan(groups, strategy, {}, NOW)
        second = plan(groups, strategy, succeeded("e1"), NOW)
        third = plan(groups, strategy, succeeded("e1", "w1", "w2"), NOW)

        assert first.act == ("e1",)
        assert first.waiting["w1"] == "mandatory decision group east must succeed first"
        assert second.act == ("w1", "w2")
        assert third.act == ("a",)
        assert third.waiting["b"] == "at most 1 clusters are changed at a time; waiting for a"

    def test_a_group_can_be_named_by_its_index(self):
        strategy = Strategy(type="Progressive", mandatory=(GroupReference(index=1),))

        assert plan(NINE, strategy, {}, NOW).act == NINE[1].clusters

    def test_all_parts_of_a_divided_group_are_mandatory(self):
        groups = [Group(0, ("a",), CANARY), Group(1, ("b",), CANARY), Group(2, ("c",))]
        strategy = Strategy(type="Progressive", mandatory=MANDATORY)

        assert plan(groups, strategy, {}, NOW).act == ("a",)
        assert plan(groups, strategy, succeeded("a"), NOW).act == ("b",)
        assert plan(groups, strategy, succeeded("a", "b"), NOW).act == ("c",)

    def test_a_failure_in_a_mandatory_group_stops_everything(self):
        strategy = Strategy(type="Progressive", mandatory=MANDATORY, max_failures=9)

        decided = plan(NINE, strategy, states(c1=State.FAILED), NOW)

        assert decided.act == ()
        assert decided.stopped == (
            "c1 failed or timed out in mandatory decision group canary,"
            " where no failure is tolerated"
        )
        assert set(decided.waiting.values()) == {decided.stopped}

    def test_a_mandatory_group_that_does_not_exist_is_reported(self):
        strategy = Strategy(type="Progressive", mandatory=(GroupReference("cannary"),))

        decided = plan(NINE, strategy, {}, NOW)

        assert decided.missing_groups == ("cannary",)
        assert decided.act

    def test_too_many_failures_stop_what_is_new_and_recovery_resumes(self):
        strategy = Strategy(type="Progressive", max_concurrency=2, max_failures=1)
        known = {**succeeded("c1"), **states(c2=State.FAILED, c3=State.FAILED)}

        stopped = plan(NINE, strategy, known, NOW)
        resumed = plan(NINE, strategy, {**known, **succeeded("c3")}, NOW)

        assert stopped.act == ()
        assert stopped.stopped == "c2, c3 failed or timed out, where at most 1 may fail"
        assert resumed.act == ("c4", "c5")

    def test_a_cluster_keeps_its_slot_until_its_success_has_lasted(self):
        strategy = Strategy(type="Progressive", max_concurrency=1, min_success_seconds=300)
        known = {"c1": Progress(State.SUCCEEDED, since(4))}

        early = plan(NINE, strategy, known, NOW)
        late = plan(NINE, strategy, known, NOW + timedelta(minutes=1))

        assert early.act == ()
        assert early.progressing == ("c1",)
        assert early.next_look == NOW + timedelta(minutes=1)
        assert late.act == ("c2",)
        assert late.next_look is None

    def test_the_next_look_is_at_the_deadline(self):
        strategy = Strategy(type="Progressive", max_concurrency=1, deadline_seconds=600)
        known = {"c1": Progress(State.PROGRESSING, since(4))}

        assert plan(NINE, strategy, known, NOW).next_look == NOW + timedelta(minutes=6)

    @pytest.mark.parametrize(
        ("written", "slots"),
        [
            (1, 1),
            ("25%", 3),
            ("1%", 1),
            ("100%", 9),
            (0, 9),
            ("0%", 9),
            (-1, 9),
            (20, 9),
            (None, 9),
        ],
    )
    def test_percentages_are_rounded_up_and_nonsense_means_all(
        self, written: int | str | None, slots: int
    ):
        strategy = Strategy(type="Progressive", max_concurrency=written)

        assert len(plan(NINE, strategy, {}, NOW).act) == slots

    @pytest.mark.parametrize(("written", "tolerated"), [("10%", 1), ("0%", 0), ("50%", 5), (3, 3)])
    def test_failures_may_be_a_percentage_of_all_clusters(self, written: int | str, tolerated: int):
        strategy = Strategy(type="Progressive", max_concurrency=1, max_failures=written)
        names = [f"c{number}" for number in range(1, 10)]

        enough = states(**dict.fromkeys(names[:tolerated], State.FAILED))
        more = states(**dict.fromkeys(names[: tolerated + 1], State.FAILED))

        assert plan(NINE, strategy, enough, NOW).act
        assert not plan(NINE, strategy, more, NOW).act


class TestPerGroup:
    GROUPS = (Group(0, ("a", "b")), Group(1, ("c", "d", "e", "f")), Group(2, ("g",), CANARY))

    def test_groups_come_by_index_after_the_mandatory_ones(self):
        strategy = Strategy(type="ProgressivePerGroup", mandatory=MANDATORY)

        assert plan(self.GROUPS, strategy, {}, NOW).act == ("g",)
        assert plan(self.GROUPS, strategy, succeeded("g"), NOW).act == ("a", "b")
        assert plan(self.GROUPS, strategy, succeeded("g", "a", "b"), NOW).act == (
            *("c", "d", "e", "f"),
        )

    def test_the_next_group_waits_for_the_last_cluster(self):
        strategy = Strategy(type="ProgressivePerGroup")
        known = {**succeeded("a"), **states(b=State.PROGRESSING)}

        decided = plan(self.GROUPS, strategy, known, NOW)

        assert decided.act == ()
        assert decided.waiting["c"] == ("decision group number 0 must succeed first; waiting for b")

    def test_failures_count_for_each_group(self):
        strategy = Strategy(type="ProgressivePerGroup", max_failures="50%")
        one_of_two = {**succeeded("a"), **states(b=State.FAILED)}
        two_more = {**one_of_two, **succeeded("c", "d"), **states(e=State.FAILED, f=State.FAILED)}
        three_more = {**two_more, **states(d=State.FAILED)}

        assert plan(self.GROUPS, strategy, one_of_two, NOW).act == ("c", "d", "e", "f")
        assert plan(self.GROUPS, strategy, two_more, NOW).act == ("g",)
        assert "decision group number 1" in plan(self.GROUPS, strategy, three_more, NOW).stopped


class TestChangesInTheMiddle:
    STRATEGY = Strategy(type="Progressive", mandatory=MANDATORY, max_concurrency=2)

    def test_a_cluster_that_leaves_is_removed_whatever_else_happens(self):
        known = {**states(c1=State.FAILED), **succeeded("gone")}

        decided = plan(NINE, self.STRATEGY, known, NOW)

        assert decided.stopped
        assert decided.removed == ("gone",)

    def test_a_cluster_that_joins_a_finished_group_gets_the_change_next(self):
        joined = [Group(0, ("c0", "c1"), CANARY), NINE[1]]
        known = {**succeeded("c1"), **states(c2=State.PROGRESSING)}

        decided = plan(joined, self.STRATEGY, known, NOW)

        assert decided.act == ("c0",)
        assert decided.progressing == ("c2",)
        assert "mandatory decision group canary must succeed first" in decided.waiting["c3"]

    def test_a_cluster_in_two_groups_gets_the_change_once(self):
        twice = [Group(0, ("c1", "c1"), CANARY), Group(1, ("c1", "c2"))]

        assert plan(twice, Strategy(), {}, NOW).act == ("c1", "c2")

    def test_nothing_is_begun_while_paused(self):
        known = {**succeeded("c1"), **states(c2=State.PROGRESSING)}

        paused = plan(NINE, self.STRATEGY, known, NOW, paused=True)
        resumed = plan(NINE, self.STRATEGY, known, NOW)

        assert paused.act == ()
        assert paused.waiting["c3"] == "the rollout is paused"
        assert resumed.act == ("c3",)

    def test_a_cluster_that_needs_nothing_takes_no_slot(self):
        known = {**succeeded("c1"), **states(c2=State.SKIPPED, c3=State.SKIPPED)}

        assert plan(NINE, self.STRATEGY, known, NOW).act == ("c4", "c5")

    def test_times_in_the_future_only_delay(self):
        """A cluster whose clock is ahead soaks longer; nothing is skipped or lost."""
        strategy = Strategy(type="Progressive", max_concurrency=1, min_success_seconds=300)
        known = {"c1": Progress(State.SUCCEEDED, since(-60))}

        decided = plan(NINE, strategy, known, NOW)

        assert decided.progressing == ("c1",)
        assert decided.next_look == NOW + timedelta(minutes=65)

    def test_success_without_a_time_counts(self):
        strategy = Strategy(type="Progressive", max_concurrency=1, min_success_seconds=300)

        assert plan(NINE, strategy, {"c1": Progress(State.SUCCEEDED)}, NOW).done == ("c1",)

    def test_without_clusters_everything_is_complete(self):
        for kind in ("All", "Progressive", "ProgressivePerGroup"):
            decided = plan([], Strategy(type=kind), {}, NOW)

            assert decided == Plan()
            assert decided.complete


def test_a_success_in_the_future_is_not_waited_for():
    """A cluster whose clock is wrong would hold its slot until then."""
    strategy = Strategy(type="Progressive", max_concurrency=1, min_success_seconds=300)
    ahead = {"c2": Progress(State.SUCCEEDED, NOW + timedelta(days=365))}
    little = {"c2": Progress(State.SUCCEEDED, NOW + timedelta(minutes=1))}
    groups = [Group(0, ("c2", "c3"))]

    assert plan(groups, strategy, ahead, NOW).act == ("c3",)
    assert plan(groups, strategy, little, NOW).act == ()
