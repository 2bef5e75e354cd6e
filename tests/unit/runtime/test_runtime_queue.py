"""What the work queue promises, each promise by itself and all of them under any sequence."""

import asyncio
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from knfleet.api.meta import HUB, ClusterName, Key, Request
from knfleet.runtime.queue import Backoff, QueueOptions, QueueSlots, WorkQueue
from testbed.waiting import PATIENCE_SECONDS
from tests.unit.runtime.clocks import HandClock


def request(name: str = "a", cluster: str = "one") -> Request:
    return Request(ClusterName(cluster), Key("default", name))


def queue_of(clock: HandClock, per_cluster: int = 4, shared: int = 8) -> WorkQueue:
    return WorkQueue(
        QueueOptions(slots=QueueSlots(per_cluster, shared), clock=clock, chance=lambda: 0.0)
    )


def take_all(queue: WorkQueue) -> list[Request]:
    """Take until nothing can be taken."""
    taken: list[Request] = []
    while (taken_now := queue.take()) is not None:
        taken.append(taken_now)
    return taken


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_a_request_added_often_is_taken_once(clock: HandClock):
    """Adding says that something changed, not how often."""
    queue = queue_of(clock)
    for _ in range(5):
        queue.add(request())

    assert [request()] == take_all(queue)


def test_a_request_added_while_it_is_worked_on_comes_again_afterwards(clock: HandClock):
    """The change may have come after the work looked."""
    queue = queue_of(clock)
    queue.add(request())
    queue.take()
    queue.add(request())
    queue.add(request())

    during = queue.take()
    queue.done(request())

    assert during is None
    assert [request()] == take_all(queue)
    queue.done(request())
    assert take_all(queue) == []


def test_the_earliest_time_asked_for_wins(clock: HandClock):
    """A later wish never postpones an earlier one, and an earlier one moves it forward."""
    queue = queue_of(clock)
    queue.add_after(request(), 30)
    queue.add_after(request(), 10)
    queue.add_after(request(), 20)

    clock.advance(9.9)
    early = take_all(queue)
    clock.advance(0.1)

    assert early == []
    assert [request()] == take_all(queue)
    queue.done(request())
    clock.advance(100)
    assert take_all(queue) == []


def test_a_request_that_becomes_due_while_it_is_worked_on_comes_afterwards(clock: HandClock):
    """Time passes during work, too."""
    queue = queue_of(clock)
    queue.add(request())
    queue.take()
    queue.add_after(request(), 5)

    clock.advance(5)
    queue.done(request())

    assert [request()] == take_all(queue)


def test_failures_wait_longer_each_time_up_to_the_limit(clock: HandClock):
    """5 ms, 10 ms, 20 ms … and never more than the limit, until it went well once."""
    queue = queue_of(clock)

    delays = [queue.retry(request()) for _ in range(2000)]
    queue.forget(request())

    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == 120
    assert queue.retry(request()) == 0.005


def test_chance_only_shortens_a_delay():
    """What failed together comes apart, within the limit."""
    backoff = Backoff(first_seconds=8, limit_seconds=100, jitter=0.25)

    assert [backoff.delay(1, 0.0), backoff.delay(1, 1.0)] == [8.0, 6.0]
    assert backoff.delay(50, 1.0) == 75.0


def test_one_request_of_a_cluster_does_not_wait_for_a_thousand_of_another(clock: HandClock):
    """Clusters take turns."""
    queue = queue_of(clock, per_cluster=1000, shared=2000)
    for number in range(1000):
        queue.add(request(f"n{number}", "crowded"))
    queue.take()
    queue.add(request("only", "quiet"))

    assert request("only", "quiet") == queue.take()


def test_hung_clusters_hold_the_pool_but_never_the_first_slot_of_another(clock: HandClock):
    """Fifty clusters that never answer leave the fifty-first its slot."""
    queue = queue_of(clock, per_cluster=4, shared=8)
    for number in range(200):
        queue.add(request(f"n{number}", f"hung{number % 50}"))
    hung = take_all(queue)
    queue.add(request("a", "healthy"))
    queue.add(request("b", "healthy"))

    assert len(hung) == 50 + 8
    assert [request("a", "healthy")] == take_all(queue)


def test_one_cluster_gets_no_more_than_its_limit(clock: HandClock):
    """And gets the next slot as soon as one of its own is free."""
    queue = queue_of(clock, per_cluster=3, shared=100)
    for number in range(10):
        queue.add(request(f"n{number}"))

    first = take_all(queue)
    queue.done(first[0])

    assert [taken.key.name for taken in first] == ["n0", "n1", "n2"]
    assert [taken.key.name for taken in take_all(queue)] == ["n3"]


def test_a_hub_object_uses_the_slot_of_the_cluster_that_it_is_about(clock: HandClock):
    """All Knative objects live on the hub; what they do happens on the spokes."""
    queue = WorkQueue(
        QueueOptions(
            slots=QueueSlots(per_cluster=1, shared=100),
            clock=clock,
            cluster_of=lambda request: ClusterName(request.key.name.partition("-")[0]),
        )
    )
    for name in ("slow-1", "slow-2", "fast-1"):
        queue.add(Request(HUB, Key("", name)))

    assert [taken.key.name for taken in take_all(queue)] == ["slow-1", "fast-1"]


