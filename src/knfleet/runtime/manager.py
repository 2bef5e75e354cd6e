"""The life of a process: what runs in it, from when, and in which order it ends.

A component is anything with `run`. It runs until it returns, is cancelled, or crashes; a crash ends
the process. One that also has `stop` (a controller) is asked to finish first when the process is
to end. The order of the end is: no new work; running work ends or is cut off; everything else ends;
the Lease is given back; clients are closed. A process that lost its Lease ends all of that in the
same order, and begins anew with another manager (`runtime.process`).

A `Lifetime` is a part of that life that can end alone, such as everything for one spoke.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Protocol, runtime_checkable

from knfleet.runtime.leader.leader import Leader, own_identity
from knfleet.runtime.logs import log

GRACE_SECONDS = 10.0
"""How long the end may take in all."""
CLEANING_SECONDS = 4.0
"""What of that is kept for everything after the running work."""


class Component(Protocol):
    """Something that runs."""

    async def run(self) -> None:
        """Run until done or cancelled."""
        ...


@runtime_checkable
class Stoppable(Protocol):
    """A component that can be asked to come to an end of its own."""

    def stop(self) -> None:
        """Begin nothing new, and let `run` return when all is done."""
        ...


class ComponentFailed(Exception):
    """A component crashed, and with it the process ends; the cause says why."""


class Lifetime:
    """Components that end together, and can end without the others."""

    def __init__(self, name: str, crashed: Callable[[BaseException], None]) -> None:
        self.name = name
        self.crashed = crashed
        self.waiting: list[tuple[Component, str]] = []
        self.tasks: dict[asyncio.Task[None], Component] = {}
        self.group: asyncio.TaskGroup | None = None
        self.ending = asyncio.Event()
        self.ended = asyncio.Event()

    def add(self, component: Component, name: str = "") -> None:
        """Run a component from now on, or as soon as this lifetime begins; not after its end."""
        name = f"{self.name}/{name or type(component).__name__}"
        if self.ending.is_set():
            return
        if self.group is None:
            self.waiting.append((component, name))
            return
        task = self.group.create_task(self.watch_over(component, name), name=name)
        self.tasks[task] = component
        task.add_done_callback(lambda ended: self.tasks.pop(ended, None))

    def end(self) -> None:
        """End all components; `ended` is set when they have."""
        self.ending.set()

    async def run(self) -> None:
        """Run what is added, until `end` or a crash."""
        try:
            async with asyncio.TaskGroup() as group:
                self.group = group
                for component, name in self.waiting:
                    self.add(component, name.removeprefix(f"{self.name}/"))
                self.waiting.clear()
                await self.ending.wait()
                self.cancel()
        finally:
            self.ending.set()
            self.ended.set()

    async def watch_over(self, component: Component, name: str) -> None:
        """Run one component; its crash is the lifetime's."""
        try:
            await component.run()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self.fail(name, error)
        except Exception as error:  # noqa: BLE001  whatever it is, the owner decides
            self.fail(name, error)

    def fail(self, name: str, error: BaseException) -> None:
        """End because a component crashed."""
        failure = ComponentFailed(f"{name}: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self.end()
        self.crashed(failure)

    def stop_work(self) -> list[asyncio.Task[None]]:
        """Ask those to finish that can; the tasks in which they do."""
        finishing = [
            (task, component)
            for task, component in self.tasks.items()
            if isinstance(component, Stoppable)
        ]
        for _, component in finishing:
            component.stop()
        return [task for task, _ in finishing]

    def cancel(self) -> None:
        """Cut off everything."""
        for task in list(self.tasks):
            task.cancel()


Build = Callable[["Manager"], Awaitable[None]]
"""Adds the components of a process to its manager."""


class Manager:
    """Runs the components of a process until it is asked to stop, or one of them crashes."""

    def __init__(self, grace_seconds: float = GRACE_SECONDS, identity: str = "") -> None:
        self.grace_seconds = grace_seconds
        self.identity = identity or own_identity()
        """By which others know this process in elections."""
        self.leader: Leader | None = None
        self.membership: Component | None = None
        self.campaigns: list[asyncio.Task[None]] = []
        self.main = Lifetime("process", self.crash)
        self.leading = False
        self.leaders_only: list[tuple[Component, str]] = []
        self.lifetimes: set[Lifetime] = set()
        self.closing = AsyncExitStack()
        self.stopping = asyncio.Event()
        self.failure: BaseException | None = None

    def elect(self, leader: Leader) -> None:
        """Take part in an election; to be called before `run`."""
        self.leader = leader

    def share(self, membership: Component) -> None:
        """Share work with other processes; it ends when all work has. To be called before `run`."""
        self.membership = membership

    def add(self, component: Component, name: str = "", *, leading: bool = False) -> None:
        """Run a component from now on; with `leading`, only from when this process leads."""
        if not leading or self.leading:
            self.main.add(component, name)
        else:
            self.leaders_only.append((component, name))

    def close_last(self, close: Callable[[], Awaitable[object]]) -> None:
        """Have something closed when all else has ended; what came last is closed first."""
        self.closing.push_async_callback(close)

    def lifetime(
        self, name: str, crashed: Callable[[BaseException], None] | None = None
    ) -> Lifetime:
        """Begin a part that can end alone.

        When a component of it crashes all of it ends, and `crashed` is called; without that, the
        process ends.
        """
        lifetime = Lifetime(name, crashed or self.crash)
        if self.stopping.is_set():
            lifetime.end()
            lifetime.ended.set()
            return lifetime
        self.lifetimes.add(lifetime)
        self.main.add(LifetimeComponent(lifetime, self.lifetimes), name)
        return lifetime

    def stop(self) -> None:
        """Begin the end."""
        self.stopping.set()

    def crash(self, error: BaseException) -> None:
        """Begin the end, because of an error; the first one is what `run` raises."""
        self.failure = self.failure or error
        self.stopping.set()
        self.main.end()

    async def run(self, build: Build | None = None) -> None:
        """Run everything until `stop`; raise what crashed, if something did.

        What `build` adds runs from then on; elections begin when it has returned.
        """
        async with self.closing, asyncio.TaskGroup() as electing:
            await self.run_components(build, electing)
            for campaign in self.campaigns:
                campaign.cancel()
        if self.failure is not None:
            raise self.failure

    async def run_components(self, build: Build | None, electing: asyncio.TaskGroup) -> None:
        """Run the main lifetime to its end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.main.run(), name="components")
            starting = group.create_task(self.begin(build, electing), name="start")
            await self.stopping.wait()
            starting.cancel()
            if self.failure is None:
                await self.finish_work()
            self.main.end()

    async def begin(self, build: Build | None, electing: asyncio.TaskGroup) -> None:
        """Build, compete, and lead."""
        if build is not None:
            try:
                await build(self)
            except Exception as error:  # noqa: BLE001  whatever it is, there is nothing to run
                self.crash(error)
                return
        parts = [each for each in (self.leader, self.membership) if each is not None]
        self.campaigns = [electing.create_task(self.campaign(each)) for each in parts]
        await self.start_leading()

    async def start_leading(self) -> None:
        """Start what only a leader runs, once this process leads."""
        if self.leader is not None:
            await self.leader.leading.wait()
        self.leading = True
        for component, name in self.leaders_only:
            self.main.add(component, name)
        self.leaders_only.clear()

    async def campaign(self, part: Component) -> None:
        """Take part in an election, or in sharing; losing what was won is a crash."""
        try:
            await part.run()
        except Exception as error:  # noqa: BLE001  whatever it is, this process must not lead on
            self.crash(error)

    async def finish_work(self) -> None:
        """Let running work end, for as long as there is time."""
        parts = [self.main, *self.lifetimes]
        finishing = [task for part in parts for task in part.stop_work()]
        if not finishing:
            return
        limit = max(0.0, self.grace_seconds - CLEANING_SECONDS)
        _, unfinished = await asyncio.wait(finishing, timeout=limit)
        for task in unfinished:
            log.warning("work cut off", component=task.get_name())


class LifetimeComponent:
    """A lifetime as a component of the process."""

    def __init__(self, lifetime: Lifetime, lifetimes: set[Lifetime]) -> None:
        self.lifetime = lifetime
        self.lifetimes = lifetimes

    async def run(self) -> None:
        """Run it, and forget it at its end."""
        try:
            await self.lifetime.run()
        finally:
            self.lifetimes.discard(self.lifetime)
