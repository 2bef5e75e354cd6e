"""A controller goes on, whatever one reconcile does."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import cast

import pytest
import structlog
from structlog.testing import capture_logs

from knfleet.api.meta import ClusterName, Key, Request
from knfleet.kube.errors import ConnectionRefused
from knfleet.runtime.controller import Controller, ControllerOptions, Result, Terminal
from knfleet.runtime.queue import QueueOptions
from testbed.waiting import PATIENCE_SECONDS
from tests.unit.runtime.clocks import HandClock


def request(name: str = "a", cluster: str = "one") -> Request:
    return Request(ClusterName(cluster), Key("default", name))


class Observed:
    """Remembers how reconciles went."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()

    def reconciled(self, result: str, seconds: float) -> None:
        self.results[result] += 1


class Script:
    """A reconcile that does what a test says, and remembers what it was called for."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        self.acts = list(acts)
        self.calls: list[Request] = []
        self.clock = HandClock()
        self.observed = Observed()
        self.controller = Controller(
            "test",
            self.reconcile,
            ControllerOptions(
                queue=QueueOptions(clock=self.clock, chance=lambda: 0.0), observe=self.observed
            ),
        )

    async def reconcile(self, asked: Request) -> Result:
        self.calls.append(asked)
        if not self.acts or asked.key.name == "other":
            return Result.never()
        made = self.acts.pop(0)()
        return made if isinstance(made, Result) else await cast("Awaitable[Result]", made)


@asynccontextmanager
async def running(controller: Controller) -> AsyncGenerator[asyncio.Task[None]]:
    """The controller, running as long as the block."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        task = asyncio.ensure_future(controller.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    """Let everything happen that can happen without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)


def fail(error: Exception) -> Result:
    raise error


async def test_again_says_when_a_request_comes_next():
    """After its time, or never."""
    script = Script(lambda: Result.after(30), Result.never)
    async with running(script.controller):
        script.controller.queue.add(request())
        await settle()
        script.clock.advance(29.9)
        await settle()
        early = len(script.calls)
        script.clock.advance(0.1)
        await settle()
        script.clock.advance(1000)
        await settle()

    assert (early, len(script.calls)) == (1, 2)
    assert script.observed.results == {"again": 1, "success": 1}


def test_again_when_something_is_settled():
    """The sentence that reconciles end with."""
    assert Result.never() == Result.when(True, else_after=15)
    assert Result.after(15) == Result.when(False, else_after=15)


async def test_a_crash_is_the_trouble_of_one_key_and_backs_off():
    """Other keys go on; the failed one comes again, later each time, until it went well."""
    broken = Script(
        lambda: fail(KeyError("spec")),
        lambda: fail(ConnectionRefused("hub: nobody there")),
        Result.never,
    )
    async with running(broken.controller):
        broken.controller.queue.add(request())
        await settle()
        broken.controller.queue.add(request("other"))
        await settle()
        before = [call.key.name for call in broken.calls]
        failures = dict(broken.controller.queue.failures)
        broken.clock.advance(0.005)
        await settle()
        broken.clock.advance(1)
        await settle()

    assert (before, failures[request()]) == (["a", "other"], 1)
    assert [request(), request()] == broken.calls[2:]
    assert broken.observed.results == {"error": 2, "success": 2}
    assert not {request()} & set(broken.controller.queue.failures)


async def test_a_failure_is_logged_with_a_constant_message_and_fields():
    """The key is on the line, and so is when it comes again."""
    script = Script(lambda: fail(ValueError("odd")))
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        async with running(script.controller):
            script.controller.queue.add(request())
            await settle()

    assert lines[0] == {
        "event": "reconcile failed",
        "log_level": "error",
        "controller": "test",
        "cluster": "one",
        "key": "default/a",
        "error": "ValueError: odd",
        "result": "error",
        "failures": 1,
        "retry_seconds": 0.005,
        "exc_info": True,
    }


