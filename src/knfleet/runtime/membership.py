"""This process as one of several that share work; the rules are in `runtime.sharing`.

Whoever works on something asks `owns` before, and has `require` asked before each write. Who keeps
something going registers a `Holder`, which is told when something is ours to begin, and lets go of
what is another's from now on. A process that cannot renew its Lease ends, as a leader does.
"""

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct

from knfleet.api.core import LEASES
from knfleet.api.meta import Key, Object
from knfleet.kube.client import Client
from knfleet.kube.errors import Conflict, KubeError, NotFound
from knfleet.runtime.clock import uptime
from knfleet.runtime.election import LostLeadership, Timing, microtime, record
from knfleet.runtime.logs import log
from knfleet.runtime.sharing import MEMBER, TIMING, VIEW, Party, View, owner

HURRY_SECONDS = 0.5
LEAVE_SECONDS = 2.0
LET_GO_SECONDS = 5.0
"""How long letting go may take; a process that cannot ends, which is letting go as well."""
FORGOTTEN_SECONDS = 600.0
"""After so long the Lease of a member that is dead is deleted."""


class LostMembership(LostLeadership):
    """This process is no member any more, or cannot know that it still is."""


class Holder(Protocol):
    """Somebody who works on shared things."""

    async def let_go(self) -> None:
        """Stop all work on what `Membership.owns` denies; return when nothing of it runs."""
        ...

    def take_up(self) -> None:
        """Begin with what `Membership.owns` grants, if that is not done yet."""
        ...


class MembershipOptions(Struct, frozen=True):
    """How the sharing is played."""

    work: str = "operator"
    """What is shared, as a label's value."""
    timing: Timing = TIMING
    clock: Callable[[], float] = uptime
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)


DEFAULTS = MembershipOptions()


