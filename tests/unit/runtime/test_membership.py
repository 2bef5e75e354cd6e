"""A process that shares work with others: what it does when its Lease is not as it was."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from knfleet.api.core import LEASES
from knfleet.api.meta import Key
from knfleet.kube.client.verbs import Client
from knfleet.runtime.shards.membership import LostMembership, Membership, MembershipOptions
from knfleet.runtime.shards.rules import view_of
from testbed.fakes.apiserver import ApiServers
from testbed.fakes.clients import client_for
from testbed.fakes.cluster import Cluster
from tests.unit.runtime.clocks import HandClock

THINGS = [f"fleet/spoke{number}" for number in range(16)]
TURN_SECONDS = 2.0


class Work:
    """What a process works on."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.held: set[str] = set()
        self.letting_go: Callable[[], None] = lambda: None
        membership.join(self)

    async def on_lost(self) -> None:
        """Stop what is another's."""
        self.letting_go()
        self.held = {thing for thing in self.held if self.membership.owns(thing)}

    def on_gained(self) -> None:
        """Begin with what is ours."""
        self.held |= {thing for thing in THINGS if self.membership.owns(thing)}


class Table:
    """Processes that share work by the Leases of one cluster."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.clock = HandClock()
        self.works: list[Work] = []

    def add(self, let_go_seconds: float = 5.0) -> Work:
        """One more process."""
        options = MembershipOptions(clock=self.clock.time, let_go_seconds=let_go_seconds)
        work = Work(Membership(self.client, "fleet", f"host_{len(self.works)}", options))
        self.works.append(work)
        return work

    async def turns(self, count: int, *works: Work) -> None:
        """Let so many turns of some, or all, pass."""
        for _ in range(count):
            for work in works or self.works:
                await work.membership.step()
            self.clock.advance(TURN_SECONDS)

    def lease(self, work: Work) -> Key:
        """Whose Lease is whose."""
        return work.membership.key


@pytest.fixture
async def table() -> AsyncGenerator[Table]:
    async with a_table() as table:
        yield table


@asynccontextmanager
async def a_table() -> AsyncGenerator[Table]:
    """A cluster, and nobody yet."""
    async with ApiServers() as servers:
        cluster = servers.add("hub")
        async with client_for(servers.url("hub")) as client:
            yield Table(cluster, client)


async def test_two_share_everything_and_one_that_leaves_is_followed_at_once(table: Table):
    """Who ends in good order says so, and nobody waits for its Lease to run out."""
    one, other = table.add(), table.add()
    await table.turns(5)
    shared = (set(one.held), set(other.held))

    other.held.clear()
    await other.membership.leave()
    await table.turns(2, one)

    assert shared[0] | shared[1] == set(THINGS)
    assert not shared[0] & shared[1]
    assert all(shared)
    assert one.held == set(THINGS)


async def test_who_was_paused_for_longer_than_its_lease_never_works_again(table: Table):
    """Others have what it had; that it could renew now changes nothing."""
    one, other = table.add(), table.add()
    await table.turns(5)
    one.membership.require()

    await table.turns(8, other)

    with pytest.raises(LostMembership, match="not renewed in time"):
        one.membership.require()
    with pytest.raises(LostMembership):
        await one.membership.step()
    with pytest.raises(LostMembership):
        one.membership.require()
    assert not any(map(one.membership.owns, THINGS))
    assert other.held == set(THINGS)


async def test_who_is_paused_while_it_lets_go_does_not_renew(table: Table):
    """Its time is over by then, and a renewal would bring it back to life."""
    one = table.add()
    await table.turns(4)
    other = table.add()
    await table.turns(1, other)
    await table.turns(1, one)
    one.letting_go = lambda: table.clock.advance(20)

    with pytest.raises(LostMembership):
        await one.membership.step()

    assert not one.membership.party.is_alive(table.clock.time())


async def test_who_cannot_let_go_in_time_ends(table: Table):
    """Ending is letting go as well."""
    one = table.add(let_go_seconds=0.01)
    await table.turns(4)

    class Stuck(Work):
        """Never lets go."""

        async def on_lost(self) -> None:
            await asyncio.Event().wait()

    Stuck(one.membership)
    table.add()
    with pytest.raises(TimeoutError):
        await table.turns(3)


async def test_a_lease_that_was_deleted_is_written_again(table: Table):
    """Nothing is lost by it."""
    one = table.add()
    await table.turns(4)

    table.cluster.delete(LEASES, table.lease(one))
    await table.turns(2)

    assert table.lease(one) in table.cluster.objects[LEASES]
    assert one.held == set(THINGS)
    one.membership.require()


async def test_a_lease_that_was_made_without_an_answer_is_found(table: Table):
    """The first write may come through and nobody hear of it."""
    one = table.add()
    membership = one.membership
    lost = membership.manifest("host_0", 10)
    await table.client.create(LEASES, lost, "fleet")

    await table.turns(5)

    assert membership.failing is None
    assert one.held == set(THINGS)


async def test_leases_of_the_dead_go_in_the_end_and_those_of_the_living_stay(table: Table):
    """By the clock of who looks, whatever times are written on them."""
    one, dead = table.add(), table.add()
    await table.turns(3)
    for _ in range(310):
        await table.turns(1, one)

    assert table.lease(dead) not in table.cluster.objects[LEASES]
    assert table.lease(one) in table.cluster.objects[LEASES]


async def test_a_view_is_published_only_after_letting_go(table: Table):
    """Whoever reads it may begin."""
    one = table.add()
    await table.turns(4)
    other = table.add()
    await table.turns(1, other)
    await table.turns(1, one)
    seen: list[int] = []
    lease = table.cluster.objects[LEASES]
    one.letting_go = lambda: seen.append(len(view_of(lease[table.lease(one)])))

    await table.turns(1, one)

    assert seen == [1]
    assert len(view_of(lease[table.lease(one)])) == 2


async def test_members_do_nothing_while_the_work_is_not_for_members(table: Table):
    """As when one leads that shares nothing: it does all of it alone."""
    one = table.add()
    led = False
    one.membership.may_work = lambda: led
    await table.turns(5)
    before = set(one.held)

    led = True
    await table.turns(1)
    during = set(one.held)
    led = False
    await table.turns(1)

    assert before == set()
    assert during == set(THINGS)
    assert one.held == set()


async def test_members_are_known_by_their_processes_also_after_they_left(table: Table):
    """Who leads may leave at the same moment, and has not been a stranger."""
    one, other = table.add(), table.add()
    await table.turns(2)
    await other.membership.leave()
    await table.turns(1, one)

    assert one.membership.knows("host_0")
    assert one.membership.knows("host_1")
    assert not one.membership.knows("stranger")
    assert not one.membership.knows("")


async def test_members_hurry_until_they_agree_and_look_when_one_may_be_dead(table: Table):
    """Between, they do no more than renew."""
    one = table.add()
    await table.turns(1)
    alone = one.membership.wait_seconds()
    other = table.add()
    await table.turns(1, other)
    await one.membership.step()
    at_odds = one.membership.wait_seconds()
    await table.turns(2)
    agreed = one.membership.wait_seconds()
    await table.turns(3, one)
    table.clock.advance(3.7)

    assert (alone, at_odds, agreed) == (2.0, 0.5, 2.0)
    assert one.membership.wait_seconds() == pytest.approx(0.3)