async def test_a_terminal_error_is_not_tried_again():
    """Only a change makes the request come again."""
    script = Script(lambda: fail(Terminal("no such version")), Result.never)
    async with running(script.controller):
        script.controller.queue.add(request())
        await settle()
        script.clock.advance(10_000)
        await settle()
        untouched = len(script.calls)
        script.controller.queue.add(request())
        await settle()

    assert (untouched, len(script.calls)) == (1, 2)
    assert script.observed.results == {"terminal": 1, "success": 1}


async def test_a_hung_reconcile_ends_at_its_deadline():
    """And comes again, like any failure."""
    forever = asyncio.Event()
    observed = Observed()
    timed_out = asyncio.Event()

    async def hang(asked: Request) -> Result:
        try:
            await forever.wait()
        finally:
            timed_out.set()
        return Result.never()

    controller = Controller(
        "test",
        hang,
        ControllerOptions(
            queue=QueueOptions(clock=HandClock()), deadline_seconds=0.01, observe=observed
        ),
    )
    async with running(controller):
        controller.queue.add(request())
        await timed_out.wait()
        await settle()

    assert observed.results == {"timeout": 1}
    assert controller.queue.failures[request()] == 1


async def test_something_cancelled_inside_a_reconcile_is_its_failure():
    """A cancelled future that a reconcile awaits does not end the reconcile's task for good."""
    gone: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    gone.cancel()
    script = Script(lambda: gone, Result.never)
    async with running(script.controller):
        script.controller.queue.add(request())
        await settle()
        script.clock.advance(1)
        await settle()

    assert script.observed.results == {"error": 1, "success": 1}


async def test_a_reconcile_that_answers_nonsense_does_not_end_the_controller():
    """Not even a wrong type gets past."""
    script = Script(lambda: asyncio.sleep(0))
    async with running(script.controller) as task:
        script.controller.queue.add(request())
        await settle()
        script.controller.queue.add(request("other"))
        await settle()

        assert not task.done()
    assert script.observed.results == {"error": 1, "success": 1}


async def test_stop_lets_running_work_end_and_begins_nothing_new():
    """`run` returns when the last one has ended."""
    gate = asyncio.Event()

    async def wait() -> Result:
        await gate.wait()
        return Result.after(1)

    script = Script(wait)
    async with running(script.controller) as task:
        script.controller.queue.add(request())
        await settle()
        script.controller.queue.add(request("late"))
        script.controller.stop()
        script.controller.queue.add(request("later"))
        await settle()
        still = not task.done()
        gate.set()
        await task

    assert still
    assert script.calls == [request()]
    assert script.observed.results == {"again": 1}


async def test_cancelling_ends_running_work():
    """Nothing is left running."""
    ended = asyncio.Event()

    async def wait() -> Result:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Result.never()

    script = Script(wait)
    async with running(script.controller):
        script.controller.queue.add(request())
        await settle()

    assert ended.is_set()
    assert script.observed.results == {"cancelled": 1}
    assert not script.controller.queue.running


async def test_a_cluster_that_leaves_takes_its_work_along():
    """Running work on its objects is ended; other clusters notice nothing."""
    never = asyncio.Event()

    async def wait() -> Result:
        await never.wait()
        return Result.never()

    script = Script(wait, wait)
    async with running(script.controller) as task:
        script.controller.queue.add(request("a", "leaves"))
        script.controller.queue.add(request("b", "stays"))
        await settle()
        script.controller.queue.add(request("a", "leaves"))
        await script.controller.leave(ClusterName("leaves"))
        await settle()

        assert [request("b", "stays")] == list(script.controller.queue.running)
        assert not task.done()
    assert len(script.calls) == 2


async def test_changes_become_requests_and_an_odd_one_harms_nobody():
    """A mapping that fails on one object does not end the watch."""
    handlers: list[Callable[[str], None]] = []
    script = Script()

    def requests(change: str) -> list[Request]:
        if change == "odd":
            raise KeyError(change)
        return [request(change), request(change, "two")]

    script.controller.watches(handlers.append, requests)
    for change in ("odd", "x"):
        handlers[0](change)

    assert [request("x"), request("x", "two")] == list(script.controller.queue.ready)


@pytest.fixture(autouse=True)
def quiet() -> Generator[None]:
    """Keep expected errors out of the output."""
    with capture_logs():
        yield
