"""The work of a controller: which request is looked at next, and which must wait.

A request is in here at most once, however often it is added, and is worked on by one task at a
time; added while it is worked on, it comes again afterwards. Clusters take turns, so that a
thousand requests of one do not delay the only one of another. Every cluster has one slot of its
own; further slots come from a pool that all share, up to a limit for each. So clusters that hang,
however many, hold their own slots and at worst the pool, never the next cluster's first slot.

Nothing in here waits on anything but `get`; one task takes, any task adds, all on one event loop.
"""

import asyncio
import heapq
import random
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Protocol

from msgspec import Struct

from knfleet.api.meta import ClusterName, Request
from knfleet.runtime.clock import LOOP_CLOCK, Clock, Timer


class Backoff(Struct, frozen=True):
    """How long a request waits after it failed: twice as long each time, up to a limit."""

    first_seconds: float = 0.005
    limit_seconds: float = 120
    jitter: float = 0.25
    """The part of the delay that is left to chance, so that what failed together comes apart."""

    def delay(self, failures: int, chance: float) -> float:
        """The wait after so many failures; `chance` is a number from 0 to 1."""
        # The exponent is bounded because a float overflows after a thousand doublings.
        full = min(self.first_seconds * 2.0 ** min(failures - 1, 64), self.limit_seconds)
        return full * (1 - self.jitter * chance)


class QueueSlots(Struct, frozen=True):
    """How many requests are worked on at once, beyond the first of each cluster."""

    per_cluster: int = 8
    """The most that one cluster gets, its own slot included."""
    shared: int = 128
    """The pool from which clusters get their second slot and all further ones."""


class QueueObserver(Protocol):
    """Receives what happens in a queue, for metrics."""

    def added(self) -> None:
        """A request that was not waiting for its turn is now."""
        ...

    def started(self, waited_seconds: float) -> None:
        """A request was taken, so long after its turn could have come."""
        ...

    def finished(self, worked_seconds: float) -> None:
        """The work on a request ended."""
        ...

    def retried(self) -> None:
        """A request failed and comes again."""
        ...


class SilentQueue:
    """The observer that does nothing."""

    def added(self) -> None:
        """A request is waiting."""

    def started(self, waited_seconds: float) -> None:
        """A request was taken."""

    def finished(self, worked_seconds: float) -> None:
        """The work on a request ended."""

    def retried(self) -> None:
        """A request comes again."""


SILENT = SilentQueue()


def own_cluster(request: Request) -> ClusterName:
    """The cluster that the request's object lives on."""
    return request.cluster


class QueueOptions(Struct, frozen=True):
    """How a queue behaves."""

    slots: QueueSlots = QueueSlots()
    backoff: Backoff = Backoff()
    cluster_of: Callable[[Request], ClusterName] = own_cluster
    """Whose slot a request uses: for an object on the hub that is about a spoke, the spoke."""
    clock: Clock = LOOP_CLOCK
    chance: Callable[[], float] = random.random
    observe: QueueObserver = SILENT


DEFAULTS = QueueOptions()


class ClusterQueue(Struct):
    """The requests of one cluster."""

    ready: OrderedDict[Request, float]
    """Those whose time has come, oldest first, and since when."""
    running: int = 0


class ActiveRequest(Struct):
    """A request that is being worked on."""

    cluster: ClusterName
    since: float
    again: bool = False
    """It was added meanwhile, and comes again when this is done."""


