"""The life and the end of a process: in order, in time, and with the right exit code."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from knfleet.runtime.leader.leader import LostLeadership
from knfleet.runtime.manager import CLEANING_SECONDS, ComponentFailed, Manager
from knfleet.runtime.process import is_loss

DEADLINE_SECONDS = 30
ROOT = Path(__file__).parents[3]


class Child:
    """A process of `managed`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def until(self, line: str) -> None:
        """Wait for a line."""
        assert self.process.stdout is not None
        while line not in self.lines:
            got = await self.process.stdout.readline()
            assert got, f"{line!r} did not come: {self.lines}"
            self.lines.append(got.decode().strip())

    async def end(self) -> tuple[int, str]:
        """Its exit code and its log, when it has ended by itself."""
        out, err = await self.process.communicate()
        self.lines += out.decode().splitlines()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


@asynccontextmanager
async def child(misbehaviour: str = "none", grace_seconds: float = 60) -> AsyncGenerator[Child]:
    """A process that is gone after the block."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.unit.runtime.managed",
            misbehaviour,
            str(grace_seconds),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        try:
            yield Child(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_work_first_then_parts_then_clients(number: int):
    """Work that ends by itself is not cut off."""
    async with child() as process:
        await process.until("part runs")
        await process.until("work begins")
        process.process.send_signal(number)
        code, log = await process.end()

    assert (code, process.lines[-4:]) == (
        0,
        ["work is done", "controller ends", "part ends", "client closed"],
    )
    assert '"event": "stopped"' in log


async def test_work_that_does_not_end_is_cut_off():
    """The limit holds, and the exit is still a clean one."""
    async with child("endless", CLEANING_SECONDS + 0.1) as process:
        await process.until("work begins")
        process.process.send_signal(signal.SIGTERM)
        code, log = await process.end()

    assert code == 0
    assert "work is cut off" in process.lines
    assert process.lines[-1] == "client closed"
    assert '"event": "work cut off"' in log


async def test_a_second_signal_ends_the_process_at_once():
    """Whoever presses Ctrl-C twice means it."""
    async with child("endless") as process:
        await process.until("work begins")
        process.process.send_signal(signal.SIGTERM)
        assert process.process.stderr is not None
        while b"stopping" not in await process.process.stderr.readline():
            pass
        process.process.send_signal(signal.SIGINT)
        code, _ = await process.end()

    assert code == -signal.SIGINT
    assert "client closed" not in process.lines


async def test_a_process_that_is_stuck_ends_at_the_limit_and_says_where():
    """Even when the event loop itself does not turn any more."""
    async with child("stuck", 1) as process:
        await process.until("part runs")
        process.process.send_signal(signal.SIGTERM)
        code, log = await process.end()

    assert code == 1
    assert "managed.py" in log


async def test_a_crash_of_a_component_ends_the_process_with_its_reason():
    """Everything else is ended in order first."""
    async with child("crash") as process:
        code, log = await process.end()

    assert code == 1
    assert process.lines[-1] == "client closed"
    assert "process/part: LookupError: lost my way" in log


async def test_a_signal_during_the_start_ends_the_start():
    """A server that does not answer does not make the process deaf."""
    async with child("slow build") as process:
        await process.until("building")
        process.process.send_signal(signal.SIGTERM)
        code, _ = await process.end()

    assert (code, process.lines) == (0, ["building", "client closed"])


@pytest.mark.parametrize("is_grouped", [False, True])
async def test_a_component_that_notices_the_lost_lease_first_is_no_crash(is_grouped: bool):
    """Whoever notices it, the process begins anew, and no other failure is taken for it."""
    manager, part, other = Manager(), Part(), Part()
    manager.add(part, "part")
    manager.add(other, "other")
    lost = LostLeadership("not renewed")
    async with running(manager) as task:
        await part.begun.wait()
        part.crash.set_exception(ExceptionGroup("several", [lost]) if is_grouped else lost)
        with pytest.raises(ComponentFailed) as caught:
            await task

    assert is_loss(caught.value)
    assert other.over.is_set()
    assert not is_loss(ExceptionGroup("several", [lost, LookupError("lost my way")]))


class Part:
    """A component that can be watched, and made to crash."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.crash: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()

    async def run(self) -> None:
        self.begun.set()
        try:
            await self.crash
        finally:
            self.over.set()


@asynccontextmanager
async def running(manager: Manager) -> AsyncGenerator[asyncio.Task[None]]:
    """The manager, running as long as the block."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        task = asyncio.ensure_future(manager.run())
        try:
            yield task
        finally:
            manager.stop()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_lifetime_begins_while_others_run_and_ends_alone():
    """A spoke joins and leaves; what runs for the others goes on."""
    manager = Manager()
    first, of_spoke = Part(), Part()
    manager.add(first)
    async with running(manager) as task:
        await first.begun.wait()
        spoke = manager.lifetime("spoke-1")
        spoke.add(of_spoke)
        await of_spoke.begun.wait()
        spoke.end()
        await spoke.ended.wait()

        assert of_spoke.over.is_set()
        assert not first.over.is_set()
        assert not task.done()
        assert not manager.lifetimes
    assert first.over.is_set()


async def test_a_crash_inside_a_lifetime_is_told_to_its_owner_alone():
    """The owner of a spoke decides what becomes of it; the process goes on."""
    manager = Manager()
    told: list[BaseException] = []
    crashes, beside, other = Part(), Part(), Part()
    manager.add(other)
    async with running(manager) as task:
        spoke = manager.lifetime("spoke-1", told.append)
        spoke.add(crashes, "informer")
        spoke.add(beside)
        await crashes.begun.wait()
        await beside.begun.wait()
        crashes.crash.set_exception(OSError("no route"))
        await spoke.ended.wait()

        assert [str(error) for error in told] == ["spoke-1/informer: OSError: no route"]
        assert beside.over.is_set()
        assert not task.done()


async def test_a_crash_that_nobody_owns_ends_everything_with_its_cause():
    """`run` raises what happened."""
    manager = Manager()
    crashes, beside = Part(), Part()
    manager.add(crashes, "server")
    manager.add(beside)
    async with asyncio.timeout(DEADLINE_SECONDS):
        task = asyncio.ensure_future(manager.run())
        await beside.begun.wait()
        crashes.crash.set_exception(OSError("address in use"))

        with pytest.raises(
            ComponentFailed, match="process/server: OSError: address in use"
        ) as told:
            await task
    assert isinstance(told.value.__cause__, OSError)
    assert beside.over.is_set()


async def test_a_component_whose_inner_work_was_cancelled_counts_as_crashed():
    """Nothing ends without a word."""
    manager = Manager()
    part = Part()
    manager.add(part, "informer")
    async with asyncio.timeout(DEADLINE_SECONDS):
        task = asyncio.ensure_future(manager.run())
        await part.begun.wait()
        part.crash.cancel()

        with pytest.raises(ComponentFailed, match="informer: CancelledError"):
            await task


async def test_what_is_added_at_the_end_does_not_begin():
    """Neither a component nor a lifetime."""
    manager = Manager()
    async with running(manager) as task:
        late = Part()
        manager.stop()
        await task
        manager.add(late)
        lifetime = manager.lifetime("late")
        lifetime.add(late)

        assert lifetime.ended.is_set()
        assert not late.begun.is_set()
