"""All spokes of this process: what the controllers ask when they want to reach a cluster.

A profile is read by an informer, so asking costs nothing. A spoke is connected to while a client
uses it; each has a lifetime of its own, and whatever happens to it happens to no other.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from msgspec import Struct

from knfleet.api.inventory import PROFILES, ClusterProfile
from knfleet.api.meta import Key, Object
from knfleet.api.schema import DecodeError, decode
from knfleet.clusters.access_errors import (
    CLUSTER_PROFILE_NOT_FOUND,
    CLUSTER_PROFILE_UNAVAILABLE,
    MULTICLUSTER_DISABLED,
    REMOTE_CLIENT_CREATION_FAILED,
    AccessError,
    provider_closed,
)
from knfleet.clusters.access_resolver import ResolvedAccess, check_health, resolve
from knfleet.clusters.cluster import Cluster, LiveCluster, not_yet_resolved
from knfleet.clusters.connection_state import ClusterState
from knfleet.clusters.provider_file import ProviderFile
from knfleet.clusters.timing import ClusterTiming, ConnectionSetup
from knfleet.kube import supported_versions
from knfleet.kube.auth.exec_process import run
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.options import SILENT, USER_AGENT, ClientObserver
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Component, Lifetime, Manager
from knfleet.runtime.start_limit import StartLimit

LOOK_SECONDS = 1.0
"""How often to see whether profiles can be read, as long as they could not."""
CONNECTING, CONNECTING_SECONDS = 64, 2.0
"""So many connections are made at once; one that takes longer blocks no other. When a thousand
spokes come back together, they answer one after the other instead of all of them late."""
RESTART_SECONDS = 10.0
"""How long a spoke is left alone after a fault of ours."""


class Lifetimes(Protocol):
    """Begins a part of the process that can end alone; `Manager.lifetime` is one."""

    def __call__(
        self, name: str, crashed: Callable[[BaseException], None] | None = None
    ) -> Lifetime:
        """Begin it."""
        ...


class PoolPolicy(Struct, frozen=True):
    """What holds for all spokes."""

    observe: ClientObserver = SILENT
    before_write: Callable[[], None] = lambda: None
    minimum: str = supported_versions.MINIMUM
    """The oldest Kubernetes that is accepted."""
    timing: ClusterTiming = ClusterTiming()
    user_agent: str = USER_AGENT
    """By which audit logs of spokes know this process."""


DEFAULTS = PoolPolicy()


class ClusterPool:
    """All spokes in use, by the key of their profile."""

    def __init__(
        self,
        hub: Client,
        providers: ProviderFile | None,
        *,
        lifetime: Lifetimes,
        policy: PoolPolicy = DEFAULTS,
    ) -> None:
        self.providers = providers
        self.lifetime = lifetime
        self.setup = ConnectionSetup(
            StartLimit(),
            StartLimit(CONNECTING, CONNECTING_SECONDS),
            policy.observe,
            policy.before_write,
            policy.minimum,
            policy.timing,
            run if providers is None else providers.run_plugin,
            policy.user_agent,
        )
        self.profiles = Informer(hub, PROFILES, trim=without_managed_fields)
        self.profiles.on_change(self.profile_changed)
        self.spokes: dict[Key, Cluster] = {}
        self.lifetimes: dict[Key, Lifetime] = {}
        self.leaving: set[Lifetime] = set()
        """What was left and may not have ended yet."""
        self.handlers: list[Callable[[Key], None]] = []
        self.stopping = asyncio.Event()

    def join(self, manager: Manager) -> None:
        """Run with a process."""
        manager.add(self, "spokes")
        if self.providers is not None:
            manager.add(self.profiles, "profiles")
            manager.add(self.providers, "providers")

    def on_change(self, handler: Callable[[Key], None]) -> None:
        """Call a function with the key of each profile in use whose spoke stands differently."""
        self.handlers.append(handler)

    async def run(self) -> None:
        """See to it that users learn when profiles and providers change; until `stop`."""
        if self.providers is None:
            await self.follow_profiles()
            return
        # The file outlives us when the process begins anew.
        self.providers.on_change(self.aim_all)
        try:
            await self.follow_profiles()
        finally:
            self.providers.handlers.remove(self.aim_all)

    async def follow_profiles(self) -> None:
        """Look again at everything when profiles can be read; until `stop`."""
        known = ""
        while not self.stopping.is_set():
            failing = self.profiles.failing
            readable = self.providers is None or self.profiles.synced.is_set()
            now = "read" if readable else str(failing or "")
            if now != known:
                known = now
                self.aim_all()
                if failing is not None and not readable:
                    log.warning("ClusterProfile API not available; still trying", error=now)
            # Once profiles are read, the informer itself tells of every change.
            await happens(self.stopping, None if readable else LOOK_SECONDS)

    def stop(self) -> None:
        """Let no caller begin anything on a spoke any more; requests in progress go on."""
        self.stopping.set()
        for spoke in self.spokes.values():
            spoke.dismiss()

    def use(self, profile: Key, holder: str) -> None:
        """Stay connected to a profile's cluster for a caller, until it leaves."""
        spoke = self.spokes.get(profile)
        if spoke is None:
            spoke = self.spokes[profile] = Cluster(profile, self.setup, self.notify)
            spoke.aim(*self.way_to(profile))
            self.start(profile, spoke)
        spoke.holders.add(holder)

    def leave(self, profile: Key, holder: str) -> None:
        """A caller does not need a cluster any more; the last one closes the connection."""
        spoke = self.spokes.get(profile)
        if spoke is None:
            return
        spoke.holders.discard(holder)
        if not spoke.holders:
            del self.spokes[profile]
            spoke.notified = ignore
            if (lifetime := self.lifetimes.pop(profile, None)) is not None:
                lifetime.end()
                self.leaving = {each for each in self.leaving if not each.ended.is_set()}
                self.leaving.add(lifetime)

    async def close_lost(self) -> None:
        """Wait until nothing is left of the connections that were left."""
        while self.leaving:
            lifetime = self.leaving.pop()
            await lifetime.ended.wait()

    def start(self, profile: Key, spoke: Cluster) -> None:
        """Let a spoke live."""
        lifetime = self.lifetime(f"spoke {profile}", partial(self.crashed, profile, spoke))
        self.lifetimes[profile] = lifetime
        component: Component = spoke
        lifetime.add(component, "connection")

    def crashed(self, profile: Key, spoke: Cluster, error: BaseException) -> None:
        """A fault of ours ended a spoke's life: it begins anew, and no other notices."""
        log.error("spoke crashed; it is started again", profile=str(profile), exc_info=error)
        if self.spokes.get(profile) is not spoke:
            return
        del self.lifetimes[profile]
        spoke.closed = False
        text = f"ClusterProfile {profile}: failed to create remote kube client: a fault of knfleet,"
        remedy = f"see its log; it is tried again after {RESTART_SECONDS:g} s"
        spoke.aim(None, AccessError(REMOTE_CLIENT_CREATION_FAILED, f"{text} {remedy}"))
        asyncio.get_running_loop().call_later(RESTART_SECONDS, self.restart, profile, spoke)

    def restart(self, profile: Key, spoke: Cluster) -> None:
        """Begin a spoke's life anew, unless it is not in use any more."""
        if self.spokes.get(profile) is spoke and not self.stopping.is_set():
            spoke.aim(*self.way_to(profile))
            self.start(profile, spoke)

    async def live(self, profile: Key, *, even_unhealthy: bool = False) -> LiveCluster:
        """The cluster of a profile; waits a while for one that is connecting.

        Raises `AccessError`. With `even_unhealthy`, for removal, also a cluster whose profile is
        not healthy or gone, or that must not be installed on, as long as it answers.
        """
        if self.stopping.is_set():
            raise provider_closed()
        spoke = self.spokes.get(profile)
        if spoke is None:
            raise not_yet_resolved(profile)
        return await spoke.live(even_unhealthy=even_unhealthy)

    def state(self, profile: Key) -> ClusterState | None:
        """How the spoke of a profile stands; None when it is not in use."""
        spoke = self.spokes.get(profile)
        return None if spoke is None else spoke.state()

    def states(self) -> list[ClusterState]:
        """How all spokes in use stand."""
        return [spoke.state() for spoke in self.spokes.values()]

    def profile(self, key: Key) -> Object | None:
        """A profile as it was last read."""
        return self.profiles.get(key)

    def notify(self, profile: Key) -> None:
        """Notify all handlers; not at the end, which is no fault."""
        if not self.stopping.is_set():
            for handler in self.handlers:
                handler(profile)

    def profile_changed(self, change: StoreChange) -> None:
        """Look again at the way to a cluster; most changes are heartbeats and change nothing."""
        if (spoke := self.spokes.get(change.key)) is not None:
            spoke.aim(*self.way_to(change.key, spoke.access))

    def aim_all(self) -> None:
        """Look again at the ways to all clusters."""
        for profile, spoke in list(self.spokes.items()):
            spoke.aim(*self.way_to(profile, spoke.access))

    def way_to(
        self, key: Key, last: ResolvedAccess | None = None
    ) -> tuple[ResolvedAccess | None, AccessError | None]:
        """The way to a profile's cluster and what is in the way.

        When the profile shows none, the last way stays, so that what was installed can still be
        removed; unless its provider is not in the file any more.
        """
        if self.providers is None:
            return None, AccessError(
                MULTICLUSTER_DISABLED,
                f"failed to build config from ClusterProfile {key}: multi-cluster support is"
                " disabled: set --clusterprofile-provider-file to enable",
            )
        providers = self.providers.providers
        if last is not None and all(provider.name != last.provider for provider in providers):
            last = None
        manifest = self.profiles.get(key)
        if manifest is None:
            return last, self.why_no_profile(key)
        try:
            profile = decode(manifest, ClusterProfile)
        except DecodeError as error:
            text = f"failed to get ClusterProfile {key}: {error}; goes on when it is corrected"
            return last, AccessError(CLUSTER_PROFILE_UNAVAILABLE, text)
        return way_in(profile, self.providers, last)

    def why_no_profile(self, key: Key) -> AccessError:
        """What to say about a profile that is not there."""
        failing = self.profiles.failing
        if isinstance(failing, NotFound):
            text = "the ClusterProfile API is not installed on the hub; goes on when it is"
            reason = CLUSTER_PROFILE_NOT_FOUND
        elif self.profiles.synced.is_set():
            text = "not found; goes on when it is created"
            reason = CLUSTER_PROFILE_NOT_FOUND
        elif failing is not None:
            text, reason = f"{failing}; still trying", CLUSTER_PROFILE_UNAVAILABLE
        else:
            return not_yet_resolved(key)
        return AccessError(reason, f"failed to get ClusterProfile {key}: {text}")


def way_in(
    profile: ClusterProfile, file: ProviderFile, last: ResolvedAccess | None
) -> tuple[ResolvedAccess | None, AccessError | None]:
    """The way that a profile shows, and what blocks it; health comes first."""
    problem: AccessError | None = None
    try:
        access = resolve(profile, file.providers, file.problem)
    except AccessError as error:
        problem = error
        access = last if error.reason == CLUSTER_PROFILE_UNAVAILABLE else None
    try:
        check_health(profile)
    except AccessError as error:
        problem = error
    return access, problem


async def happens(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, but not longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def ignore(profile: Key) -> None:
    """Notify no handler."""