class WorkQueue:
    """Requests that wait for their time or their turn, or are being worked on."""

    def __init__(self, options: QueueOptions = DEFAULTS) -> None:
        self.options = options
        self.clock = options.clock
        self.lines: dict[ClusterName, ClusterQueue] = {}
        self.ready: dict[Request, ClusterName] = {}
        """All that have their time behind them, and the line they stand in."""
        self.running: dict[Request, ActiveRequest] = {}
        self.due: dict[Request, float] = {}
        self.timetable: list[tuple[float, int, Request]] = []
        """A heap of what `due` says; entries that it no longer says are skipped."""
        self.order = count()
        self.failures: dict[Request, int] = {}
        self.pool = options.slots.shared
        self.idle: OrderedDict[ClusterName, None] = OrderedDict()
        """Clusters in order of their turn that have something ready and nothing running."""
        self.busy: OrderedDict[ClusterName, None] = OrderedDict()
        """Clusters in order of their turn that have something ready and may run more."""
        self.alarm: Timer | None = None
        self.alarm_at = float("inf")
        self.wake = asyncio.Event()
        self.stopped = False

    @property
    def depth(self) -> int:
        """How many requests wait for their turn."""
        return len(self.ready)

    def longest_running_seconds(self) -> float:
        """For how long the oldest running work has been going on."""
        now = self.clock.time()
        return max((now - work.since for work in self.running.values()), default=0.0)

    def unfinished_seconds(self) -> float:
        """For how long all running work together has been going on."""
        now = self.clock.time()
        return sum(now - work.since for work in self.running.values())

    def add(self, request: Request) -> None:
        """Look at the request as soon as it is its cluster's turn."""
        if self.stopped:
            return
        self.due.pop(request, None)
        if (work := self.running.get(request)) is not None:
            work.again = True
        elif request not in self.ready:
            self.line_up(request)

    def add_after(self, request: Request, seconds: float) -> None:
        """Look at the request in so many seconds, unless it is added again sooner.

        There is one time for a request: the earliest that was requested. Work that begins sees
        everything as it is then, so what was asked for later is covered, and the work itself says
        when to look again.
        """
        if seconds <= 0:
            self.add(request)
            return
        when = self.clock.time() + seconds
        work = self.running.get(request)
        sooner = request in self.ready or (work is not None and work.again)
        if self.stopped or sooner or self.due.get(request, float("inf")) <= when:
            return
        self.due[request] = when
        heapq.heappush(self.timetable, (when, next(self.order), request))
        self.set_alarm()

    def retry(self, request: Request) -> float:
        """Look at a request again that failed, later each time; how much later, in seconds."""
        failures = self.failures[request] = self.failures.get(request, 0) + 1
        delay = self.options.backoff.delay(failures, self.options.chance())
        self.options.observe.retried()
        self.add_after(request, delay)
        return delay

    def forget(self, request: Request) -> None:
        """The request went well: its next failure is its first."""
        self.failures.pop(request, None)

    def take(self) -> Request | None:
        """The request to work on now, until `done`; none when none is ready or no slot free."""
        if self.stopped:
            return None
        if self.idle:
            cluster, _ = self.idle.popitem(last=False)
        elif self.busy and self.pool > 0:
            cluster, _ = self.busy.popitem(last=False)
            self.pool -= 1
        else:
            return None
        line = self.lines[cluster]
        request, since = line.ready.popitem(last=False)
        del self.ready[request]
        now = self.clock.time()
        line.running += 1
        self.running[request] = ActiveRequest(cluster, now)
        self.queue_up(cluster)
        self.options.observe.started(now - since)
        return request

    async def get(self) -> Request | None:
        """Wait for the next request to work on; none when the queue was stopped."""
        while (request := self.take()) is None and not self.stopped:
            self.wake.clear()
            await self.wake.wait()
        return request

    def done(self, request: Request) -> None:
        """The work on a request ended, well or not."""
        work = self.running.pop(request)
        line = self.lines[work.cluster]
        if line.running > 1:
            self.pool += 1
        line.running -= 1
        self.queue_up(work.cluster)
        self.options.observe.finished(self.clock.time() - work.since)
        if work.again and not self.stopped:
            self.line_up(request)
        self.wake.set()

    def drop(self, cluster: ClusterName) -> None:
        """Forget all requests for objects on a cluster; what runs may end, and comes not again."""
        for request in [request for request in self.ready if request.cluster == cluster]:
            line = self.ready.pop(request)
            del self.lines[line].ready[request]
            self.queue_up(line)
        for table in (self.due, self.failures):
            for request in [request for request in table if request.cluster == cluster]:
                del table[request]
        for request, work in self.running.items():
            if request.cluster == cluster:
                work.again = False

    def stop(self) -> None:
        """Hand out nothing any more, and take nothing in; what runs may end."""
        self.stopped = True
        self.due.clear()
        self.set_alarm()
        self.wake.set()

    def line_up(self, request: Request) -> None:
        """Put a request at the end of its cluster's line."""
        cluster = self.options.cluster_of(request)
        line = self.lines.setdefault(cluster, ClusterQueue(OrderedDict()))
        line.ready[request] = self.clock.time()
        self.ready[request] = cluster
        self.queue_up(cluster)
        self.options.observe.added()
        self.wake.set()

    def queue_up(self, cluster: ClusterName) -> None:
        """Let a cluster wait for its turn in the right ring, or in none."""
        line = self.lines[cluster]
        idle = bool(line.ready) and line.running == 0
        busy = bool(line.ready) and 0 < line.running < self.options.slots.per_cluster
        for ring, belongs in ((self.idle, idle), (self.busy, busy)):
            if belongs:
                ring.setdefault(cluster)
            else:
                ring.pop(cluster, None)
        if not line.ready and not line.running:
            del self.lines[cluster]

    def set_alarm(self) -> None:
        """Have the earliest request called out at its time."""
        if len(self.timetable) > 2 * len(self.due) + 64:
            self.timetable = [entry for entry in self.timetable if self.is_current(entry)]
            heapq.heapify(self.timetable)
        while self.timetable and not self.is_current(self.timetable[0]):
            heapq.heappop(self.timetable)
        earliest = self.timetable[0][0] if self.timetable else float("inf")
        if earliest == self.alarm_at:
            return
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        self.alarm_at = earliest
        if self.timetable:
            self.alarm = self.clock.call_at(earliest, self.call_out)

    def call_out(self) -> None:
        """Add all requests whose time has come."""
        self.alarm, self.alarm_at = None, float("inf")
        now = self.clock.time()
        while self.timetable and self.timetable[0][0] <= now:
            entry = heapq.heappop(self.timetable)
            if self.is_current(entry):
                self.add(entry[2])
        self.set_alarm()

    def is_current(self, entry: tuple[float, int, Request]) -> bool:
        """Whether an entry of the timetable still counts."""
        return self.due.get(entry[2]) == entry[0]
