"""Several processes share work: never two have the same, and in the end each has its part."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from knfleet.api.meta import Object
from knfleet.runtime.shards.rules import TIMING, VIEW, ShardMembers, View, owner

THINGS = [f"fleet/spoke{number}" for number in range(24)]
MEMBERS = ("a", "b", "c", "d")
PAUSES = (0.0, 0.01, 0.1, 0.1, 0.1, 0.3, 2.0)


class Server:
    """The Leases of all members."""

    def __init__(self) -> None:
        self.leases: dict[str, Object] = {}
        self.writes = 0

    def put(self, name: str, view: View, holder: str) -> None:
        """Write a Lease."""
        self.writes += 1
        self.leases[name] = {
            "metadata": {"name": name, "annotations": {VIEW: ",".join(sorted(view))}},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": TIMING.lease_seconds,
                "renewTime": f"{datetime.now(UTC)} {self.writes}",
            },
        }


class Member:
    """One process, whose turns can be stopped between any two steps."""

    def __init__(self, name: str, server: Server) -> None:
        self.party = ShardMembers(name)
        self.name = name
        self.server = server
        self.view: View = frozenset()
        self.held: set[str] = set()
        self.steps = [self.look, self.let_go, self.publish, self.read]
        self.at = 0
        self.sent = 0.0
        self.is_lost = False
        """Whether the next answer of the server does not arrive."""

    def step(self, now: float, *, is_lost: bool = False) -> None:
        """Do what comes next."""
        self.is_lost = is_lost
        step = self.steps[self.at % len(self.steps)]
        self.at += 1
        step(now)
        # Whatever the turn has come to, work is begun at any time.
        if self.party.is_alive(now):
            self.held |= {thing for thing in THINGS if self.party.is_mine(thing, now)}

    def look(self, now: float) -> None:
        """Read who is there, before the first turn; later the last turn has done it."""
        if not self.party.published:
            self.party.observe(self.server.leases.values(), now)
        self.view = self.party.view(now)

    def let_go(self, now: float) -> None:
        """Stop working on what is another's."""
        self.party.intends(self.view)
        self.held = {thing for thing in self.held if self.party.keeps(thing)}
        self.sent = now

    def publish(self, now: float) -> None:
        """Write the view; a turn without an answer ends here."""
        self.server.put(self.name, self.view, self.name)
        if self.is_lost:
            self.at = 0
        else:
            self.party.accepted(self.view, self.sent)

    def read(self, now: float) -> None:
        """Read what others have written."""
        if not self.is_lost:
            self.party.has_read(self.server.leases.values(), now)

    def works_on(self, now: float) -> set[str]:
        """What this process would write on now."""
        return self.held if self.party.is_alive(now) else set()


def doubly_worked_on(members: Iterable[Member], now: float) -> set[str]:
    """What more than one works on."""
    working = Counter(thing for each in members for thing in each.works_on(now))
    return {thing for thing, count in working.items() if count > 1}


def is_over(member: Member, now: float) -> bool:
    """Whether a process has found out that it was too late, and ends."""
    return bool(member.party.published) and not member.party.is_alive(now)


def test_a_view_that_is_published_again_is_followed_by_another_read():
    """Between the two times another member may have begun what is ours in that view."""
    party = ShardMembers("c")
    alone, both = frozenset({"c"}), frozenset({"a", "c"})
    things = [each for each in THINGS if owner(each, both) == "c"]
    party.accepted(alone, 0.0)
    party.has_read([], 0.0)
    later = party.begins_at
    assert all(party.is_mine(each, later) for each in things)

    party.intends(both)
    party.accepted(both, later)
    party.intends(alone)
    party.accepted(alone, later)

    assert not any(party.is_mine(each, later) for each in things)
    party.has_read([], later)
    assert all(party.is_mine(each, later) for each in things)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(MEMBERS), st.sampled_from(PAUSES), st.integers(0, 4)),
        min_size=60,
        max_size=240,
    ),
    st.integers(0, 100),
)
def test_no_two_work_on_the_same_whatever_the_order_of_their_steps(
    schedule: list[tuple[str, float, int]], pauses_after: int
):
    """Members begin late, stop for long between any two steps, get no answers, and go on."""
    server, now = Server(), 0.0
    members = {name: Member(name, server) for name in MEMBERS}
    for number, (name, seconds, luck) in enumerate(schedule):
        now += seconds
        if number > pauses_after and name == "a":
            continue
        if is_over(members[name], now):
            members[name] = Member(f"{name}{number}", server)
        members[name].step(now, is_lost=luck == 0)

        assert doubly_worked_on(members.values(), now) == set()


