"""A process with a manager, for tests that send it signals.

It prints a line for everything that happens to its parts. Its arguments say how it misbehaves, and
how long its end may take.
"""

import asyncio
import os
import signal
import sys

from knfleet.api.meta import HUB, Key, Request
from knfleet.runtime import logs
from knfleet.runtime.controller import Controller, Result
from knfleet.runtime.manager import Manager
from knfleet.runtime.process import run_process


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


class Part:
    """A component that tells of its beginning and its end."""

    def __init__(self, name: str, misbehaviour: str) -> None:
        self.name = name
        self.misbehaviour = misbehaviour

    async def run(self) -> None:
        say(f"{self.name} runs")
        if self.misbehaviour == "crash":
            raise LookupError("lost my way")
        try:
            await asyncio.Event().wait()
        finally:
            say(f"{self.name} ends")
            if self.misbehaviour == "stuck":
                signal.pause()


class Work:
    """Work that ends when its process is asked to, or never."""

    def __init__(self, misbehaviour: str) -> None:
        self.endless = misbehaviour == "endless"
        self.controller = Controller("work", self.reconcile)
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        self.controller.queue.add(Request(HUB, Key("", "a")))
        await self.controller.run()
        say("controller ends")

    def stop(self) -> None:
        self.controller.stop()
        self.stopped.set()

    async def reconcile(self, request: Request) -> Result:
        say("work begins")
        try:
            await (asyncio.Event() if self.endless else self.stopped).wait()
            say("work is done")
        except asyncio.CancelledError:
            say("work is cut off")
            raise
        return Result.never()


async def build(manager: Manager) -> None:
    """What this process runs."""
    misbehaviour = sys.argv[1]

    async def close() -> None:
        say("client closed")

    manager.close_last(close)
    if misbehaviour == "slow build":
        say("building")
        await asyncio.Event().wait()
    manager.add(Part("part", misbehaviour), "part")
    manager.add(Work(misbehaviour), "work", leading=True)


if __name__ == "__main__":
    logs.configure("info", "json")
    sys.exit(run_process(build, grace_seconds=float(sys.argv[2])))
