"""This process as one of several that share work; the rules are in `runtime.shards.rules`.

A caller that works on an item asks `owns` before, and has `require` asked before each write. One
that keeps an item running registers a `ShardHolder`, which is called when the item becomes ours and
when it becomes another member's. A process that did not renew its Lease in time stops, as a leader
does, even if it could renew it now: others have what was its own. It joins again as a new member.
"""

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import Struct

from knfleet.api.core import LEASES
from knfleet.api.meta import Key, Object
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from knfleet.runtime.clock import uptime
from knfleet.runtime.leader.lease_rules import NEVER, LeaseTiming, LostLeadership, microtime
from knfleet.runtime.logs import log
from knfleet.runtime.shards.rules import MEMBER, TIMING, VIEW, ShardMembers, View

HURRY_SECONDS = 0.5
SOON_SECONDS = 0.1
LEAVE_SECONDS = 2.0


class LostMembership(LostLeadership):
    """This process is no member any more, or cannot know that it still is."""


class ShardHolder(Protocol):
    """Works on items that are shared out."""

    async def on_lost(self) -> None:
        """Stop all work on what `Membership.owns` denies; return when nothing of it runs."""
        ...

    def on_gained(self) -> None:
        """Begin with what `Membership.owns` grants, if that is not done yet."""
        ...


