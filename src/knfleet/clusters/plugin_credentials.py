"""Running the plugin of one spoke: when, how often, and how long it took."""

import asyncio
import math
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

from knfleet.clusters.provider_file import stamp_of
from knfleet.kube.auth.credentials import SKEW, Credential
from knfleet.kube.auth.exec_plugin import ExecPlugin
from knfleet.kube.auth.exec_process import ProcessRunner, run
from knfleet.runtime.start_limit import StartLimit

AHEAD_SECONDS = 60.0
"""How long before a credential is needed the next one is fetched, at most."""
MOMENT_SECONDS = 0.5
"""How old what is known of a program may be."""


class PluginPrograms:
    """What the programs of plugins look like; a thousand spokes have the same one as a rule."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[float, object]] = {}

    def stamp(self, plugin: ExecPlugin) -> object:
        """What a program looked like less than a moment ago."""
        now = asyncio.get_running_loop().time()
        known = self.seen.get(plugin.command)
        if known is not None and now - known[0] < MOMENT_SECONDS:
            return known[1]
        return self.fingerprint(plugin)

    def fingerprint(self, plugin: ExecPlugin) -> object:
        """What a program looks like now."""
        stamp = program_stamp(plugin)
        self.seen[plugin.command] = (asyncio.get_running_loop().time(), stamp)
        return stamp


class PluginCredentials:
    """The plugin of one spoke as a source of credentials, with what is known about its runs."""

    def __init__(
        self,
        plugin: ExecPlugin,
        starts: StartLimit,
        run: ProcessRunner = run,
        programs: PluginPrograms | None = None,
    ) -> None:
        self.plugin = plugin
        self.programs = programs or PluginPrograms()
        self.starts = starts
        self.run = run
        self.count = 0
        self.failures = 0
        self.seconds = 0.0
        """How long all runs took together."""
        self.running_since: float | None = None
        self.is_queued = False
        """Whether it waits for its turn."""
        self.stamp: object = None
        """What the program was when it was run last."""
        self.ahead_at = math.inf
        """When to fetch the next credential, while the current one still serves."""

    async def fetch(self) -> Credential:
        """Run the plugin."""
        loop = asyncio.get_running_loop()
        self.stamp = self.programs.fingerprint(self.plugin)
        self.count += 1
        self.running_since = started = loop.time()
        try:
            self.is_queued = True
            async with self.starts.slot():
                self.is_queued = False
                started = loop.time()
                credential = await self.plugin.fetch(self.run)
        except BaseException:
            self.failures += 1
            raise
        finally:
            self.is_queued = False
            self.running_since = None
            self.seconds += loop.time() - started
        self.ahead_at = loop.time() + ahead_seconds(credential, datetime.now(UTC))
        return credential

    def is_other_program(self) -> bool:
        """Whether the program was replaced since it was run."""
        return self.count > 0 and self.programs.stamp(self.plugin) != self.stamp

    def wants_run(self) -> bool:
        """Whether it is time for the next credential, before a request waits for it."""
        return asyncio.get_running_loop().time() >= self.ahead_at or self.is_other_program()


def program_stamp(plugin: ExecPlugin) -> object:
    """What tells two versions of a plugin's program apart; None when there is no program."""
    found = shutil.which(plugin.command) if "/" not in plugin.command else plugin.command
    if not found:
        return None
    path = Path(found)
    stamp = stamp_of(path)
    return None if stamp is None else (stamp, os.access(path, os.X_OK))


def ahead_seconds(credential: Credential, now: datetime) -> float:
    """In how many seconds the credential after this one is to be fetched."""
    if credential.expires is None:
        return math.inf
    life = (credential.expires - now).total_seconds()
    skew = min(SKEW.total_seconds(), life / 2)
    return max(0.0, life - skew - min(AHEAD_SECONDS, life / 4))
