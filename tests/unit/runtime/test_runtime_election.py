"""The rules of the election: each by itself, and all of them under any misfortune."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from knfleet.api.meta import Key, Object
from knfleet.runtime.leader.lease_rules import Candidate, LeaseTiming

TIMING = LeaseTiming()
WALL = datetime(2026, 11, 15, 12, 0, 0, 7, UTC)


def candidate(identity: str = "me") -> Candidate:
    return Candidate(Key("knfleet", "lock"), identity, TIMING)


def lease(holder: str, renewed: str = "2026-11-15T12:00:00.000000Z", **spec: object) -> Object:
    return {
        "metadata": {"namespace": "knfleet", "name": "lock", "resourceVersion": "7"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed} | spec,
    }


def test_times_that_allow_two_leaders_are_refused():
    """What a leader began must have ended before another may begin."""
    with pytest.raises(ValueError, match="retry < renew < lease"):
        LeaseTiming(lease_seconds=10, renew_seconds=10)


def test_a_lease_that_nobody_has_seen_is_taken_at_once():
    """The first start of an installation does not wait."""
    me = candidate()
    me.observe(None, 100)

    proposal = me.proposal(100, WALL)

    assert proposal is not None
    assert proposal["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-15T12:00:00.000007Z",
        "renewTime": "2026-11-15T12:00:00.000007Z",
        "leaseTransitions": 0,
    }


def test_who_makes_a_lease_waits_until_a_leader_without_one_would_know():
    """It may have been deleted under a leader, which finds out by its next renewal."""
    me = candidate()
    me.observe(None, 100)
    first = me.proposal(100, WALL)
    assert first is not None
    me.accepted(first, 100)
    before, wait = me.leads(103.9), me.wait_seconds(103.5)
    renewal = me.proposal(103, WALL + timedelta(seconds=3))
    assert renewal is not None
    me.accepted(renewal, 103)

    assert (before, me.leads(104), wait) == (False, True, 0.5)
    assert renewal["spec"]["acquireTime"] == first["spec"]["acquireTime"]
    assert renewal["spec"]["leaseTransitions"] == 0
    assert [me.leads(112.9), me.leads(113)] == [True, False]


def test_who_waited_a_full_term_for_a_lease_that_was_deleted_leads_at_once():
    """Any leader has stopped by then."""
    me = candidate()
    me.observe(lease("other"), 100)
    me.observe(None, 101)
    me.accepted(lease("me"), 116)

    assert me.leads(116)


def test_a_held_lease_is_taken_a_full_term_after_its_last_change_as_seen_here():
    """The times in the record do not matter, however old they are."""
    me = candidate()
    me.observe(lease("other", "1999-01-01T00:00:00.000000Z", leaseTransitions=3), 100)
    me.observe(lease("other", "1999-01-01T00:00:00.000001Z", leaseTransitions=3), 110)
    me.observe(lease("other", "1999-01-01T00:00:00.000001Z", leaseTransitions=3), 124)

    early = me.proposal(124.9, WALL)
    proposal = me.proposal(125, WALL)

    assert early is None
    assert proposal is not None
    assert (
        proposal["spec"]["holderIdentity"],
        proposal["spec"]["leaseTransitions"],
    ) == ("me", 4)
    assert proposal["metadata"]["resourceVersion"] == "7"


def test_the_holders_own_term_counts():
    """A holder that promised to renew less often is given its time."""
    me = candidate()
    me.observe(lease("other", leaseDurationSeconds=60), 100)

    assert me.proposal(159, WALL) is None
    assert me.proposal(160, WALL) is not None


def test_a_released_lease_is_taken_at_once():
    """An empty holder is how a leader says goodbye."""
    me = candidate()
    me.observe(lease("other"), 100)
    me.observe(lease(""), 101)

    assert me.proposal(101, WALL) is not None


def test_a_deleted_lease_is_left_to_its_holder_for_a_full_term():
    """The holder may not know yet that it is gone."""
    me = candidate()
    me.observe(lease("other"), 100)
    me.observe(None, 114)
    me.observe(None, 120)

    assert me.proposal(128.9, WALL) is None
    assert me.proposal(129, WALL) is not None


def test_a_leader_writes_a_deleted_lease_again():
    """It leads until its renewal is due, and nobody else may write before."""
    me = candidate()
    me.observe(None, 100)
    me.accepted(lease("me"), 100)
    me.observe(None, 105)

    assert me.proposal(105, WALL) is not None
    assert me.proposal(110, WALL) is None


def test_leading_counts_from_before_the_renewal_was_sent():
    """A slow answer does not lengthen a term."""
    me = candidate()
    me.accepted(lease("me"), 100)

    assert (me.leads(109.9), me.leads(110)) == (True, False)


def test_seeing_another_holder_ends_leading():
    """At once, whatever time is left."""
    me = candidate()
    me.accepted(lease("me"), 100)
    me.observe(lease("other"), 101)

    assert not me.leads(101)


def test_every_renewal_changes_the_record_even_if_the_wall_clock_stands_still():
    """Followers only see changes: a renewal without one would renew nothing."""
    me = candidate()
    me.observe(None, 100)
    seen: list[str] = []
    for second, wall in enumerate((WALL, WALL, WALL - timedelta(days=1), WALL)):
        proposal = me.proposal(100 + second, wall)
        assert proposal is not None
        me.accepted(proposal, 100 + second)
        seen.append(proposal["spec"]["renewTime"])

    assert sorted(set(seen)) == seen


def test_a_renewal_keeps_what_it_does_not_know():
    """Fields of newer servers, labels, and the time of the first acquisition stay."""
    me = candidate()
    held = lease("me", strategy="OldestEmulationVersion", acquireTime="before", leaseTransitions=5)
    held["metadata"]["labels"] = {"a": "b"}
    me.accepted(held, 100)

    proposal = me.proposal(101, WALL)

    assert proposal is not None
    assert (
        proposal["spec"]["strategy"],
        proposal["spec"]["acquireTime"],
        proposal["spec"]["leaseTransitions"],
    ) == ("OldestEmulationVersion", "before", 5)
    assert proposal["metadata"]["labels"] == {"a": "b"}


def test_a_resigned_leader_does_not_lead_before_the_release_is_written():
    """The fence closes first."""
    me = candidate()
    me.accepted(lease("me"), 100)

    released = me.resign(WALL)

    assert released is not None
    assert released["spec"]["holderIdentity"] == ""
    assert not me.leads(100)
    assert me.resign(WALL) is None


def test_a_follower_looks_exactly_when_the_lease_becomes_free():
    """Takeover does not wait for the next round."""
    me = candidate()
    me.observe(lease("other"), 100)

    assert me.wait_seconds(100) == 2
    assert me.wait_seconds(114.5) == 0.5


class Server:
    """The one object that matters, with versions."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0

    def write(self, manifest: Object) -> Object | None:
        """The Lease as written, or nothing when the writer saw another version."""
        seen = manifest["metadata"].get("resourceVersion")
        have = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if seen != have:
            return None
        self.version += 1
        self.lease = deepcopy(manifest)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return deepcopy(self.lease)


