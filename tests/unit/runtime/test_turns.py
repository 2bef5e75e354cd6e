"""What many would do at once is done in turns, and nobody who hangs holds up the others."""

import asyncio
import time

from knfleet.runtime.start_limit import StartLimit
from testbed.waiting import until


async def test_no_more_than_so_many_have_a_turn_at_once():
    """The others wait, and come when one is done."""
    turns, running, most = StartLimit(3, turn_seconds=60), 0, 0

    async def work() -> None:
        nonlocal running, most
        async with turns.slot():
            running += 1
            most = max(most, running)
            for _ in range(20):
                await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(work() for _ in range(20)))

    assert (most, running) == (3, 0)


async def test_who_hangs_loses_the_turn_but_goes_on():
    """Hanging is no reason to be cut off here, nor to hold up anybody."""
    turns, hanging, done = StartLimit(1, turn_seconds=0.05), asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        async with turns.slot():
            await hanging.wait()
            done.set()

    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
    async with asyncio.timeout(10), turns.slot():
        assert not done.is_set()
        hanging.set()
    await task

    assert done.is_set()
    assert turns.free._value == 1


async def test_nothing_is_begun_while_the_loop_is_behind():
    """What is under way comes first."""
    turns, begun = StartLimit(8, turn_seconds=60), False
    busy_until = time.monotonic() + 0.5

    async def toil() -> None:
        while time.monotonic() < busy_until:
            time.sleep(0.15)  # noqa: ASYNC251  as code does that keeps others waiting
            assert not begun
            await asyncio.sleep(0)

    async def begin() -> None:
        nonlocal begun
        async with turns.slot():
            begun = True

    await asyncio.gather(toil(), begin())

    assert begun


async def test_who_is_cancelled_while_waiting_takes_no_place():
    """Nothing is lost when somebody gives up."""
    turns = StartLimit(1, turn_seconds=60)
    async with turns.slot():
        waiting = [asyncio.create_task(enter(turns)) for _ in range(3)]
        await asyncio.sleep(0)
        for task in waiting[:2]:
            task.cancel()
    await until(waiting[2].done, "the last one had its turn")

    assert turns.free._value == 1


async def enter(turns: StartLimit) -> None:
    """Have a turn."""
    async with turns.slot():
        pass