class Membership:
    """This process's part in sharing one kind of work."""

    def __init__(
        self, client: Client, namespace: str, identity: str, options: MembershipOptions = DEFAULTS
    ) -> None:
        self.client = client.urgent
        self.identity = identity
        self.options = options
        self.clock = options.clock
        self.key = Key(namespace, f"knfleet-{options.work}-{uuid.uuid4().hex[:12]}")
        self.party = Party(self.key.name, options.timing)
        self.coming: View = frozenset()
        """The view that is about to be published; what is another's in there is let go."""
        self.holders: list[Holder] = []
        self.version = ""
        self.acquired = microtime(options.wall())
        self.failing: KubeError | None = None
        self.told: object = None

    def join(self, holder: Holder) -> None:
        """Have somebody told of what is ours."""
        self.holders.append(holder)

    def owns(self, thing: str) -> bool:
        """Whether something is ours to work on at this moment."""
        now = self.clock()
        return (
            self.party.is_alive(now)
            and owner(thing, self.coming) == self.key.name
            and self.party.is_mine(thing, now)
        )

    def require(self) -> None:
        """Raise `LostMembership` unless this process is a member now; costs next to nothing."""
        if not self.party.is_alive(self.clock()):
            reason = self.failing or "the process was paused"
            raise LostMembership(f"lease {self.key}: not renewed in time: {reason}")

    @property
    def members(self) -> View:
        """All members that are alive, as this one sees it."""
        return self.party.view(self.clock())

    async def run(self) -> None:
        """Be a member until cancelled; then leave, when all work has ended."""
        log.info("sharing work", lease=str(self.key), identity=self.identity)
        try:
            while True:
                await self.turn()
                wait = HURRY_SECONDS if self.failing else self.options.timing.retry_seconds
                await asyncio.sleep(wait)
        except asyncio.CancelledError:
            await self.leave()
            raise

    async def turn(self) -> None:
        """Look who is there, let go, renew, look again, and begin."""
        was_member = self.party.is_alive(self.clock())
        try:
            if self.failing is not None or not was_member:
                self.party.observe(await self.read(), self.clock())
            await self.adapt(self.party.view(self.clock()))
            await self.renew()
            leases = await self.read()
            self.party.has_read(leases, self.clock())
            await self.tidy(leases)
        except KubeError as error:
            if self.failing is None:
                log.warning("membership not renewed", lease=str(self.key), error=str(error))
            self.failing = error
        else:
            self.failing = None
        if was_member:
            self.require()
        self.tell()

    async def tidy(self, leases: list[Object]) -> None:
        """Delete Leases of members that were gone long ago."""
        for lease in leases:
            if is_forgotten(lease, self.options.wall()):
                with suppress(NotFound, Conflict):
                    uid = lease["metadata"]["uid"]
                    await self.client.delete(LEASES, Key.of(lease), uid=uid)

    def tell(self) -> None:
        """Tell everybody what is ours, if that may be something else than before."""
        now, party = self.clock(), self.party
        views = {name: seen.view for name, seen in party.seen.items() if party.is_live(name, now)}
        news = (party.published, party.read_after, views)
        if news != self.told:
            self.told = news
            for holder in self.holders:
                holder.take_up()

    async def adapt(self, view: View) -> None:
        """Let go of what is another's in a view that is to be published."""
        before, self.coming = self.coming, view
        if view == before:
            return
        log.info("work is shared out anew", members=len(view), before=len(before))
        async with asyncio.timeout(LET_GO_SECONDS), asyncio.TaskGroup() as group:
            for holder in self.holders:
                group.create_task(holder.let_go())

    async def renew(self) -> None:
        """Write our Lease, with the view that we work by from now on."""
        sent = self.clock()
        timing = self.options.timing
        manifest = self.manifest(self.identity, timing.lease_seconds)
        lease = await self.write(manifest, timing.request_seconds)
        self.version = lease["metadata"]["resourceVersion"]
        self.party.accepted(self.coming, sent)

    async def write(self, manifest: Object, deadline: float) -> Object:
        """Write our Lease; nobody else does, but somebody may delete or edit it."""
        if not self.version:
            return await self.client.create(LEASES, manifest, deadline=deadline)
        try:
            return await self.client.replace(LEASES, manifest, deadline=deadline)
        except (NotFound, Conflict) as error:
            found = {each["metadata"]["name"]: each for each in await self.read()}
            mine = found.get(self.key.name)
            self.version = "" if mine is None else mine["metadata"]["resourceVersion"]
            raise KubeError(f"lease {self.key}: somebody else wrote it: {error}") from error

    async def read(self) -> list[Object]:
        """The Leases of all members, as they are now."""
        listing = await self.client.list(
            LEASES,
            self.key.namespace,
            labels=f"{MEMBER}={self.options.work}",
            deadline=self.options.timing.request_seconds,
        )
        return listing.items

    def manifest(self, holder: str, seconds: int) -> Object:
        """Our Lease."""
        meta: Object = {
            "name": self.key.name,
            "namespace": self.key.namespace,
            "labels": {MEMBER: self.options.work},
            "annotations": {VIEW: ",".join(sorted(self.coming))},
        }
        if self.version:
            meta["resourceVersion"] = self.version
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": meta,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": seconds,
                "acquireTime": self.acquired,
                "renewTime": microtime(self.options.wall()),
            },
        }

    async def leave(self) -> None:
        """Tell the others that nothing is ours any more; all work has ended before."""
        if not self.version:
            return
        self.coming = frozenset()
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.write(self.manifest("", 1), LEAVE_SECONDS)
        except (KubeError, TimeoutError) as error:
            log.warning("membership not given up", lease=str(self.key), error=str(error))
        self.party.alive_until = float("-inf")


def is_forgotten(lease: Object, wall: datetime) -> bool:
    """Whether a member's Lease is of no use any more."""
    renewed = record(lease).get("renewTime")
    if not renewed:
        return False
    return (wall - datetime.fromisoformat(renewed)).total_seconds() > FORGOTTEN_SECONDS
