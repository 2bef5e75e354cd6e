"""A limited number of costly things begin at once, and one that hangs does not block others."""

import asyncio

from knfleet.runtime.start_limit import StartLimit
from testbed.waiting import PATIENCE_SECONDS, until


async def test_no_more_than_the_limit_begin_at_once():
    """The others wait, and come when one is done."""
    limit, running, most = StartLimit(3, slot_seconds=60), 0, 0

    async def work() -> None:
        nonlocal running, most
        async with limit.slot():
            running += 1
            most = max(most, running)
            for _ in range(20):
                await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(work() for _ in range(20)))

    assert (most, running) == (3, 0)


async def test_one_that_hangs_loses_its_slot_and_continues():
    """Another one can begin meanwhile."""
    limit, hanging, done = StartLimit(1, slot_seconds=0.05), asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        async with limit.slot():
            await hanging.wait()
            done.set()

    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_SECONDS), limit.slot():
        assert not done.is_set()
        hanging.set()
    await task

    assert done.is_set()
    assert limit.free._value == 1


async def test_one_that_is_cancelled_while_waiting_takes_no_slot():
    """All slots are free afterwards."""
    limit = StartLimit(1, slot_seconds=60)
    async with limit.slot():
        waiting = [asyncio.create_task(enter(limit)) for _ in range(3)]
        await asyncio.sleep(0)
        for task in waiting[:2]:
            task.cancel()
    await until(waiting[2].done, "the last one had a slot")

    assert limit.free._value == 1


async def enter(limit: StartLimit) -> None:
    """Take a slot and release it."""
    async with limit.slot():
        pass