def turns(members: Sequence[Member], began: float, count: int) -> float:
    """Let members take so many turns side by side; none works on what is another's meanwhile."""
    now = began
    for number in range(4 * count):
        now = began + number * 0.5
        for each in members:
            each.step(now)
            assert doubly_worked_on(members, now) == set()
    return now + 0.5


def test_an_answer_that_was_lost_may_have_been_a_yes():
    """What others may have read of us counts, although we do not know that they could read it."""
    me = ShardMembers("a")
    mine_alone = next(thing for thing in THINGS if owner(thing, frozenset("ab")) == "b")
    me.accepted(frozenset("a"), 0.0)
    me.has_read([], 0.0)
    before = me.is_mine(mine_alone, 4.0)

    me.intends(frozenset("ab"))
    me.intends(frozenset("a"))

    assert before
    assert not me.is_mine(mine_alone, 4.0)


def test_nobody_takes_over_while_a_deleted_lease_is_written_again():
    """Who finds nobody cannot know whether there is somebody whose Lease was just deleted."""
    server = Server()
    old, new = Member("a", server), Member("b", server)
    now = turns([old], 0.0, 4)
    assert old.works_on(now) == set(THINGS)
    del server.leases["a"]
    for step in range(4):
        new.step(now + step * 0.1)

    assert new.works_on(now + 0.5) == set()
    now = turns([old, new], now + 0.5, 6)
    assert {*old.held, *new.held} == set(THINGS)


def test_a_member_that_only_others_know_is_believed_to_live():
    """Its Lease was deleted, and it cannot write another, but it works until its time is over."""
    server = Server()
    hidden, other, new = Member("a", server), Member("b", server), Member("c", server)
    now = turns([hidden, other], 0.0, 6)
    del server.leases["a"]
    for number in range(12):
        for each in (other, new):
            each.step(now + number * 0.5)
            assert doubly_worked_on([hidden, other, new], now + number * 0.5) == set()

    turns([other, new], now + 6.0, 8)
    assert {*other.held, *new.held} == set(THINGS)


def test_only_who_was_silent_for_long_by_our_own_clock_is_forgotten():
    """Whatever time others write, theirs may be another."""
    me = ShardMembers("a")
    server = Server()
    server.put("b", frozenset("b"), "b")
    server.put("c", frozenset("c"), "c")
    me.observe(server.leases.values(), 0.0)
    server.put("c", frozenset("c"), "c")
    me.observe(server.leases.values(), 599.0)

    assert me.forgotten(599.0) == []
    assert me.forgotten(601.0) == ["b"]


def test_all_is_shared_out_and_what_a_dead_member_had_goes_to_others():
    """Each thing has one member in the end, and little moves."""
    server = Server()
    members = [Member(name, server) for name in MEMBERS[:3]]
    turns(members, 0.0, 6)
    before = {each.name: set(each.held) for each in members}

    dead, *alive = members
    turns(alive, 12.0, 10)

    assert set().union(*before.values()) == set(THINGS)
    assert sum(map(len, before.values())) == len(THINGS)
    assert set().union(*(each.held for each in alive)) == set(THINGS)
    assert all(before[each.name] <= each.held for each in alive)
    assert not dead.works_on(32.0)
