"""One container of a real pod: started, probed, restarted, stopped, and reported truthfully."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog
from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev.node.containers.container_command import CommandNotFound
from knfleet.dev.node.containers.container_environment import ReferenceMissing
from knfleet.dev.node.containers.container_probes import Probe, ProbeCounter, Prober
from knfleet.dev.node.containers.container_process import (
    ContainerProcess,
    ProcessSpec,
    bound,
    rotate_log,
    start,
)
from knfleet.dev.node.pods.pod_folders import PodFolder
from knfleet.dev.node.pods.pod_manifests import moment, table
from knfleet.dev.node.pods.pod_status import ContainerReport, running, terminated, waiting
from knfleet.dev.node.pods.volumes import UnsupportedVolume

BACKOFF_SECONDS = 1.0
BACKOFF_LIMIT_SECONDS = 30.0
LONG_RUN_SECONDS = 60.0
"""A container that ran so long starts its backoff anew."""
RETRY_SECONDS = 1.0
"""How often something missing is looked for, besides notifications of changes."""
LOG_CHECK_SECONDS = 5.0

log = structlog.get_logger()


class ContainerContext(Struct, frozen=True):
    """What a container gets from its pod."""

    folder: PodFolder
    launch: Callable[[Object], Awaitable[ProcessSpec]]
    """How to start it now; raises `ReferenceMissing`, `UnsupportedVolume`, `CommandNotFound`."""
    prober: Prober
    changed: Callable[[], None]
    """Called after every change of the container's report."""
    news: asyncio.Event
    """Set when something that a waiting container might wait for has changed."""