def test_a_cluster_that_left_has_nothing_in_the_queue(clock: HandClock):
    """Neither now nor later, and others keep theirs."""
    queue = queue_of(clock)
    for cluster in ("gone", "stays"):
        queue.add(request("ready", cluster))
        queue.add_after(request("later", cluster), 5)
        queue.retry(request("failed", cluster))
    queue.add(request("running", "gone"))
    running = [taken for taken in take_all(queue) if taken.key.name == "running"]
    queue.add(request("running", "gone"))
    for taken in list(queue.running):
        if taken not in running:
            queue.done(taken)

    queue.drop(ClusterName("gone"))
    queue.done(running[0])
    clock.advance(1000)

    assert {"stays"} == {taken.cluster for taken in take_all(queue)}
    assert {request("failed", "stays")} == set(queue.failures)


async def test_get_waits_for_work_and_ends_when_stopped(clock: HandClock):
    """A stopped queue gives nothing, even if it has something."""
    queue = queue_of(clock)
    async with asyncio.timeout(PATIENCE_SECONDS):
        waiting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.add(request())
        got = await waiting
        waiting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.add(request("b"))
        queue.stop()
        queue.add(request("c"))

        assert request() == got
        assert await waiting is None
        assert queue.take() is None


class Observed:
    """Counts what the queue tells."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()
        self.waited: list[float] = []
        self.worked: list[float] = []

    def added(self) -> None:
        self.heard["added"] += 1

    def started(self, waited_seconds: float) -> None:
        self.waited.append(waited_seconds)

    def finished(self, worked_seconds: float) -> None:
        self.worked.append(worked_seconds)

    def retried(self) -> None:
        self.heard["retried"] += 1


def test_it_tells_how_long_requests_waited_and_were_worked_on(clock: HandClock):
    """Waiting begins when the time has come, not when it was asked for."""
    observed = Observed()
    queue = WorkQueue(QueueOptions(clock=clock, observe=observed))
    queue.add_after(request(), 10)
    clock.advance(13)

    queue.take()
    clock.advance(2)
    longest = queue.longest_running_seconds()
    queue.done(request())
    queue.retry(request())

    assert (observed.waited, observed.worked, longest) == ([3.0], [2.0], 2.0)
    assert observed.heard == {"added": 1, "retried": 1}


CLUSTERS = ("one", "two", "three")
REQUESTS = st.builds(
    request, st.sampled_from([f"n{number}" for number in range(6)]), st.sampled_from(CLUSTERS)
)


class QueueMachine(RuleBasedStateMachine):
    """Any sequence of calls, against a model that only knows what is owed to whom."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock(0.0)
        self.queue = queue_of(self.clock, per_cluster=2, shared=2)
        self.owed: dict[Request, float] = {}
        """When each request that was asked for must be ready at the latest."""
        self.running: dict[Request, float] = {}
        self.passed_over: Counter[str] = Counter()
        """How many requests of others were taken while a cluster with a free slot had to wait."""

    def ask(self, asked: Request, when: float) -> None:
        self.owed[asked] = min(self.owed.get(asked, float("inf")), when)

    def takeable(self) -> set[ClusterName]:
        """Clusters that have something ready and no slot in use."""
        ready = {
            asked.cluster
            for asked, when in self.owed.items()
            if when <= self.clock.now and asked not in self.running
        }
        return ready - {running.cluster for running in self.running}

    @rule(asked=REQUESTS)
    def add(self, asked: Request) -> None:
        self.queue.add(asked)
        self.ask(asked, self.clock.now)

    @rule(asked=REQUESTS, seconds=st.integers(0, 20))
    def add_after(self, asked: Request, seconds: int) -> None:
        self.queue.add_after(asked, seconds)
        self.ask(asked, self.clock.now + seconds)

    @rule(asked=REQUESTS)
    def retry(self, asked: Request) -> None:
        self.ask(asked, self.clock.now + self.queue.retry(asked))

    @rule(asked=REQUESTS)
    def forget(self, asked: Request) -> None:
        self.queue.forget(asked)

    @rule(seconds=st.integers(0, 15))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def take(self) -> None:
        could = self.takeable()

        taken = self.queue.take()

        if taken is None:
            assert not could
            return
        assert taken not in self.running
        assert self.owed.pop(taken) <= self.clock.now
        self.running[taken] = self.clock.now
        for cluster in could - {taken.cluster}:
            self.passed_over[cluster] += 1
        self.passed_over[taken.cluster] = 0

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        ended = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[ended]
        self.queue.done(ended)

    @rule(cluster=st.sampled_from(CLUSTERS))
    def drop(self, cluster: str) -> None:
        self.queue.drop(ClusterName(cluster))
        self.owed = {asked: when for asked, when in self.owed.items() if asked.cluster != cluster}
        self.passed_over[cluster] = 0

    @invariant()
    def slots_are_kept(self) -> None:
        used = Counter(running.cluster for running in self.running)
        assert all(count <= 2 for count in used.values())
        assert sum(count - 1 for count in used.values()) == 2 - self.queue.pool

    @invariant()
    def turns_are_fair(self) -> None:
        assert all(count < len(CLUSTERS) for count in self.passed_over.values())

    @invariant()
    def nothing_else_is_kept(self) -> None:
        known = set(self.queue.ready) | set(self.queue.due)
        known |= {asked for asked, work in self.queue.running.items() if work.again}
        assert known == set(self.owed)

    def teardown(self) -> None:
        """Nothing is lost: with time and slots, everything asked for comes, and comes once."""
        for ended in list(self.running):
            self.queue.done(ended)
        self.clock.advance(1000)
        came: list[Request] = []
        while (taken := self.queue.take()) is not None:
            came.append(taken)
            self.queue.done(taken)
        assert sorted(self.owed) == sorted(came)
        assert not self.queue.lines
        assert not self.queue.timetable


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
test_every_sequence = QueueMachine.TestCase