class Process:
    """One candidate, with a clock of its own and at most one request under way."""

    def __init__(self, number: int, server: Server) -> None:
        self.rules = candidate(f"p{number}")
        self.offset = 1e6 * number
        self.server = server
        self.must_read = True
        self.manifest: Object | None = None
        self.sent = 0.0
        self.answer: Object | None = None
        self.state = "idle"
        self.busy_until = float("-inf")
        """When the last thing that it may have begun as a leader has ended."""

    def begin(self, now: float) -> None:
        """Send a read or a write."""
        self.manifest = None
        if not self.must_read:
            self.manifest = self.rules.proposal(now + self.offset, WALL)
            self.must_read = self.manifest is None
        self.sent = now
        self.state = "sent"

    def arrive(self) -> None:
        """The server answers."""
        self.answer = (
            self.server.write(self.manifest) if self.manifest else deepcopy(self.server.lease)
        )
        self.state = "answered"

    def hear(self, now: float) -> None:
        """The answer comes back."""
        self.state = "idle"
        if self.manifest is None:
            self.rules.observe(self.answer, now + self.offset)
            self.must_read = False
        elif self.answer is None:
            self.must_read = True
        else:
            self.rules.accepted(self.answer, self.sent + self.offset)
            self.must_read = not self.rules.leads(now + self.offset)
            self.busy_until = self.rules.leads_until - self.offset + TIMING.request_seconds


