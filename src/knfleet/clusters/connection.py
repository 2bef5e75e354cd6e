"""One connection to a spoke, from its first try to its end: connect, probe, breaker.

A connection is about one `ResolvedAccess` and one cluster (the uid of its kube-system). When either
changes, it ends for good, and its client with it. As long as the spoke does not answer, requests of
the client fail at once and watches wait; all requests in progress are cut. After a loss nothing
is written before the uid was read again.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime

from knfleet.api.meta import ClusterName, Key, Resource
from knfleet.clusters.access_errors import (
    ACCESS_PROVIDER_FAILED,
    REMOTE_CLIENT_CREATION_FAILED,
    AccessError,
    provider_closed,
)
from knfleet.clusters.access_resolver import ResolvedAccess
from knfleet.clusters.connection_state import Phase, PhaseReason, cluster_name, failure, replaced
from knfleet.clusters.plugin_credentials import PluginCredentials
from knfleet.clusters.preflight import (
    KUBE_SYSTEM_PATH,
    PreflightResult,
    kube_system_uid,
    objection,
    run_preflight,
    uid_in,
)
from knfleet.clusters.timing import ConnectionSetup
from knfleet.kube.client.options import MIB, SlotUse
from knfleet.kube.client.probe import ApiProber
from knfleet.kube.client.retry import backoff
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import (
    CredentialError,
    KubeError,
    NetworkError,
    RequestTimeout,
    ResponseTooLarge,
    Throttled,
    Unauthorized,
)
from knfleet.runtime.logs import log

ANSWER_LIMIT_BYTES = 32 * MIB
MEMORY_LIMIT_BYTES = 128 * MIB
"""What one spoke may take; a thousand CRDs that were applied by kubectl take less."""


class ClusterConnection:
    """One connection; the gate and the observer of its client."""

    def __init__(
        self,
        profile: Key,
        access: ResolvedAccess,
        setup: ConnectionSetup,
        stirred: Callable[[], None],
    ):
        self.profile = profile
        self.access = access
        self.setup = setup
        self.stirred = stirred
        self.runs = PluginCredentials(access.plugin, setup.plugin_starts, setup.run, setup.programs)
        options = ClientOptions(
            user_agent=setup.user_agent,
            observe=self,
            before_write=setup.before_write,
            answer_limit_bytes=ANSWER_LIMIT_BYTES,
            memory_limit_bytes=MEMORY_LIMIT_BYTES,
            read_bytes_per_second=setup.timing.reading,
            exceeded=self.exceed,
            gate=self,
        )
        connection = Connection(cluster_name(profile), access.endpoint, self.runs)
        self.client = Client(connection, options)
        self.probing = self.client.urgent
        self.pulse = ApiProber(self.client.transport, KUBE_SYSTEM_PATH)
        self.login = self.client.transport.login
        self.verdict = PhaseReason(Phase.CONNECTING)
        self.seen: PreflightResult | None = None
        """What the spoke reported when it was connected to last; None before the first time."""
        self.is_queued = False
        """Whether it waits for its turn to connect, which is no fault of the spoke."""
        self.answering = False
        self.troubles = 0
        """How often something went wrong."""
        self.cleared = 0
        """How many of the troubles the uid was read after."""
        self.confirmed_at = 0.0
        """When the uid was read last."""
        self.ended: AccessError | None = None
        self.last_contact: datetime | None = None
        self.latency = 0.0
        self.failures = 0
        self.failed_with: KubeError | None = None
        self.failed: dict[str, int] = {}
        """How many tries failed in all, by reason."""
        self.excess: ResponseTooLarge | None = None
        """What was too much of what the spoke sent."""
        self.excesses = 0
        """How many sessions before this one ended by that."""
        self.woken = asyncio.Event()
        self.changed = asyncio.Event()

    @property
    def doubt(self) -> bool:
        """Whether something went wrong since the uid was read."""
        return self.troubles != self.cleared

    @property
    def where(self) -> str:
        """The spoke, for messages."""
        return f"ClusterProfile {self.profile}: {self.access.endpoint.server}"

    async def run(self) -> None:
        """Keep the connection until cancelled, or until it leads to another cluster."""
        try:
            while self.ended is None:
                self.is_queued = True
                async with self.setup.connection_starts.slot():
                    self.is_queued = False
                    await self.connect()
                if self.answering and self.verdict.phase is Phase.UP:
                    await self.stay_up()
                elif self.excess is None:
                    await self.pause()
                if self.excess is not None:
                    await self.sit_out()
        finally:
            self.end(provider_closed())  # before its client closes: users get the reason
            self.pulse.close()
            await self.client.close()

    def end(self, why: AccessError) -> None:
        """No request is sent any more; their callers get the reason."""
        if self.ended is not None:
            return
        self.ended = why
        self.answering = False
        self.move(PhaseReason(Phase.CLOSED, why.reason, str(why)))

    def hurry(self) -> None:
        """Look at the spoke now, not later."""
        self.woken.set()

    def move(self, verdict: PhaseReason) -> None:
        """Take up a new state, and notify all who wait for one."""
        self.verdict = verdict
        self.wake()
        self.stirred()

    def wake(self) -> None:
        """Wake all callers that wait at the gate."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def connect(self) -> None:
        """Try once to get all answers that are needed."""
        loop = asyncio.get_running_loop()
        self.woken.clear()
        troubles = self.troubles
        if isinstance(self.failed_with, CredentialError | Unauthorized):
            self.login.renew()
        try:
            # A plugin has its own time limit, longer than a server's.
            await self.login.current()
            started = loop.time()
            seen = await run_preflight(self.probing, self.setup.timing.connect)
        except KubeError as error:
            if self.excess is None:
                self.mark_lost(error)
            return
        self.latency = (loop.time() - started) / 2
        self.confirmed_at, self.cleared = loop.time(), troubles
        self.answered(seen)

    def answered(self, seen: PreflightResult) -> None:
        """The spoke gave all answers."""
        if self.excess is not None:
            return
        if self.seen is not None and self.seen.uid != seen.uid:
            self.end(replaced(self.profile, self.seen.uid, seen.uid))
            return
        self.seen = seen
        self.contact()
        self.answering = True
        objected = objection(seen, self.where, self.setup.minimum)
        if objected is not None:
            self.count_failure(objected.reason)
            self.failed_with = objected
            if self.failures == 1:
                log.warning("spoke cannot be used", profile=str(self.profile), error=str(objected))
            self.move(PhaseReason(Phase.REFUSED, objected.reason, str(objected)))
            return
        self.failures, self.failed_with = 0, None
        remark = "" if seen.uid else UNKNOWN_UID
        log.info("spoke is up", profile=str(self.profile), version=seen.version, remark=remark)
        self.move(PhaseReason(Phase.UP, message=remark))

    def mark_lost(self, error: KubeError) -> None:
        """The spoke cannot be used: close the gate, and cut requests in progress."""
        if isinstance(error, RequestTimeout) and not self.login.is_fresh():
            command = self.access.plugin.command
            error = CredentialError(f"credential plugin {command} does not answer: {error}")
        verdict = failure(error, self.profile, self.access)
        self.count_failure(verdict.reason)
        self.failed_with = error
        if self.answering or self.failures == 1:
            log.warning("spoke cannot be used", profile=str(self.profile), error=verdict.message)
        self.answering = False
        self.pulse.close()
        self.client.transport.cut()
        self.move(verdict)

    def exceed(self, error: ResponseTooLarge) -> None:
        """The spoke sent more than it may: nothing of this session is used any more."""
        if self.excess is None and self.ended is None:
            self.excess = error
            self.mark_lost(error)
            self.hurry()

    async def sit_out(self) -> None:
        """Wait long enough that the spoke costs nothing, then end."""
        timing = self.setup.timing
        seconds = backoff(self.excesses + 1, base=timing.excess, limit=timing.excess_limit)
        self.woken.clear()
        await self.wait_woken(seconds)
        self.end(AccessError(self.verdict.reason, self.verdict.message))

    def count_failure(self, reason: str) -> None:
        """One more try came to nothing."""
        self.failures += 1
        self.failed[reason] = self.failed.get(reason, 0) + 1

    async def pause(self) -> None:
        """Wait before the next try, longer each time; a new plugin ends the wait."""
        timing = self.setup.timing
        about_plugin = isinstance(self.failed_with, CredentialError | Unauthorized)
        limit = timing.plugin_retry_limit if about_plugin else timing.retry_limit
        left = backoff(self.failures, base=timing.retry, limit=limit)
        while left > 0 and not self.woken.is_set():
            step = min(left, timing.look) if about_plugin else left
            await self.wait_woken(step)
            left -= step
            if about_plugin and self.runs.is_other_program():
                return

    async def wait_woken(self, seconds: float) -> None:
        """Wait until a caller is in a hurry, but not for ever."""
        try:
            async with asyncio.timeout(seconds):
                await self.woken.wait()
        except TimeoutError:
            pass

    async def stay_up(self) -> None:
        """Probe until a probe fails; meanwhile fetch credentials before they are needed."""
        timing, loop = self.setup.timing, asyncio.get_running_loop()
        probed_at = loop.time()
        async with asyncio.TaskGroup() as group:
            renewing: asyncio.Task[None] | None = None
            while self.answering:
                spread = random.uniform(0, timing.spread)  # noqa: S311  no secret
                await self.wake_at(probed_at + timing.probe + spread)
                if (early := probed_at + timing.soonest - loop.time()) > 0:
                    await asyncio.sleep(early)
                self.woken.clear()
                if (renewing is None or renewing.done()) and self.runs.wants_run():
                    renewing = group.create_task(self.renew_login())
                probed_at = loop.time()
                await self.probe()
                if self.answering:
                    await self.pulse.open(timing.answer)
            if renewing is not None:
                renewing.cancel()

    async def wake_at(self, when: float) -> None:
        """Wait until a caller is in a hurry, or it is time; cheaper than a time limit."""
        alarm = asyncio.get_running_loop().call_at(when, self.woken.set)
        try:
            await self.woken.wait()
        finally:
            alarm.cancel()

    async def probe(self) -> None:
        """Ask once whether the spoke is there, and still the same."""
        assert self.seen is not None
        timing = self.setup.timing
        loop = asyncio.get_running_loop()
        started, troubles = loop.time(), self.troubles
        deadline = min(timing.slow_answer, max(timing.answer, 2 * self.latency))
        try:
            uid = await self.current_uid(deadline)
        except Throttled:
            # An answer, if not the one that was asked for.
            self.contact()
            if self.doubt:
                self.hurry()
            return
        except KubeError as error:
            if self.excess is None:
                self.mark_lost(error)
            return
        self.latency = loop.time() - started
        self.confirmed_at = loop.time()
        self.contact()
        if uid != self.seen.uid:
            self.end(replaced(self.profile, self.seen.uid, uid))
        elif self.cleared != troubles:
            self.cleared = troubles
            self.wake()

    async def current_uid(self, deadline: float) -> str:
        """The uid of the cluster that is there; cheaply as long as nothing went wrong."""
        if self.doubt:
            # Where a connection leads that was made before says nothing about the next one.
            self.pulse.close()
        body = await self.pulse.probe(deadline)
        if body is not None:
            return uid_in(body)
        return await kube_system_uid(self.probing, deadline)

    async def renew_login(self) -> None:
        """Fetch the next credential while the one before still serves."""
        outcome = await self.login.shared_refresh()
        if isinstance(outcome, KubeError):
            log.warning("next login failed", profile=str(self.profile), error=str(outcome))
            await asyncio.sleep(self.setup.timing.plugin_retry_limit)

    def contact(self) -> None:
        """The spoke answered."""
        self.last_contact = datetime.now(UTC)

    async def enter(self, use: SlotUse) -> None:
        """The gate of the client: open while the spoke answers and is known to be the same."""
        while True:
            if self.ended is not None:
                raise AccessError(self.ended.reason, str(self.ended))
            if use is SlotUse.WRITE and self.is_cut_off():
                self.suspect()
            if self.answering and not (self.doubt and use is SlotUse.WRITE):
                return
            if not self.answering and use is not SlotUse.WATCH:
                raise self.not_up()
            await self.changed.wait()

    def is_cut_off(self) -> bool:
        """Whether no connection is left over from when the uid was read.

        There always is one, kept open by the probes, unless the other side closed it; and then the
        next one may lead to another cluster.
        """
        age = asyncio.get_running_loop().time() - self.confirmed_at
        connected = self.pulse.is_open() or self.client.transport.connected()
        return age > self.setup.timing.soonest and not connected

    def not_up(self) -> AccessError:
        """The error for a caller that needs the spoke now."""
        if self.verdict.phase is not Phase.CONNECTING or self.verdict.reason:
            return AccessError(self.verdict.reason, self.verdict.message)
        if self.runs.running_since is not None:
            command = self.access.plugin.command
            text = f"getting credentials: credential plugin {command} has not answered yet"
            building = f"failed to build config from ClusterProfile {self.profile}"
            return AccessError(
                ACCESS_PROVIDER_FAILED,
                f"{building}: {text}; it is stopped after"
                f" {self.access.plugin.timeout_seconds:g} s, then run again",
            )
        return AccessError(
            REMOTE_CLIENT_CREATION_FAILED, f"{self.where} has not answered yet; still trying"
        )

    def request(self, cluster: ClusterName, verb: str, code: int, seconds: float) -> None:
        """An attempt ended: without an answer, the spoke is looked at before the next write."""
        self.setup.observe.request(cluster, verb, code, seconds)
        if code == 0:
            self.suspect()
        elif verb != "watch":
            self.contact()

    def watch_restarted(
        self, cluster: ClusterName, resource: Resource, error: KubeError | None
    ) -> None:
        """A watch ended; when it broke off, so may have the spoke."""
        self.setup.observe.watch_restarted(cluster, resource, error)
        if isinstance(error, NetworkError):
            self.suspect()

    def credential_refreshed(self, cluster: ClusterName) -> None:
        """The plugin brought a new credential."""
        self.setup.observe.credential_refreshed(cluster)

    def suspect(self) -> None:
        """Something went wrong: find out soon."""
        if self.answering:
            self.troubles += 1
            self.hurry()


UNKNOWN_UID = (
    "the credentials may not read the namespace kube-system, so another cluster at the same"
    " address could not be distinguished; grant get on it"
)
