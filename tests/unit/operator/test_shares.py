"""What is a process's own when it shares spokes: who leads decides whether there is any sharing."""

from collections.abc import AsyncGenerator

import pytest

from knfleet.api.core import LEASES
from knfleet.api.meta import HUB, Key, Object
from knfleet.kube.auth.credentials import StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.operator.rights import namespace_rules
from knfleet.operator.targets.shard import TargetShard
from knfleet.runtime.leader.leader import Leader, LeaderOptions, LostLeadership
from knfleet.runtime.shards.membership import Membership, MembershipOptions
from knfleet.runtime.shards.rules import VIEW
from tests.unit.runtime.clocks import HandClock

SPOKE = "fleet/spoke"


def member(name: str, identity: str, *view: str) -> Object:
    """A member's Lease."""
    return {
        "metadata": {"name": name, "annotations": {VIEW: ",".join(view)}},
        "spec": {"holderIdentity": identity, "leaseDurationSeconds": 10},
    }


class Process:
    """A process that shares spokes, on a server that is never asked."""

    def __init__(self, client: Client) -> None:
        self.clock = HandClock()
        options = MembershipOptions(clock=self.clock.time)
        self.membership = Membership(client, "fleet", "me", options)
        key = Key("fleet", "lock")
        self.leader = Leader(client, key, "me", LeaderOptions(clock=self.clock.time))
        self.shares = TargetShard(self.membership, self.leader)

    def meet(self, *others: Object) -> None:
        """Be a member, and read that there are others."""
        party, now = self.membership.party, self.clock.time()
        party.accepted(frozenset({party.me}), now - 5)
        party.has_read([member(party.me, "me", party.me), *others], now)
        self.membership.reads += 1

    def see_leading(self, identity: str) -> None:
        """Read who leads."""
        lease = {"kind": LEASES.kind, "metadata": {}, "spec": {"holderIdentity": identity}}
        self.leader.candidate.observe(lease, self.clock.time())
        self.shares.is_led()

    def owns(self) -> bool:
        """Whether the spoke is its own."""
        return self.shares.owns(SPOKE)


@pytest.fixture
async def process() -> AsyncGenerator[Process]:
    connection = Connection(HUB, Endpoint("https://127.0.0.1:1"), StaticCredential())
    async with Client(connection) as client:
        yield Process(client)


def test_an_operator_may_do_with_leases_what_members_do():
    """They make their own, renew it, read all, and delete those of the dead."""
    (rule,) = [each for each in namespace_rules() if LEASES.plural in each["resources"]]

    assert {"create", "update", "list", "delete"} <= set(rule["verbs"])


async def test_spokes_are_shared_when_a_member_leads(process: Process):
    """Itself or another."""
    process.meet()
    before = process.owns()
    process.see_leading("me")

    assert not before
    assert process.owns()


async def test_a_leader_that_does_not_share_has_all_spokes(process: Process):
    """Such as the operator that this one replaces; after its end, until a member leads, too."""
    process.see_leading("stranger")
    for _ in range(3):
        process.meet()
    while_it_leads = process.owns()
    process.see_leading("")
    after_it = process.owns()
    process.see_leading("me")

    assert (while_it_leads, after_it, process.owns()) == (False, False, True)


async def test_spokes_are_let_go_when_a_stranger_leads_but_not_between_two_members(
    process: Process,
):
    """A member that has just joined and leads already is known when all were read again."""
    process.meet()
    process.see_leading("me")
    process.see_leading("")
    between = process.owns()
    process.see_leading("new")
    just_come = process.owns()
    process.meet(member("other", "new"))
    known = process.owns()
    process.see_leading("stranger")
    for _ in range(2):
        process.meet()

    assert (between, just_come, known, process.owns()) == (True, True, True, False)


async def test_one_that_led_writes_nothing_when_it_leads_no_more(process: Process):
    """It ends; what it did on the hub may be another's already."""
    process.meet()
    process.shares.require()
    process.leader.leading.set()

    with pytest.raises(LostLeadership):
        process.shares.require()


async def test_one_whose_lease_ran_out_writes_nothing(process: Process):
    """Neither on the hub nor on spokes."""
    process.meet()
    process.clock.advance(7)

    with pytest.raises(LostLeadership, match="not renewed in time"):
        process.shares.require()