class ElectionMachine(RuleBasedStateMachine):
    """Three processes, any pauses, lost and late requests and answers, one deletion."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.server = Server()
        self.processes = [Process(number, self.server) for number in range(3)]
        self.stray: list[Object] = []
        self.deletions = 1

    def leaders(self) -> list[Process]:
        return [each for each in self.processes if each.rules.leads(self.now + each.offset)]

    @rule(number=st.integers(0, 2))
    def go_on(self, number: int) -> None:
        """Let a process take its next step; one that is never chosen is paused."""
        process = self.processes[number]
        if process.state == "idle":
            process.begin(self.now)
        elif process.state == "sent":
            process.arrive()
        else:
            process.hear(self.now)

    @rule(number=st.integers(0, 2))
    def whole_round(self, number: int) -> None:
        """A process that nothing hinders reads, writes and hears."""
        for _ in range(6):
            self.go_on(number)

    @rule(
        awake=st.lists(st.sets(st.integers(0, 2), max_size=3), min_size=2, max_size=12),
        seconds=st.sampled_from([1.0, 2.0, 4.9, 7.0]),
    )
    def live(self, awake: list[set[int]], seconds: float) -> None:
        """A while in which some processes go about their rounds and others sleep."""
        for numbers in awake:
            for number in sorted(numbers):
                self.whole_round(number)
                self.nobody_else_may_still_be_busy()
            self.now += seconds

    @rule(number=st.integers(0, 2), arrives_late=st.booleans())
    def give_up(self, number: int, arrives_late: bool) -> None:
        """The deadline passes; the request is lost, was answered in vain, or arrives later."""
        process = self.processes[number]
        if process.state == "sent" and process.manifest and arrives_late:
            self.stray.append(process.manifest)
        if process.state != "idle":
            process.state, process.must_read = "idle", True

    @precondition(lambda self: self.stray)
    @rule()
    def arrive_late(self) -> None:
        self.server.write(self.stray.pop(0))

    @rule(number=st.integers(0, 2))
    def resign(self, number: int) -> None:
        process = self.processes[number]
        if process.state == "idle":
            process.busy_until = min(process.busy_until, self.now)
            process.manifest = process.rules.resign(WALL)
            process.must_read = True
            if process.manifest:
                self.server.write(process.manifest)

    @precondition(lambda self: self.deletions)
    @rule()
    def delete(self) -> None:
        """Only once all have seen the Lease: who never saw one cannot know of a holder."""
        if all(process.rules.lease for process in self.processes):
            self.server.lease = None
            self.deletions -= 1

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 4.9, 5.0, 9.9, 10.0, 14.9, 15.0, 40.0]))
    def advance(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nobody_else_may_still_be_busy(self) -> None:
        for leader in self.leaders():
            for other in self.processes:
                if other is not leader:
                    assert other.busy_until <= self.now + 1e-6

    def teardown(self) -> None:
        """Whatever happened, there is a leader again soon when nothing hinders them any more."""
        for number in range(3):
            self.give_up(number, arrives_late=False)
        for _ in range(8):
            for number in range(3):
                self.whole_round(number)
                self.nobody_else_may_still_be_busy()
            self.now += TIMING.retry_seconds * 2
        for number in range(3):
            self.whole_round(number)
        assert len(self.leaders()) == 1


ElectionMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None
)
test_any_misfortune = ElectionMachine.TestCase
