"""One process of several leads: it holds a Lease, renews it, and stops when it cannot.

The rules are in `runtime.election`; this module plays by them against a real server. A process that
acts as leader asks `require` right before each act, or acts inside `acting`: a process that was
paused continues in the middle of anything, and finds out there that its time has passed.

What remains: a process that is paused after `require` and before its bytes left the machine sends
them when it wakes. No client can rule that out; where even that must not be, the write must carry
the resource version that was read, so that the server refuses it. And when a client deletes the
Lease of a leader that just then cannot reach the server, a process that has never seen that Lease
may lead before the old leader's time, `renew_seconds` at most, is over.
"""

import asyncio
import socket
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct

from knfleet.api.core import LEASES
from knfleet.api.meta import Key, Object
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from knfleet.runtime.clock import uptime
from knfleet.runtime.leader.lease_rules import Candidate, LeaseTiming, LostLeadership
from knfleet.runtime.logs import log

__all__ = ["Leader", "LeaderOptions", "LeaseTiming", "LostLeadership"]

HURRY_SECONDS = 0.5
"""A leader that failed to renew tries again this soon."""
RELEASE_SECONDS = 2
"""How long giving the Lease back may take."""


class LeaderObserver(Protocol):
    """Receives whether this process leads, for metrics."""

    def leader(self, *, leads: bool) -> None:
        """It leads from now on, or no more."""
        ...


class SilentLeader:
    """The observer that does nothing."""

    def leader(self, *, leads: bool) -> None:
        """It leads, or no more."""


def own_identity() -> str:
    """A name that no other process has, not even an earlier one of this machine."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderOptions(Struct, frozen=True):
    """How the election is played."""

    timing: LeaseTiming = LeaseTiming()
    clock: Callable[[], float] = uptime
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    observe: LeaderObserver = SilentLeader()


DEFAULTS = LeaderOptions()


class Leader:
    """This process's part in one election.

    `run` waits for its turn, leads until it is cancelled, and then gives the Lease back; everything
    that acts as leader must have ended before that. It raises `LostLeadership` when leading ended
    otherwise.
    """

    def __init__(
        self,
        client: Client,
        key: Key,
        identity: str = "",
        options: LeaderOptions = DEFAULTS,
    ) -> None:
        self.client = client.urgent
        self.key = key
        self.identity = identity or own_identity()
        self.options = options
        self.timing = options.timing
        self.clock = options.clock
        self.candidate = Candidate(key, self.identity, options.timing)
        self.leading = asyncio.Event()
        """Set when this process leads for the first time, and never cleared."""
        self.failing: KubeError | None = None
        self.must_read = True
        self.followed = ""

    def leads(self) -> bool:
        """Whether this process leads at this moment."""
        return self.candidate.leads(self.clock())

    def require(self) -> None:
        """Raise `LostLeadership` unless this process leads now; costs next to nothing."""
        if not self.candidate.leads(self.clock()):
            raise LostLeadership(self.why_not())

    @asynccontextmanager
    async def acting(self) -> AsyncGenerator[None]:
        """Do something as leader; `TimeoutError` cuts it off before another process can lead."""
        self.require()
        left = self.candidate.leads_until - self.clock()
        async with asyncio.timeout(left + self.timing.request_seconds):
            yield

    async def run(self) -> None:
        """Become leader, stay leader."""
        try:
            while not self.leads():
                await self.attempt()
                if not self.leads():
                    self.log_leader()
                    await asyncio.sleep(self.candidate.wait_seconds(self.clock()))
            log.info("leading", lease=str(self.key), identity=self.identity)
            self.options.observe.leader(leads=True)
            self.leading.set()
            await self.stay()
        except asyncio.CancelledError:
            await self.release()
            raise
        finally:
            self.options.observe.leader(leads=False)

    async def stay(self) -> None:
        """Renew until that fails for too long, or another leads."""
        while True:
            wait = HURRY_SECONDS if self.failing or self.must_read else self.timing.retry_seconds
            left = self.candidate.leads_until - self.clock()
            await asyncio.sleep(max(0.0, min(wait, left)))
            self.require()
            await self.attempt()
            self.require()

    async def attempt(self) -> None:
        """Try once to take or to keep the Lease; what goes wrong is kept in `failing`."""
        try:
            await self.bid()
        except (Conflict, AlreadyExists, NotFound):
            # Another client wrote or deleted it meanwhile: look at it before the next try.
            self.must_read = True
        except KubeError as error:
            self.must_read = self.must_read or not self.leads()
            self.failed(error)
        else:
            self.failing = None

    async def bid(self) -> None:
        """Read the Lease unless we know it, and write it if it is ours or free."""
        candidate = self.candidate
        if self.must_read:
            candidate.observe(await self.read(), self.clock())
            self.must_read = False
        sent = self.clock()
        manifest = candidate.proposal(sent, self.options.wall())
        if manifest is None:
            self.must_read = True
            return
        lease = await self.write(manifest, self.request_seconds())
        candidate.accepted(lease, sent)

    async def read(self) -> Object | None:
        """The Lease as it is now."""
        try:
            return await self.client.get(
                LEASES, self.key.name, self.key.namespace, deadline=self.request_seconds()
            )
        except NotFound:
            return None

    async def write(self, manifest: Object, deadline: float) -> Object:
        """Write the Lease over the version that was seen, or where none was."""
        if manifest["metadata"].get("resourceVersion"):
            return await self.client.replace(LEASES, manifest, deadline=deadline)
        return await self.client.create(LEASES, manifest, self.key.namespace, deadline=deadline)

    async def release(self) -> None:
        """Give the Lease back if we hold it, so that another takes over at once."""
        manifest = self.candidate.resign(self.options.wall())
        if manifest is None:
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self.release_lease(manifest)
        except (KubeError, TimeoutError) as error:
            log.warning("lease not released", lease=str(self.key), error=str(error))
        else:
            log.info("lease released", lease=str(self.key))

    async def release_lease(self, manifest: Object) -> None:
        """Write the release, also when a renewal that was cut short had arrived before."""
        try:
            await self.write(manifest, RELEASE_SECONDS)
        except Conflict:
            lease = await self.read()
            if lease and lease["spec"].get("holderIdentity") == self.identity:
                manifest["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
                await self.write(manifest, RELEASE_SECONDS)

    def request_seconds(self) -> float:
        """How long one request may take: so that a renewal can be tried more than once."""
        limit = self.timing.renew_seconds / 3
        left = self.candidate.leads_until - self.clock()
        return min(limit, left) if left > 0 else limit

    def failed(self, error: KubeError) -> None:
        """Remember an error, and tell of it once."""
        if self.failing is None:
            log.warning("lease not reachable", lease=str(self.key), error=str(error))
        self.failing = error

    def log_leader(self) -> None:
        """Say who leads, when that changes."""
        holder = self.candidate.holder
        if holder not in (self.followed, self.identity):
            self.followed = holder
            log.info("following", lease=str(self.key), holder=holder)

    def why_not(self) -> str:
        """Why this process does not lead."""
        lease = f"lease {self.key}"
        if self.clock() < self.candidate.leads_from:
            return f"{lease}: it is new; {self.identity} leads soon"
        if self.candidate.holder != self.identity:
            return f"{lease}: {self.candidate.holder or 'nobody'} leads, not {self.identity}"
        reason = self.failing or "the process was paused, or is releasing the Lease"
        return f"{lease}: not renewed for {self.timing.renew_seconds:g} s: {reason}"
