"""The fence: what a process may do that has led, but may not lead any more."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from knfleet.api.core import LEASES
from knfleet.api.meta import HUB, Key, Object
from knfleet.kube.auth.credentials import StaticCredential
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.runtime.leader.leader import Leader, LeaderOptions, LeaseTiming, LostLeadership
from testbed.fakes.certificates import Authority
from testbed.fakes.server import Server, answer, server_context
from testbed.fakes.ways import Way
from testbed.waiting import PATIENCE_SECONDS, until
from tests.unit.runtime.clocks import HandClock

TIMING = LeaseTiming(lease_seconds=1, renew_seconds=0.99, retry_seconds=0.01)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def leader(clock: HandClock) -> AsyncGenerator[Leader]:
    """A leader that renewed just now, on a server that is never asked."""
    connection = Connection(HUB, Endpoint("https://127.0.0.1:1"), StaticCredential())
    async with Client(connection) as client:
        options = LeaderOptions(timing=TIMING, clock=clock.time)
        made = Leader(client, Key("default", "lock"), "me", options)
        lease = {"metadata": {}, "spec": {"holderIdentity": "me"}}
        made.candidate.observe(lease, clock.time())
        made.candidate.accepted(lease, clock.time())
        yield made


async def test_the_fence_closes_by_itself(leader: Leader, clock: HandClock):
    """Nobody has to tell a process that slept: its clock does."""
    leader.require()
    clock.advance(0.99)

    with pytest.raises(LostLeadership, match=r"not renewed for 0\.99 s"):
        leader.require()


async def test_what_a_leader_began_is_cut_off_before_another_can_lead(
    leader: Leader, clock: HandClock
):
    """Begun in the last moment of the term, it has what is left of the Lease and no more."""
    clock.advance(0.989)

    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(TimeoutError):
            async with leader.acting():
                await asyncio.Event().wait()


async def test_nothing_is_begun_after_the_term(leader: Leader, clock: HandClock):
    """The block does not run."""
    clock.advance(1)
    begun = False

    with pytest.raises(LostLeadership):
        async with leader.acting():
            begun = True

    assert not begun


async def test_a_client_behind_the_fence_reads_and_does_not_write(leader: Leader, clock: HandClock):
    """Not one byte of a write leaves a process whose term has passed."""
    lease: Object = {"metadata": {"name": "a"}}
    async with Server(answer(lease)) as server:
        connection = Connection(HUB, Endpoint(server.url), StaticCredential())
        async with Client(connection, ClientOptions(before_write=leader.require)) as client:
            await client.replace(LEASES, lease)
            clock.advance(1)

            with pytest.raises(LostLeadership):
                await client.replace(LEASES, lease)
            await client.get(LEASES, "a")

        assert [request.method for request in server.requests] == ["PUT", "GET"]


async def test_a_write_that_waits_for_a_connection_longer_than_the_term_is_not_sent(
    leader: Leader, clock: HandClock
):
    """It was begun in time; when it could be sent, another may lead."""
    lease: Object = {"metadata": {"name": "a"}}
    authority = Authority()
    async with (
        Server(answer(lease), tls=server_context(authority.server())) as server,
        Way(server.url) as way,
    ):
        way.open.clear()
        connection = Connection(HUB, Endpoint(way.url, authority.pem), StaticCredential())
        async with Client(connection, ClientOptions(before_write=leader.require)) as client:
            writing = asyncio.ensure_future(client.replace(LEASES, lease))
            await until(lambda: way.connections == 1, "it connects")
            clock.advance(1)
            way.open.set()

            with pytest.raises(LostLeadership):
                await writing

        assert server.requests == []