class MembershipOptions(Struct, frozen=True):
    """How the sharing is played."""

    work: str = "operator"
    """What is shared, as a label's value."""
    timing: LeaseTiming = TIMING
    let_go_seconds: float = 5.0
    """How long letting go may take; a process that cannot ends, which is letting go as well."""
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
        self.party = ShardMembers(self.key.name, options.timing)
        self.view: View = frozenset()
        """The view that was published last, or is about to be."""
        self.may_work: Callable[[], bool] = lambda: True
        """Whether the work is for members at all at this moment."""
        self.might_work = True
        self.holders: list[ShardHolder] = []
        self.version = ""
        self.reads = 0
        """How often all Leases were read."""
        self.renewed = options.wall()
        self.acquired = microtime(self.renewed)
        self.failing: KubeError | None = None
        self.notified: object = None

    def join(self, holder: ShardHolder) -> None:
        self.holders.append(holder)

    def owns(self, thing: str) -> bool:
        """Whether something is ours to work on at this moment."""
        now = self.clock()
        return self.may_work() and self.party.is_alive(now) and self.party.is_mine(thing, now)

    def knows(self, identity: str) -> bool:
        """Whether a process is or was a member."""
        return bool(identity) and identity in (self.identity, *self.party.identities)

    def require(self) -> None:
        """Raise `LostMembership` unless this process is a member now; costs next to nothing."""
        if not self.party.is_alive(self.clock()):
            reason = self.failing or "the process was paused, or leaves"
            raise LostMembership(f"lease {self.key}: not renewed in time: {reason}")

    def require_still(self) -> None:
        """The same, unless it was never one: then it may still become one."""
        if self.party.published:
            self.require()

    @property
    def members(self) -> View:
        """All members that are alive, as this one sees it."""
        return self.party.view(self.clock())

    async def run(self) -> None:
        """Be a member until cancelled; then leave, when all work has ended."""
        log.info("sharing work", lease=str(self.key), identity=self.identity)
        try:
            while True:
                await self.step()
                await asyncio.sleep(self.wait_seconds())
        except asyncio.CancelledError:
            await self.leave()
            raise

    def wait_seconds(self) -> float:
        """How long to wait before the next turn: until it is time, or a member is dead.

        As long as members are at odds some spokes have no owner, so they hurry.
        """
        now, retry = self.clock(), self.options.timing.retry_seconds
        if self.failing is not None or not self.party.is_settled(now):
            return HURRY_SECONDS
        left = [self.party.dies_at(name) - now for name in self.party.others(now)]
        return max(SOON_SECONDS, min([retry, *left]))

    async def step(self) -> None:
        """Look who is there, let go, renew, look again, and begin."""
        self.require_still()
        try:
            if not self.party.published:
                self.party.observe(await self.read(), self.clock())
            await self.adapt(self.party.view(self.clock()))
            await self.renew()
            leases = await self.read()
            self.party.has_read(leases, self.clock())
            self.reads += 1
        except KubeError as error:
            if self.failing is None:
                log.warning("membership not renewed", lease=str(self.key), error=str(error))
            self.failing = error
        else:
            self.failing = None
            await self.tidy(leases)
        self.require_still()
        self.notify()

    async def tidy(self, leases: list[Object]) -> None:
        """Delete Leases of members that were gone long ago, as far as that goes."""
        forgotten = self.party.forgotten(self.clock())
        for lease in leases:
            meta = lease["metadata"]
            if meta["name"] in forgotten:
                with suppress(KubeError):
                    await self.client.delete(
                        LEASES,
                        Key.of(lease),
                        uid=meta["uid"],
                        resource_version=meta["resourceVersion"],
                        deadline=HURRY_SECONDS,
                    )

    def notify(self) -> None:
        """Notify all holders of what is ours, if that may be something else than before."""
        news = (self.may_work(), *self.party.news(self.clock()))
        if news != self.notified:
            self.notified = news
            for holder in self.holders:
                holder.on_gained()

    async def adapt(self, view: View) -> None:
        """Let go of what is another's in a view that is to be published."""
        before, self.view = self.view, view
        might_work, self.might_work = self.might_work, self.may_work()
        self.party.intends(view)
        if view == before and (self.might_work or not might_work):
            return
        log.info("work is shared out anew", members=len(view), before=len(before))
        async with asyncio.timeout(self.options.let_go_seconds), asyncio.TaskGroup() as group:
            for holder in self.holders:
                group.create_task(holder.on_lost())

    async def renew(self) -> None:
        """Write our Lease, with the view that we work by from now on."""
        # Letting go may have taken too long: then another has, or may have, what was ours.
        self.require_still()
        sent = self.clock()
        manifest = self.manifest(self.identity, self.options.timing.lease_seconds)
        lease = await self.write(manifest)
        self.version = lease["metadata"]["resourceVersion"]
        self.party.accepted(self.view, sent)

    async def write(self, manifest: Object) -> Object:
        """Write our Lease; no other member does, but a client may delete or edit it."""
        deadline = self.request_seconds
        try:
            if not self.version:
                return await self.client.create(LEASES, manifest, deadline=deadline)
            return await self.client.replace(LEASES, manifest, deadline=deadline)
        except (AlreadyExists, NotFound, Conflict) as error:
            # Or it was our own write that came through and was not answered.
            found = {each["metadata"]["name"]: each for each in await self.read()}
            mine = found.get(self.key.name)
            self.version = "" if mine is None else mine["metadata"]["resourceVersion"]
            raise KubeError(f"lease {self.key} is not as it was: {error}") from error

    async def read(self) -> list[Object]:
        """The Leases of all members, as they are now."""
        listing = await self.client.list(
            LEASES,
            self.key.namespace,
            labels=f"{MEMBER}={self.options.work}",
            deadline=self.request_seconds,
        )
        return listing.items

    @property
    def request_seconds(self) -> float:
        """How long one request may take: so that a renewal can be tried more than once."""
        return self.options.timing.renew_seconds / 3

    def manifest(self, holder: str, seconds: int) -> Object:
        """Our Lease; its time is later than the last, for an unchanged record renews nothing."""
        self.renewed = max(self.options.wall(), self.renewed + timedelta(microseconds=1))
        meta: Object = {
            "name": self.key.name,
            "namespace": self.key.namespace,
            "labels": {MEMBER: self.options.work},
            "annotations": {VIEW: ",".join(sorted(self.view))},
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
                "renewTime": microtime(self.renewed),
            },
        }

    async def leave(self) -> None:
        """Tell the others that nothing is ours any more; all work has ended before."""
        if not self.version:
            return
        self.party.alive_until = NEVER
        self.view = frozenset()
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.write(self.manifest("", 1))
        except (KubeError, TimeoutError) as error:
            log.warning("membership not released", lease=str(self.key), error=str(error))
