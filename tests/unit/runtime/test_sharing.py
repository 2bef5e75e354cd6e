"""Several processes share work: never two have the same, and in the end each has its part."""

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from knfleet.api.meta import Object
from knfleet.runtime.sharing import TIMING, VIEW, Party, View, owner

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
        self.party = Party(name)
        self.name = name
        self.server = server
        self.coming: View = frozenset()
        self.held: set[str] = set()
        self.steps = [self.look, self.let_go, self.publish, self.read]
        self.at = 0
        self.sent = 0.0

    def step(self, now: float) -> None:
        """Do what comes next."""
        self.steps[self.at % len(self.steps)](now)
        self.at += 1

    def look(self, now: float) -> None:
        """Read who is there, before the first turn; later the last turn has done it."""
        if not self.party.published:
            self.party.observe(self.server.leases.values(), now)
        self.coming = self.party.view(now)

    def let_go(self, now: float) -> None:
        """Stop working on what is another's."""
        self.held = {thing for thing in self.held if owner(thing, self.coming) == self.name}
        self.sent = now

    def publish(self, now: float) -> None:
        """Write the view."""
        self.server.put(self.name, self.coming, self.name)
        self.party.accepted(self.coming, self.sent)

    def read(self, now: float) -> None:
        """Read what others have written, and begin with what is ours."""
        self.party.has_read(self.server.leases.values(), now)
        self.held |= {thing for thing in THINGS if self.party.is_mine(thing, now)}

    def works_on(self, now: float) -> set[str]:
        """What this process would write on now."""
        return self.held if self.party.is_alive(now) else set()


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(MEMBERS), st.sampled_from(PAUSES)), max_size=160),
    st.integers(0, 100),
)
def test_no_two_work_on_the_same_whatever_the_order_of_their_steps(
    schedule: list[tuple[str, float]], pauses_after: int
):
    """Members begin late, stop for long between any two steps, and go on."""
    server, now = Server(), 0.0
    members = {name: Member(name, server) for name in MEMBERS}
    for number, (name, seconds) in enumerate(schedule):
        now += seconds
        if number > pauses_after and name == "a":
            continue
        if number and not members[name].party.is_alive(now) and members[name].party.published:
            # A process that finds out that it was too late ends; another takes its place.
            members[name] = Member(f"{name}{number}", server)
        members[name].step(now)

        working = [thing for each in members.values() for thing in each.works_on(now)]
        assert len(working) == len(set(working))


def test_all_is_shared_out_and_what_a_dead_member_had_goes_to_others():
    """Each thing has one member in the end, and little moves."""
    server = Server()
    members = [Member(name, server) for name in MEMBERS[:3]]
    for turn in range(12):
        for each in members:
            each.step(turn * 0.5)
    before = {each.name: set(each.held) for each in members}

    dead, *alive = members
    for turn in range(40):
        for each in alive:
            each.step(6 + turn * 0.5)

    assert set().union(*before.values()) == set(THINGS)
    assert sum(map(len, before.values())) == len(THINGS)
    assert set().union(*(each.held for each in alive)) == set(THINGS)
    assert all(before[each.name] <= each.held for each in alive)
    assert not dead.works_on(26.0)