def restarts(policy: str, exit_code: int) -> bool:
    """Whether a container that ended is started again."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def backoff_seconds(failures: int) -> float:
    """The wait before a restart after so many short runs."""
    return min(BACKOFF_SECONDS * 2 ** min(failures - 1, 16), BACKOFF_LIMIT_SECONDS)


class Container:
    """Runs one container until it ends for good or is cancelled, which stops it."""

    def __init__(self, manifest: Object, policy: str, around: ContainerContext) -> None:
        self.manifest = manifest
        self.name: str = manifest["name"]
        self.policy = policy
        self.around = around
        self.state = waiting("ContainerCreating")
        self.last_state: Object = {}
        self.restart_count = 0
        self.started = asyncio.Event()
        self.ready = False
        self.process: ContainerProcess | None = None
        self.grace_seconds = 10.0
        self.final: int | None = None
        """The exit code of a container that is not started any more."""

    def resume(self, status: Object) -> None:
        """Go on from the status that an earlier life of the node reported."""
        state = table(status.get("state"))
        self.restart_count = status.get("restartCount", 0)
        self.last_state = table(status.get("lastState"))
        if "running" in state:
            since = moment(state["running"]["startedAt"])
            state = terminated(137, since, datetime.now(UTC), "the node was restarted")
        if "terminated" not in state:
            return
        code: int = state["terminated"]["exitCode"]
        if restarts(self.policy, code):
            self.last_state = state
            self.restart_count += 1
        else:
            self.state, self.final = state, code

    def report(self) -> ContainerReport:
        """What the container does now."""
        return ContainerReport(
            self.name,
            self.manifest.get("image", ""),
            self.state,
            self.last_state,
            ready=self.ready,
            started=self.started.is_set(),
            restart_count=self.restart_count,
            container_id=f"process://{self.process.pid}" if self.process else "",
        )

    def show(self, state: Object) -> None:
        """The container does something else from now on."""
        if state != self.state:
            self.state = state
            self.around.changed()

    async def run(self) -> int:
        """Run the container, again and again if its policy says so; returns the last exit code."""
        if self.final is not None:
            return self.final
        failures = 0
        while True:
            launch = await self.prepared()
            process = await self.begin(launch)
            code = await self.live(process, launch) if process else 127
            if not restarts(self.policy, code):
                return code
            failures = 1 if process and ran_seconds(process) > LONG_RUN_SECONDS else failures + 1
            await self.back_off(failures)

    async def prepared(self) -> ProcessSpec:
        """How to start the container, once everything that it needs is there."""
        while True:
            self.around.news.clear()
            try:
                return await self.around.launch(self.manifest)
            except ReferenceMissing as error:
                self.show(waiting("CreateContainerConfigError", str(error)))
            except (UnsupportedVolume, CommandNotFound) as error:
                self.show(waiting("CreateContainerError", str(error)))
            try:
                async with asyncio.timeout(RETRY_SECONDS):
                    await self.around.news.wait()
            except TimeoutError:
                continue

    async def begin(self, launch: ProcessSpec) -> ContainerProcess | None:
        """Start the process; a program that cannot be started counts as one that failed."""
        folder = self.around.folder
        current = folder.log(self.name)
        rotate_log(current, folder.log(self.name, previous=True))
        try:
            self.process = await start(launch, current, folder.pid_file(self.name))
        except OSError as error:
            now = datetime.now(UTC)
            self.show(terminated(127, now, now, f"{launch.arguments[0]}: {error.strerror}"))
            return None
        log.info("started", container=self.name, pod=folder.path.name, pid=self.process.pid)
        self.ready = "readinessProbe" not in self.manifest and self.has_no_startup_probe
        if self.has_no_startup_probe:
            self.started.set()
        self.show(running(self.process.started))
        return self.process

    @property
    def has_no_startup_probe(self) -> bool:
        """Whether the container counts as started at once."""
        return "startupProbe" not in self.manifest

    async def live(self, process: ContainerProcess, launch: ProcessSpec) -> int:
        """Watch over a running process until it ends; when cancelled, stop it."""
        watching = asyncio.create_task(self.watch_over(process, launch))
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            watching.cancel()
            self.ended(process, await process.stop(self.grace_seconds))
            raise
        finally:
            watching.cancel()
            [failure] = await asyncio.gather(watching, return_exceptions=True)
            if isinstance(failure, Exception):
                log.error("not watched over", container=self.name, error=repr(failure))
        self.ended(process, code)
        return code

    def ended(self, process: ContainerProcess, code: int) -> None:
        """Note how a process ended."""
        log.info("ended", container=self.name, pod=self.around.folder.path.name, code=code)
        self.around.folder.pid_file(self.name).unlink(missing_ok=True)
        self.ready = False
        self.started.clear()
        self.show(terminated(code, process.started, datetime.now(UTC)))

    async def back_off(self, failures: int) -> None:
        """Wait before a restart, as the state tells."""
        seconds = backoff_seconds(failures)
        self.last_state = self.state
        message = f"back-off {seconds:g}s restarting container {self.name}"
        self.show(waiting("CrashLoopBackOff", message))
        await asyncio.sleep(seconds)
        self.restart_count += 1

    async def watch_over(self, process: ContainerProcess, launch: ProcessSpec) -> None:
        """Perform the probes, and keep the log small, as long as the process lives."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.keep_log_small())
            if probe := launch.probes.get("startupProbe"):
                await self.await_startup(probe, process, launch)
            if probe := launch.probes.get("readinessProbe"):
                group.create_task(self.watch_readiness(probe, launch))
            if probe := launch.probes.get("livenessProbe"):
                group.create_task(self.watch_liveness(probe, process, launch))

    async def asked(self, probe: Probe, launch: ProcessSpec) -> bool:
        return await self.around.prober.probe(probe, launch.environment, launch.folder)

    async def await_startup(
        self, probe: Probe, process: ContainerProcess, launch: ProcessSpec
    ) -> None:
        """Wait until the startup probe passes; a container that fails it is ended."""
        tally = ProbeCounter(probe, passing=False)
        failed = ProbeCounter(probe, passing=True)
        await asyncio.sleep(probe.initial_delay_seconds)
        while True:
            success = await self.asked(probe, launch)
            if tally.count(success=success):
                break
            if failed.count(success=success):
                await self.stop(process, "startup")
            await asyncio.sleep(probe.period_seconds)
        self.started.set()
        self.ready = "readinessProbe" not in self.manifest
        self.around.changed()

    async def watch_readiness(self, probe: Probe, launch: ProcessSpec) -> None:
        """Let the container's readiness follow its probe."""
        tally = ProbeCounter(probe, passing=False)
        await asyncio.sleep(probe.initial_delay_seconds)
        while True:
            if tally.count(success=await self.asked(probe, launch)):
                self.ready = tally.passing
                self.around.changed()
            # Asking more often than the period until the container is ready makes rollouts quick.
            period = probe.period_seconds
            await asyncio.sleep(period if self.ready else min(1, period))

    async def watch_liveness(
        self, probe: Probe, process: ContainerProcess, launch: ProcessSpec
    ) -> None:
        """End a container that stops answering."""
        tally = ProbeCounter(probe, passing=True)
        await asyncio.sleep(probe.initial_delay_seconds)
        while True:
            if tally.count(success=await self.asked(probe, launch)):
                await self.stop(process, "liveness")
            await asyncio.sleep(probe.period_seconds)

    async def stop(self, process: ContainerProcess, probe: str) -> None:
        """End a process that failed a probe; the restart policy decides what follows."""
        log.warning("probe failed", container=self.name, probe=probe, pid=process.pid)
        await process.stop(self.grace_seconds)

    async def keep_log_small(self) -> None:
        """Set the log aside whenever it grew too large."""
        folder = self.around.folder
        while True:
            await asyncio.sleep(LOG_CHECK_SECONDS)
            bound(folder.log(self.name), folder.log(self.name, previous=True))


def ran_seconds(process: ContainerProcess) -> float:
    """How long a process has run."""
    return (datetime.now(UTC) - process.started).total_seconds()
