"""Turns requests into calls of one reconcile function, for ever, whatever the function does.

A request that fails is that request's trouble: it is logged, counted and comes again later, and no
other notices. Each request runs in a task of its own, so nothing waits for a worker that hangs.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct

from knfleet.api.meta import ClusterName, Request
from knfleet.kube.errors import KubeError
from knfleet.runtime import logs
from knfleet.runtime.leader.lease_rules import LostLeadership
from knfleet.runtime.logs import log
from knfleet.runtime.queue import QueueOptions, WorkQueue


class Result(Struct, frozen=True):
    """When to look at a request again that went well."""

    after_seconds: float | None = None

    @classmethod
    def never(cls) -> "Result":
        """Not before something changes."""
        return cls()

    @classmethod
    def after(cls, seconds: float) -> "Result":
        """In so many seconds, or sooner if something changes."""
        return cls(max(seconds, 0.0))

    @classmethod
    def now(cls) -> "Result":
        """At once, though behind what waits already."""
        return cls(0.0)

    def within(self, seconds: float) -> "Result":
        """The same, but not later than in so many seconds."""
        soonest = [each for each in (self.after_seconds, seconds) if each is not None]
        return Result.after(min(soonest))

    @classmethod
    def when(cls, settled: bool, *, else_after: float) -> "Result":
        """Not before something changes if all is settled, else in so many seconds."""
        return cls.never() if settled else cls.after(else_after)


class Terminal(Exception):
    """Trying again cannot help: the request waits until something changes."""


Reconcile = Callable[[Request], Awaitable[Result]]
Change = TypeVar("Change")


class ReconcileObserver(Protocol):
    """Receives results of reconciles, for metrics."""

    def reconciled(self, result: str, seconds: float) -> None:
        """One ended: success, again, error, terminal, timeout or cancelled."""
        ...


class SilentReconcile:
    """The observer that does nothing."""

    def reconciled(self, result: str, seconds: float) -> None:
        """One ended."""


class ControllerOptions(Struct, frozen=True):
    """How a controller behaves."""

    queue: QueueOptions = QueueOptions()
    deadline_seconds: float | None = 600
    """A reconcile that takes longer is ended, and counts as failed."""
    observe: ReconcileObserver = SilentReconcile()


DEFAULTS = ControllerOptions()


class Controller:
    """Calls `reconcile` for every request that is added, until it is stopped or cancelled.

    What `reconcile` raises makes the request come again with backoff, except `Terminal`. One that
    swallows its own cancellation cannot be ended, neither by the deadline nor at the end.
    """

    def __init__(
        self, name: str, reconcile: Reconcile, options: ControllerOptions = DEFAULTS
    ) -> None:
        self.name = name
        self.reconcile = reconcile
        self.options = options
        self.queue = WorkQueue(options.queue)
        self.clock = options.queue.clock
        self.tasks: dict[Request, asyncio.Task[None]] = {}

    def watches(
        self,
        on_change: Callable[[Callable[[Change], None]], object],
        requests: Callable[[Change], Iterable[Request]],
    ) -> None:
        """Add the requests that a change calls for: `watches(informer.on_change, requests=…)`."""

        def handle(change: Change) -> None:
            try:
                wanted = list(requests(change))
            except Exception:  # noqa: BLE001  one odd object must not end the watch of all
                log.error("change not understood", controller=self.name, exc_info=True)
                self.options.observe.reconciled("error", 0.0)
                return
            for request in wanted:
                self.queue.add(request)

        on_change(handle)

    async def run(self) -> None:
        """Work until `stop`, then let running work end; when cancelled, end it."""
        async with asyncio.TaskGroup() as group:
            while (request := await self.queue.get()) is not None:
                task = group.create_task(self.process(request), name=f"{self.name} {request}")
                self.tasks[request] = task
                task.add_done_callback(partial(self.finish, request))

    def stop(self) -> None:
        """Begin nothing new; `run` returns when all that runs has ended."""
        self.queue.stop()

    async def leave(self, cluster: ClusterName) -> None:
        """Forget the requests for objects on a cluster, and end the work on them."""
        self.queue.drop(cluster)
        await self.cut_off(lambda request: request.cluster == cluster)
        self.queue.drop(cluster)

    async def cut_off(self, concerns: Callable[[Request], bool]) -> None:
        """End the work on some requests; nothing of it runs afterwards."""
        ending = [task for request, task in self.tasks.items() if concerns(request)]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def finish(self, request: Request, _task: asyncio.Task[None]) -> None:
        """Give back the slot; in a callback, for a task cancelled before it began runs nothing."""
        self.tasks.pop(request, None)
        self.queue.done(request)

    async def process(self, request: Request) -> None:
        """Reconcile one request, and see to when it comes again."""
        begun = self.clock.time()
        with logs.bound(controller=self.name, cluster=request.cluster, key=str(request.key)):
            result = "cancelled"
            try:
                result = await self.attempt(request)
            finally:
                self.options.observe.reconciled(result, self.clock.time() - begun)

    async def attempt(self, request: Request) -> str:
        """Reconcile one request; what came of it, in a word."""
        limit = asyncio.timeout(self.options.deadline_seconds)
        try:
            async with limit:
                again = (await self.reconcile(request)).after_seconds
        except Terminal as error:
            self.queue.forget(request)
            log.error("reconcile gave up", error=str(error))
            return "terminal"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Something that the reconcile awaited was cancelled, not the reconcile itself.
            return self.failed(request, "error")
        except Exception:  # noqa: BLE001  the one place where whatever went wrong becomes backoff
            return self.failed(request, "timeout" if limit.expired() else "error")
        self.queue.forget(request)
        if again is None:
            return "success"
        self.queue.add_after(request, again)
        return "again"

    def failed(self, request: Request, result: str) -> str:
        """Have a request come again that failed, and tell why it did."""
        error = sys.exc_info()[1]
        delay = self.queue.retry(request)
        log.error(
            "reconcile failed",
            result=result,
            error=f"{type(error).__name__}: {error}",
            failures=self.queue.failures[request],
            retry_seconds=round(delay, 3),
            # An error of the cluster says all by itself; anything else needs the place in the code.
            exc_info=not isinstance(error, KubeError | LostLeadership | TimeoutError),
        )
        return result
