"""One spoke in use: the session that leads to it now, and what is in the way.

The way in may change at any time; the spoke then ends its session and begins another. What is
wrong with the profile stands above what the session says, because an unhealthy profile must not be
used even when its cluster answers, except to remove what is installed there.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.meta import ClusterName, Key
from knfleet.clusters.access_errors import (
    CLUSTER_PROFILE_UNAVAILABLE,
    REMOTE_CLUSTER_STALE,
    AccessError,
    provider_closed,
)
from knfleet.clusters.access_resolver import ResolvedAccess
from knfleet.clusters.connection import ClusterConnection
from knfleet.clusters.connection_state import (
    ClusterState,
    Phase,
    PhaseReason,
    cluster_name,
    failure,
    stale,
)
from knfleet.clusters.timing import ConnectionSetup
from knfleet.kube.client.verbs import Client


class NotYetResolved(AccessError):
    """Profiles are still being read, which is worth waiting for."""


class LiveCluster(Struct, frozen=True):
    """A cluster that answers."""

    cluster: ClusterName
    client: Client
    """Another object than before when it is another connection."""
    uid: str
    """Of its kube-system; empty when it may not be read."""
    version: str


class Cluster:
    """One spoke in use."""

    def __init__(
        self, profile: Key, setup: ConnectionSetup, notified: Callable[[Key], None]
    ) -> None:
        self.profile = profile
        self.setup = setup
        self.notified = notified
        self.holders: set[str] = set()
        self.access: ResolvedAccess | None = None
        self.problem: AccessError | None = not_yet_resolved(profile)
        self.despite = False
        """Whether a caller needs access although the profile is not healthy."""
        self.session: ClusterConnection | None = None
        self.sessions = 0
        self.was_connected = False
        self.excesses = 0
        """How many sessions in a row ended because the spoke sent too much."""
        self.refused: PhaseReason | None = None
        """How the last of them stood."""
        self.failed: dict[str, int] = {}
        """How many tries failed in sessions that are over, by reason."""
        self.past_runs = 0
        self.past_seconds = 0.0
        self.closed = False
        self.is_last_call = False
        """Whether no caller may wait for a connection any more."""
        self.since = datetime.now(UTC)
        self.last_told: tuple[object, ...] = ()
        self.last_kind: tuple[str, str] = ("", "")
        self.moved = asyncio.Event()
        """Set when there may be another way in."""
        self.changed = asyncio.Event()

    def aim(self, access: ResolvedAccess | None, problem: AccessError | None) -> None:
        """Take this way in from now on; a problem is in the way of everything but removal."""
        cleared = self.problem is not None and problem is None
        self.access, self.problem = access, problem
        self.moved.set()
        session = self.session
        if session is not None and session.access != access:
            # Now, not when the session's own task comes to it: not one more request goes there.
            session.end(self.end_reason())
        elif cleared and session is not None and not session.answering:
            session.hurry()
        self.notify()

    def notify(self) -> None:
        """Notify all handlers, if something changed."""
        verdict = self.verdict()
        session = self.session
        answering = session is not None and session.answering
        news = (verdict, answering, self.sessions)
        if news == self.last_told:
            return
        if (verdict.phase, verdict.reason) != self.last_kind:
            self.since = datetime.now(UTC)
        self.last_told = news
        self.last_kind = (verdict.phase, verdict.reason)
        self.wake()
        self.notified(self.profile)

    def dismiss(self) -> None:
        """Send away who waits for a connection: this process ends."""
        self.is_last_call = True
        self.wake()

    def wake(self) -> None:
        """Wake all callers that wait for the spoke."""
        self.changed.set()
        self.changed = asyncio.Event()

    def verdict(self) -> PhaseReason:
        """How the spoke stands."""
        if self.closed:
            error = provider_closed()
            return PhaseReason(Phase.CLOSED, error.reason, str(error))
        if self.problem is not None:
            waiting = isinstance(self.problem, NotYetResolved)
            phase = Phase.CONNECTING if waiting else Phase.REFUSED
            return PhaseReason(phase, self.problem.reason, str(self.problem))
        if self.session is None:
            return PhaseReason(Phase.CONNECTING)
        if self.session.ended is not None:
            return PhaseReason(Phase.CONNECTING, REMOTE_CLUSTER_STALE, str(self.session.ended))
        return self.session.verdict

    def state(self) -> ClusterState:
        """How the spoke stands, with all that is known about it."""
        verdict, session, access = self.verdict(), self.session, self.access
        state = ClusterState(
            profile=self.profile,
            phase=verdict.phase,
            reason=verdict.reason,
            message=verdict.message,
            since=self.since,
            server=access.endpoint.server if access is not None else "",
            provider=access.provider if access is not None else "",
            plugin_seconds=self.plugin_seconds(),
            plugin_runs=self.plugin_runs(),
        )
        return state if session is None else with_session(state, session)

    async def run(self) -> None:
        """Keep a session for as long as there is a way in."""
        try:
            while True:
                await self.hold(await self.next_access())
        finally:
            # No handler is called: the caller that ends this knows, and a shutdown is not the
            # spoke's fault.
            self.closed = True
            self.wake()

    async def next_access(self) -> ResolvedAccess:
        """Wait for access that a caller may use."""
        while self.access is None or not (self.problem is None or self.despite):
            self.moved.clear()
            await self.moved.wait()
        return self.access

    async def hold(self, access: ResolvedAccess) -> None:
        """Keep one session until it ends, or there is another way in."""
        session = self.session = ClusterConnection(self.profile, access, self.setup, self.notify)
        self.sessions += 1
        session.excesses = self.excesses
        if self.refused is not None:
            session.verdict = self.refused
        elif self.was_connected:
            session.verdict = stale(self.profile, access.endpoint.server)
        self.notify()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    group.create_task(session.run()),
                    group.create_task(self.until_other(session)),
                }
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                session.end(self.end_reason())
                for task in tasks:
                    task.cancel()
        finally:
            session.end(provider_closed())  # if it was cancelled before it ran
            self.was_connected = self.was_connected or session.seen is not None
            if session.excess is not None:
                self.excesses += 1
                self.refused = failure(session.excess, self.profile, access)
            else:
                self.excesses, self.refused = 0, None
            self.failed = self.all_failed()
            self.past_runs, self.past_seconds = self.plugin_runs(), self.plugin_seconds()
            self.session = None

    def all_failed(self) -> dict[str, int]:
        """How many tries failed, by reason."""
        total = dict(self.failed)
        for reason, count in (self.session.failed if self.session is not None else {}).items():
            total[reason] = total.get(reason, 0) + count
        return total

    def plugin_runs(self) -> int:
        """How often the plugin was run."""
        return self.past_runs + (self.session.runs.count if self.session is not None else 0)

    def plugin_seconds(self) -> float:
        """How long all runs of the plugin took together."""
        return self.past_seconds + (self.session.runs.seconds if self.session is not None else 0.0)

    async def until_other(self, session: ClusterConnection) -> None:
        """Wait until there is another way in than a session's, or none."""
        while session.ended is None and self.access == session.access:
            self.moved.clear()
            await self.moved.wait()

    def end_reason(self) -> AccessError:
        """What to tell those who still use the old session."""
        if self.problem is not None:
            return self.problem
        text = f"cluster connection is stale: {self.profile}: the access to it changed"
        return AccessError(REMOTE_CLUSTER_STALE, f"{text}; a new connection is being made")

    async def live(self, *, even_unhealthy: bool) -> LiveCluster:
        """The cluster, once it answers; raises `AccessError` when it does not, or not soon."""
        if even_unhealthy and not self.despite:
            self.despite = True
            self.moved.set()
        while (outcome := self.outcome(even_unhealthy=even_unhealthy)) is None:
            if self.is_last_call:
                raise provider_closed()
            if not await self.wait_changed() and not self.is_queued():
                # Whatever came while this process was busy elsewhere counts.
                outcome = self.outcome(even_unhealthy=even_unhealthy) or self.why_not_yet()
                break
        if isinstance(outcome, AccessError):
            # A new error for each caller: one shared by many would collect all their tracebacks.
            raise AccessError(outcome.reason, str(outcome))
        return outcome

    async def wait_changed(self) -> bool:
        """Wait a while for news; whether there are any."""
        try:
            async with asyncio.timeout(self.setup.timing.patience):
                await self.changed.wait()
        except TimeoutError:
            return False
        return True

    def is_queued(self) -> bool:
        """Whether nothing was tried yet, since others are before it."""
        session = self.session
        if session is None or session.failures:
            return False
        return session.is_queued or session.runs.is_queued

    def outcome(self, *, even_unhealthy: bool) -> LiveCluster | AccessError | None:
        """What a caller gets that needs the spoke now; None when it is worth waiting."""
        if self.closed:
            return provider_closed()
        if self.problem is not None and not (even_unhealthy and self.access is not None):
            return None if isinstance(self.problem, NotYetResolved) else self.problem
        session = self.session
        if session is None or session.ended is not None:
            return None
        verdict = session.verdict
        if session.answering and (even_unhealthy or verdict.phase is Phase.UP):
            assert session.seen is not None
            name = cluster_name(self.profile)
            return LiveCluster(name, session.client, session.seen.uid, session.seen.version)
        if verdict.phase is Phase.CONNECTING:
            return None
        return AccessError(verdict.reason, verdict.message)

    def why_not_yet(self) -> AccessError:
        """The error for a caller that has waited long enough."""
        session = self.session
        if session is None or session.ended is not None:
            return self.problem or not_yet_resolved(self.profile)
        return session.not_up()


def with_session(state: ClusterState, session: ClusterConnection) -> ClusterState:
    """A state with what its session knows."""
    seen = session.seen
    return replace(
        state,
        last_contact=session.last_contact,
        version=seen.version if seen is not None else "",
        uid=seen.uid if seen is not None else "",
        failures=session.failures,
    )


def not_yet_resolved(profile: Key) -> NotYetResolved:
    """Nothing is known yet."""
    text = f"ClusterProfile not yet resolved: {profile}; profiles are still being read"
    return NotYetResolved(CLUSTER_PROFILE_UNAVAILABLE, text)
