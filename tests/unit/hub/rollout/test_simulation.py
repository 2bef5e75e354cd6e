"""Thousands of random rollouts, whose clusters succeed, fail, hang, join and leave.

A simulated controller does what the engine says, and nothing else. Time passes only by the engine's
own request to look again, or by an event.
"""

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.hub.rollout.rollout_model import Group, GroupReference, Plan, Progress, State, Strategy
from knfleet.hub.rollout.rollout_plan import concurrency, plan
from knfleet.hub.rollout.shares import share

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
KINDS = ("All", "Progressive", "ProgressivePerGroup")
BLOCKS = [0, *(pytest.param(block, marks=pytest.mark.full) for block in range(1, 20))]


class Fleet:
    """Clusters, and how they behave when they get a change."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = NOW
        self.groups = self.random_groups()
        self.strategy = self.random_strategy()
        self.states: dict[str, Progress] = {}
        self.acted: dict[str, int] = {}
        self.unhappy = chance.choice([0.0, 0.1, 0.4])
        self.joined = 0

    def random_groups(self) -> list[Group]:
        names = ["", "", "canary", "prod-canary-west"]
        return [
            Group(
                index,
                tuple(f"g{index}-{number}" for number in range(self.chance.randint(0, 6))),
                self.chance.choice(names),
            )
            for index in range(self.chance.randint(1, 5))
        ]

    def random_strategy(self) -> Strategy:
        chance = self.chance
        references = [GroupReference("canary"), GroupReference(index=1), GroupReference("none")]
        return Strategy(
            type=chance.choice(KINDS),
            mandatory=tuple(chance.sample(references, chance.randint(0, 2))),
            max_concurrency=chance.choice([None, 1, 2, 3, "25%", "50%", 0, 100]),
            max_failures=chance.choice([0, 1, 2, "10%", "50%", 100]),
            min_success_seconds=chance.choice([0, 0, 300]),
            # Without a deadline a cluster that hangs is waited for for ever, as it should be.
            deadline_seconds=600,
        )

    @property
    def clusters(self) -> set[str]:
        return {cluster for group in self.groups for cluster in group.clusters}

    def decide(self) -> Plan:
        return plan(self.groups, self.strategy, self.states, self.now)

    def follow(self, decided: Plan) -> None:
        """Do what the engine says."""
        for cluster in decided.act:
            self.acted[cluster] = self.acted.get(cluster, 0) + 1
            self.states[cluster] = Progress(State.PROGRESSING, self.now)
        for cluster in decided.removed:
            del self.states[cluster]
            self.acted.pop(cluster, None)

    def react(self, decided: Plan) -> None:
        """Let clusters react that have the change, or let time pass."""
        working = [
            name
            for name in decided.progressing
            if self.states[name].state is State.PROGRESSING and not self.hangs(name)
        ]
        if working and (not self.unhappy or self.chance.random() < 0.8):
            name = self.chance.choice(working)
            bad = self.chance.random() < self.unhappy
            self.states[name] = Progress(State.FAILED if bad else State.SUCCEEDED, self.now)
        elif decided.next_look is not None:
            self.now = max(self.now, decided.next_look)

    def hangs(self, name: str) -> bool:
        """Some clusters never finish."""
        return self.unhappy > 0 and name.endswith("3")

    def change(self) -> None:
        """A cluster joins, leaves, moves to another group, or fails after all."""
        kind = self.chance.choice(["join", "leave", "move", "relapse"])
        index = self.chance.randrange(len(self.groups))
        group = self.groups[index]
        if kind == "join":
            self.joined += 1
            self.put(index, (*group.clusters, f"joined-{self.joined}"))
        elif kind == "relapse" and self.states and self.unhappy > 0:
            name = self.chance.choice(sorted(self.states))
            if self.states[name].state is State.SUCCEEDED:
                self.states[name] = Progress(State.FAILED, self.now)
        elif group.clusters:
            name = self.chance.choice(group.clusters)
            self.put(index, tuple(each for each in group.clusters if each != name))
            if kind == "move":
                other = self.chance.randrange(len(self.groups))
                self.put(other, (*self.groups[other].clusters, name))

    def put(self, index: int, clusters: tuple[str, ...]) -> None:
        group = self.groups[index]
        self.groups[index] = Group(group.index, clusters, group.name)

    def mandatory(self) -> set[str]:
        return {
            cluster
            for group in self.groups
            for reference in self.strategy.mandatory
            if reference.selects(group)
            for cluster in group.clusters
        }


def check(fleet: Fleet, decided: Plan) -> None:
    """The promises of every single answer."""
    lists = [
        *(decided.act, decided.progressing, tuple(decided.waiting)),
        *(decided.failed, decided.timed_out, decided.done),
    ]
    every = [cluster for each in lists for cluster in each]
    assert sorted(every) == sorted(fleet.clusters), "each cluster is in exactly one list"
    assert set(decided.removed) == set(fleet.states) - fleet.clusters
    assert all(decided.waiting.values()), "every cluster that waits has a reason"
    assert all(fleet.states.get(each) is None for each in decided.act), "nothing is done twice"
    assert decided.next_look is None or decided.next_look > fleet.now
    failures = {*decided.failed, *decided.timed_out}
    mandatory = fleet.mandatory()
    if fleet.strategy.type == "All":
        return
    outside = set(decided.act) - mandatory
    if outside:
        assert not failures & mandatory, "a mandatory group tolerates no failure"
        assert not mandatory - set(decided.done), "mandatory groups come first"
    if fleet.strategy.type == "Progressive" and outside:
        total = len(fleet.clusters)
        slots = concurrency(fleet.strategy.max_concurrency, total)
        busy = set(decided.progressing) - mandatory
        assert len(busy | outside) <= slots, "never more at a time"
        assert len(failures - mandatory) <= share(fleet.strategy.max_failures, total)


def play(seed: int, *, changes: int) -> Fleet:
    """One rollout from its beginning to its end."""
    fleet = Fleet(random.Random(seed))
    decided = fleet.decide()
    for step in range(2000):
        decided = fleet.decide()
        check(fleet, decided)
        fleet.follow(decided)
        if changes and step % 3 == 0:
            fleet.change()
            changes -= 1
        elif decided.complete or (decided.stopped and not decided.progressing):
            # Nothing can happen any more, unless something changes.
            assert not changes or step % 3
            if not changes:
                break
        fleet.react(fleet.decide())
    else:
        pytest.fail(f"the rollout of seed {seed} does not end: {decided}")
    return fleet


@pytest.mark.parametrize("block", BLOCKS)
def test_random_rollouts_keep_their_promises_and_end(block: int):
    for seed in range(block * 150, block * 150 + 150):
        fleet = play(seed, changes=0)
        decided = fleet.decide()

        assert decided.complete or decided.stopped
        assert max(fleet.acted.values(), default=1) == 1
        if not fleet.unhappy:
            assert set(decided.done) == fleet.clusters


@pytest.mark.parametrize("block", BLOCKS)
def test_fleets_that_change_in_the_middle_keep_them_too(block: int):
    for seed in range(block * 100, block * 100 + 100):
        fleet = play(seed, changes=30)
        decided = fleet.decide()

        assert decided.complete or decided.stopped
        assert set(fleet.states) <= fleet.clusters
        if not fleet.unhappy:
            assert set(decided.done) == fleet.clusters


def test_the_rollout_of_the_getting_started_guide_ends_with_one_cluster_timed_out():
    """Two canary groups, then a quarter of all at a time, five minutes of success for each."""
    west = tuple(f"west-{number}" for number in range(3))
    east = tuple(f"east-{number}" for number in range(3))
    others = tuple(f"prod-{number:02}" for number in range(34))
    groups = [
        Group(0, west, "prod-canary-west"),
        Group(1, east, "prod-canary-east"),
        Group(2, others),
    ]
    strategy = Strategy(
        type="Progressive",
        mandatory=(GroupReference("prod-canary-west"), GroupReference("prod-canary-east")),
        max_concurrency="25%",
        min_success_seconds=300,
        deadline_seconds=600,
        max_failures=2,
    )
    now = NOW
    states: dict[str, Progress] = {}
    order: list[tuple[str, ...]] = []
    for _ in range(100):
        decided = plan(groups, strategy, states, now)
        if decided.complete:
            break
        if decided.act:
            order.append(decided.act)
        for cluster in decided.act:
            # Ready within a minute, but for one that never is.
            hangs = cluster == "prod-03"
            state = State.PROGRESSING if hangs else State.SUCCEEDED
            states[cluster] = Progress(state, now if hangs else now + timedelta(minutes=1))
        following = plan(groups, strategy, states, now)
        assert following.complete or following.next_look is not None
        now = following.next_look or now

    final = plan(groups, strategy, states, now)
    assert final.complete
    assert final.timed_out == ("prod-03",)
    assert len(final.done) == 39
    assert order[:2] == [west, east]
    assert len(order[2]) == 10
    assert now - NOW < timedelta(hours=1)


NAMES = st.sampled_from([f"c{number}" for number in range(8)])
GROUPS = st.lists(st.lists(NAMES, max_size=6), max_size=4).map(
    lambda found: [Group(index, tuple(names)) for index, names in enumerate(found)]
)
PROGRESS = st.builds(
    Progress,
    st.sampled_from(list(State)),
    st.one_of(st.none(), st.integers(-500, 500).map(lambda each: NOW + timedelta(seconds=each))),
)
STRATEGIES = st.builds(
    Strategy,
    type=st.sampled_from(KINDS),
    mandatory=st.lists(st.builds(GroupReference, index=st.integers(0, 4)), max_size=2).map(tuple),
    max_concurrency=st.one_of(st.none(), st.integers(-2, 9), st.sampled_from(["0%", "30%"])),
    max_failures=st.one_of(st.integers(-1, 9), st.sampled_from(["0%", "30%", "100%"])),
    min_success_seconds=st.sampled_from([0.0, 60.0]),
    deadline_seconds=st.one_of(st.none(), st.just(60.0)),
)


@given(GROUPS, STRATEGIES, st.dictionaries(NAMES, PROGRESS), st.booleans())
def test_any_input_has_an_answer_for_every_cluster(
    groups: list[Group], strategy: Strategy, states: dict[str, Progress], paused: bool
):
    decided = plan(groups, strategy, states, NOW, paused=paused)

    clusters = {cluster for group in groups for cluster in group.clusters}
    assert decided.total == len(clusters)
    assert set(decided.removed) == set(states) - clusters
    assert not (paused and decided.act)
    assert all(
        states.get(each, Progress(State.TO_APPLY)).state == State.TO_APPLY for each in decided.act
    )
    assert plan(groups, strategy, states, NOW, paused=paused) == decided


@given(GROUPS, STRATEGIES, st.dictionaries(NAMES, PROGRESS))
def test_following_an_answer_changes_nothing_for_the_others(
    groups: list[Group], strategy: Strategy, states: dict[str, Progress]
):
    """What was begun is waited for, and not begun again."""
    decided = plan(groups, strategy, states, NOW)
    followed = {**states, **{each: Progress(State.PROGRESSING, NOW) for each in decided.act}}

    after = plan(groups, strategy, followed, NOW)

    assert not set(after.act) & set(decided.act)
    assert set(decided.act) <= {*after.progressing, *after.timed_out}
    assert after.done == decided.done
    if strategy.type == "Progressive" and decided.act:
        assert after.act == ()
