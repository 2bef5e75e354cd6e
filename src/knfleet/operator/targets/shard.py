"""What of all work is ours, when processes share it: some spokes, and the hub if we lead."""

from collections.abc import Sequence

from knfleet.clusters.pool import ClusterPool
from knfleet.runtime.leader.leader import Leader
from knfleet.runtime.metrics import Metrics
from knfleet.runtime.shards.membership import Membership, ShardHolder

READS = 2
"""After so many more reads one that had joined is known; the first may be in progress."""


class TargetShard:
    """Says what is ours, and has all holders follow it."""

    def __init__(self, membership: Membership, leader: Leader) -> None:
        self.membership = membership
        self.leader = leader
        self.holders: Sequence[ShardHolder] = ()
        self.spokes: ClusterPool | None = None
        self.led = False
        """Whether a member leads, or did when a member led last."""
        self.stranger = ""
        """Who leads and is no member that we know."""
        self.known_at = 0
        membership.may_work = self.is_led

    def owns(self, place: str) -> bool:
        """Whether what is installed at a place is for this process to see to."""
        return self.membership.owns(place) if place else self.leader.leads()

    def is_led(self) -> bool:
        """Whether the process that leads is a member; any other works on all spokes itself.

        Between two leaders it stays as it was. Who is not known may have joined just now, and is
        a stranger only if it is unknown still when all members were read once more.
        """
        holder, membership = self.leader.candidate.holder, self.membership
        if membership.knows(holder):
            self.led, self.stranger = True, ""
        elif holder and holder != self.stranger:
            self.stranger, self.known_at = holder, membership.reads + READS
        elif holder and membership.reads >= self.known_at:
            self.led = False
        return self.led

    def require(self) -> None:
        """Raise `LostLeadership` unless this process may write; costs next to nothing.

        One that has led must lead: it stops when it does not, and what it does on the hub meanwhile
        may be another's already.
        """
        self.membership.require()
        if self.leader.leading.is_set():
            self.leader.require()

    def follow(self, holders: Sequence[ShardHolder], spokes: ClusterPool) -> None:
        """Have all holders start what is ours from now on."""
        self.holders, self.spokes = holders, spokes
        self.membership.join(self)
        self.on_gained()

    def on_gained(self) -> None:
        for holder in self.holders:
            holder.on_gained()

    async def lead(self) -> None:
        """Begin with what is on the hub: this process leads from now on."""
        self.on_gained()

    async def on_lost(self) -> None:
        """Stop everything on what is not ours; nothing of it runs afterwards."""
        for holder in self.holders:
            await holder.on_lost()
        if self.spokes is not None:
            await self.spokes.close_lost()

    def measure(self, metrics: Metrics) -> None:
        """Tell with how many the work is shared, at each scrape."""
        metrics.before_scrape.append(lambda: metrics.members.set(len(self.membership.members)))
