"""The rules of leader election by Lease, without network and without a clock of their own.

Never two leaders, whatever clocks say and however long a process sleeps:

- A leader counts from the moment *before* it sent the write that renewed the Lease, and stops
  `renew_seconds` later unless it has renewed again.
- What it does while it leads ends within `request_seconds` after that.
- A follower counts from the moment *after* it saw the record change, which is later, and takes over
  no sooner than `lease_seconds` after that; and `renew_seconds + request_seconds <= lease_seconds`.
- Each counts on its own clock, which only goes forward, and never compares it with the times in the
  record: those are for people.
- The server accepts a write only on the version of the record that the writer saw.
- Who finds no Lease and makes one cannot know whether it was deleted under a leader, and gives that
  one the time for a renewal, which fails, before it begins itself.

The record is client-go's, so that leaders written in Go and ours follow each other.
"""

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from knfleet.api.core import LEASES
from knfleet.api.meta import Key, Object

NEVER = float("-inf")


class LostLeadership(Exception):
    """This process does not lead, or cannot know that it still does."""


class LeaseTiming(Struct, frozen=True):
    """The times of an election; the defaults are those of Kubernetes' own components."""

    lease_seconds: int = 15
    """How long after the last change that it saw a follower takes over."""
    renew_seconds: float = 10
    """How long after its last renewal a leader may begin something."""
    retry_seconds: float = 2
    """How often a leader renews and a follower looks."""

    def __post_init__(self) -> None:
        """Refuse times with which there could be two leaders, or none for long."""
        if not 0 < self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError(f"{self}: must be retry < renew < lease")

    @property
    def request_seconds(self) -> float:
        """How long something may take that was begun as a leader."""
        return self.lease_seconds - self.renew_seconds


class Candidate:
    """What one process knows of the Lease, and what follows from it."""

    def __init__(self, key: Key, identity: str, timing: LeaseTiming) -> None:
        self.key = key
        self.identity = identity
        self.timing = timing
        self.lease: Object | None = None
        """The Lease as last seen."""
        self.free_at = NEVER
        """When the Lease may be taken."""
        self.leads_until = NEVER
        """When this process must have renewed, or stop."""
        self.leads_from = NEVER
        """When it may begin, if it holds the Lease."""
        self.written: datetime | None = None

    @property
    def holder(self) -> str:
        """Who holds the Lease as last seen; empty if no process does."""
        return record(self.lease).get("holderIdentity") or ""

    def leads(self, now: float) -> bool:
        """Whether something may be begun that only a leader may do."""
        return self.leads_from <= now < self.leads_until

    def observe(self, lease: Object | None, now: float) -> None:
        """Handle what the server answered; `now` is a time after the answer came."""
        changed = record(lease) != record(self.lease) or (lease is None) != (self.lease is None)
        self.lease = lease
        if lease is None:
            # Another client deleted it. Its holder may not know yet, and gets the time to write it
            # again; only who has never seen the Lease has no reason to think that it has a holder.
            if changed:
                self.free_at = now + self.timing.lease_seconds
        elif self.holder in ("", self.identity):
            self.free_at = NEVER
        else:
            self.leads_until = NEVER
            if changed:
                seconds = record(lease).get("leaseDurationSeconds") or self.timing.lease_seconds
                self.free_at = now + seconds

    def proposal(self, now: float, wall: datetime) -> Object | None:
        """The Lease to write, to become or to stay leader; none when it is not for us to write."""
        holds = now < self.leads_until
        if now < self.free_at and not holds:
            return None
        old = record(self.lease)
        stays = self.holder == self.identity and holds
        taken = self.later(wall)
        return self.manifest(
            {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self.timing.lease_seconds,
                "acquireTime": (stays and old.get("acquireTime")) or microtime(taken),
                "renewTime": microtime(taken),
                "leaseTransitions": transitions(old, self.lease, stays=stays),
            }
        )

    def accepted(self, lease: Object, sent: float) -> None:
        """The server took our proposal, which was sent after the time `sent`."""
        if self.lease is None and self.free_at == NEVER and self.leads_until == NEVER:
            self.leads_from = sent + 2 * self.timing.retry_seconds
        self.lease = lease
        self.free_at = NEVER
        self.leads_until = sent + self.timing.renew_seconds

    def resign(self, wall: datetime) -> Object | None:
        """Lead no more from now on; the Lease to write so that another can take over at once."""
        leads_until, self.leads_until = self.leads_until, NEVER
        if leads_until == NEVER or self.holder != self.identity:
            return None
        taken = microtime(self.later(wall))
        return self.manifest(
            {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "acquireTime": taken,
                "renewTime": taken,
                "leaseTransitions": record(self.lease).get("leaseTransitions") or 0,
            }
        )

    def wait_seconds(self, now: float) -> float:
        """How long to wait before the next look or renewal."""
        until = self.leads_from if now < self.leads_until else self.free_at
        retry = self.timing.retry_seconds
        return min(retry, until - now) if now < until else retry

    def manifest(self, spec: Object) -> Object:
        """The Lease as last seen with a new record; fields that we do not know stay."""
        meta = (self.lease or {}).get("metadata") or {
            "namespace": self.key.namespace,
            "name": self.key.name,
        }
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {name: value for name, value in meta.items() if name != "managedFields"},
            "spec": record(self.lease) | spec,
        }

    def later(self, wall: datetime) -> datetime:
        """The time to write: later than the last, for an unchanged record renews nothing."""
        if self.written is not None:
            wall = max(wall, self.written + timedelta(microseconds=1))
        self.written = wall
        return wall


def record(lease: Object | None) -> dict[str, Any]:
    """The part of a Lease that the election is about."""
    return (lease or {}).get("spec") or {}


def transitions(old: Object, lease: Object | None, *, stays: bool) -> int:
    """How often the Lease went from one to another."""
    known = int(old.get("leaseTransitions") or 0)
    return known if stays or lease is None else known + 1


def microtime(time: datetime) -> str:
    """A time as Kubernetes writes those that need more than seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
