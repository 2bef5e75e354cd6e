"""The rules by which several processes share work, without network and without a clock.

Every process (a *member*) has a Lease of its own, renews it, and writes on it the *view* that it
works by: the members among which it has shared out the work. What belongs to whom follows from a
view alone (the member with the highest hash of member and thing), so that one that joins or goes
moves no more than its own part. Never do two work on the same thing:

- A member works only on what is its own in the view that it has published.
- Before it publishes a view it has let go of everything that is not its own in there.
- After it has published a view it reads the Leases of all others, from the server and not from a
  cache, and begins with a thing only when in the published view of no other live member that thing
  is the other's. Of two that publish, the later one reads what the earlier one has published.
- What was sent counts as published as soon as it is to be sent, for what must be let go; and only
  when the server has confirmed it, for what may be begun.
- A member that does not renew is dead for others a while after it has stopped to be alive for
  itself, each by its own clock, as in `runtime.election`; and it stays dead.
- Another client may delete Leases. Who is new gives those whom it cannot see the time to write
  theirs again; and it begins nothing as long as others know of a member that it never saw, since it
  cannot know by which view that one works.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.runtime.leader.lease_rules import NEVER, LeaseTiming, record

MEMBER = "knfleet.dev/member"
"""The label of members' Leases: which work it is that they share."""
VIEW = "knfleet.dev/view"
"""The annotation with the members that a member works by."""

View = frozenset[str]
"""Members, by the names of their Leases."""
TIMING = LeaseTiming(lease_seconds=10, renew_seconds=7, retry_seconds=2)
"""A member that dies is noticed sooner than a leader: no other member does its work meanwhile."""
FORGOTTEN_SECONDS = 600.0
"""After so long a member that is dead is forgotten, and its Lease deleted."""


class MemberLease(Struct):
    """What is known of a member, and since when it looks like that."""

    record: Object
    view: View
    since: float
    is_gone: bool = False
    """Whether it has left in good order."""


def owner(thing: str, view: View) -> str:
    """The member that something belongs to; None when there are none."""
    return max(view, key=lambda member: weight(member, thing), default="")


@lru_cache(maxsize=65536)
def weight(member: str, thing: str) -> bytes:
    """How much a member wants something; all members compute the same."""
    return hashlib.sha256(f"{member}\n{thing}".encode()).digest()[:8]


def view_of(lease: Object) -> View:
    """The view that a member has published."""
    annotations: dict[str, str] = lease["metadata"].get("annotations") or {}
    text = annotations.get(VIEW, "")
    return frozenset(word for word in text.split(",") if word)


class ShardMembers:
    """What one member knows of all, and what follows from it."""

    def __init__(self, me: str, timing: LeaseTiming = TIMING) -> None:
        self.me = me
        self.timing = timing
        self.seen: dict[str, MemberLease] = {}
        self.identities: set[str] = set()
        """The processes that are or were members."""
        self.published: View = frozenset()
        """What this member has written on its Lease, and works by; empty before the first time."""
        self.coming: set[View] = set()
        """What it is about to write, or has perhaps written: it is not confirmed yet."""
        self.read_after: View = frozenset()
        """The view after whose publication the others were last read."""
        self.begins_at = NEVER
        """When this member may begin something for the first time."""
        self.alive_until = NEVER
        """When this member must have renewed, or stop for good."""

    def observe(self, leases: Iterable[Object], now: float) -> None:
        """Handle the Leases of all members; `now` is a time after they were read."""
        found = {each["metadata"]["name"]: each for each in leases}
        for name, lease in found.items():
            written = record(lease)
            known = self.seen.get(name)
            since = known.since if known is not None and known.record == written else now
            holder = written.get("holderIdentity") or ""
            self.seen[name] = MemberLease(written, view_of(lease), since, is_gone=not holder)
            self.identities.add(holder)
        # A Lease that a client deleted tells nothing: its member has the time to find out.
        for name in self.forgotten(now):
            if name not in found:
                del self.seen[name]

    def is_live(self, name: str, now: float) -> bool:
        """Whether a member may still be working."""
        return now < self.dies_at(name)

    def dies_at(self, name: str) -> float:
        """When a member is dead unless it is seen to renew."""
        known = self.seen.get(name)
        if known is None or known.is_gone:
            return NEVER
        seconds = known.record.get("leaseDurationSeconds") or self.timing.lease_seconds
        return known.since + seconds

    def others(self, now: float) -> dict[str, MemberLease]:
        """All other members that may still be working."""
        return {
            name: known
            for name, known in self.seen.items()
            if name != self.me and self.is_live(name, now)
        }

    def view(self, now: float) -> View:
        """The members that there are, this one always among them."""
        return frozenset([self.me, *self.others(now)])

    def forgotten(self, now: float) -> list[str]:
        """Members that did not renew their Lease for long, by this member's own clock."""
        return [
            name
            for name, known in self.seen.items()
            if not self.is_live(name, now) and now - known.since > FORGOTTEN_SECONDS
        ]

    def intends(self, view: View) -> None:
        """A view is to be written; what is another's in there is not ours any more."""
        self.coming.add(view)

    def accepted(self, view: View, sent: float) -> None:
        """The server took our Lease, with this view, sent after the time `sent`.

        What was sent before and not answered cannot arrive any more, being of an older version.
        """
        if not self.published:
            self.begins_at = sent + 2 * self.timing.retry_seconds
        if self.coming | {self.published} != {view}:
            # By another view, others may have begun what is ours in this one, read before or not.
            self.read_after = frozenset()
        self.published = view
        self.coming.clear()
        self.alive_until = sent + self.timing.renew_seconds

    def has_read(self, leases: Iterable[Object], now: float) -> None:
        """The Leases were read after our own was written."""
        self.observe(leases, now)
        self.read_after = self.published

    def is_alive(self, now: float) -> bool:
        """Whether this member may begin something."""
        return now < self.alive_until

    def keeps(self, thing: str) -> bool:
        """Whether something is ours in every view that others may know of us."""
        return all(owner(thing, view) == self.me for view in (self.published, *self.coming))

    def is_mine(self, thing: str, now: float) -> bool:
        """Whether something belongs to this member, and to no other any more."""
        if now < self.begins_at or self.read_after != self.published or not self.keeps(thing):
            return False
        views = {name: known.view for name, known in self.others(now).items()}
        return not any(
            owner(thing, view) == name or view - self.seen.keys()
            for name, view in views.items()
            if view != self.published
        )

    def is_settled(self, now: float) -> bool:
        """Whether all members work by the view of those that there are."""
        views = [known.view for known in self.others(now).values()]
        return all(view == self.published for view in (self.view(now), *views))

    def news(self, now: float) -> tuple[object, ...]:
        """All that decides what is ours; when it is something else, so may be what is ours."""
        views = {name: known.view for name, known in self.others(now).items()}
        return (self.published, self.read_after, now < self.begins_at, views)
