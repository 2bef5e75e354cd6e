"""Many lean spokes in a process of their own, each with a port, a CA and a token as real ones have.

    python -m testbed.fakes.lean.farm FOLDER FIRST COUNT

The process writes where its spokes are into the folder, takes orders on a Unix socket beside it,
and ends with its parent. `Farm` is the parent's side.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
from msgspec import Struct

from testbed.fakes.certificates import Authority
from testbed.fakes.lean.leanhttp import Behaviour, Connection, Served
from testbed.fakes.lean.leanspoke import Bodies
from testbed.fakes.server import server_context
from testbed.fakes.sockets import loopback_socket

BACKLOG = 128
START_SECONDS = 60.0
ORDER_SECONDS = 30.0
PER_PROCESS = 500
"""So many spokes have no more connections than a process may have files open."""


class Place(Struct, frozen=True):
    """Where a spoke is, and how to get in."""

    name: str
    port: int
    ca: str
    token: str

    @property
    def server(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"


class Counts(Struct):
    """What happened at all spokes together."""

    requests: dict[str, int] = {}
    handshakes: int = 0
    connections: int = 0
    watches: int = 0
    fewest_watches: int = 0
    busy_at: float = 0.0
    """When a spoke was last asked something that is no probe and no watch."""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            dict(Counter(self.requests) + Counter(other.requests)),
            self.handshakes + other.handshakes,
            self.connections + other.connections,
            self.watches + other.watches,
            min(self.fewest_watches, other.fewest_watches),
            max(self.busy_at, other.busy_at),
        )

    def __sub__(self, before: "Counts") -> "Counts":
        requests = {
            verb: count - before.requests.get(verb, 0) for verb, count in self.requests.items()
        }
        return msgspec.structs.replace(
            self, requests=requests, handshakes=self.handshakes - before.handshakes
        )


class Written(Struct, frozen=True):
    """What one client wrote on one spoke."""

    spoke: str
    who: str
    first: float
    last: float
    count: int


def name_of(number: int) -> str:
    """The name of a spoke."""
    return f"spoke{number:04}"


async def serve(folder: Path, first: int, count: int) -> None:
    """Serve some spokes until standard input ends."""
    loop = asyncio.get_running_loop()
    bodies = Bodies()
    spokes: dict[str, Served] = {}
    places: list[Place] = []
    for number in range(first, first + count):
        name, authority = name_of(number), Authority(f"spoke {number}")
        place = Place(name, 0, authority.pem.decode(), f"token-{name}")
        served = spokes[name] = Served(name, place.token, bodies, Behaviour())
        listening = loopback_socket()
        context = server_context(authority.server())
        # Resumed sessions would make handshakes cheaper than a client can rely on.
        context.num_tickets = 0
        await loop.create_server(
            partial(Connection, served), sock=listening, ssl=context, backlog=BACKLOG
        )
        served.begin()
        places.append(msgspec.structs.replace(place, port=listening.getsockname()[1]))
    orders = await asyncio.start_unix_server(partial(obey, spokes), folder / f"{first}.sock")
    fresh = folder / f"{first}.new"
    fresh.touch(mode=0o600)
    fresh.write_bytes(msgspec.json.encode(places))
    fresh.rename(folder / f"{first}.json")
    await parent_gone()
    orders.close()


async def parent_gone() -> None:
    """Wait until nobody holds the other end of standard input."""
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()

    def look() -> None:
        if not os.read(0, 1024):
            gone.set()

    loop.add_reader(0, look)
    await gone.wait()
    loop.remove_reader(0)


async def obey(
    spokes: dict[str, Served], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry out an order, and answer."""
    order = json.loads(await reader.readline())
    answer = ORDERS[order["do"]](spokes, order)
    writer.write(msgspec.json.encode(answer) + b"\n")
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    writer.close()


def count_all(spokes: dict[str, Served], _order: Any) -> Counts:
    """What happened so far."""
    total: Counter[str] = Counter()
    for each in spokes.values():
        total.update(each.requests)
    return Counts(
        dict(total),
        sum(each.handshakes for each in spokes.values()),
        sum(len(each.connections) for each in spokes.values()),
        sum(len(each.watches) for each in spokes.values()),
        min(len(each.watches) for each in spokes.values()),
        max(each.busy_at for each in spokes.values()),
    )


def behave_all(spokes: dict[str, Served], order: Any) -> int:
    """Have some spokes behave differently; how many there are here."""
    here = [spokes[name] for name in order["names"] if name in spokes]
    for each in here:
        each.behave(order["mode"])
    return len(here)


def slow_all(spokes: dict[str, Served], order: Any) -> int:
    """Have all spokes answer later."""
    for each in spokes.values():
        each.behaviour.latency_seconds = order["seconds"]
    return len(spokes)


def written_all(spokes: dict[str, Served], _order: Any) -> list[Written]:
    """Who wrote where, and when."""
    return [
        Written(each.name, who, wrote.first, wrote.last, wrote.count)
        for each in spokes.values()
        for who, wrote in each.writers.items()
    ]


ORDERS: dict[str, Callable[[dict[str, Served], Any], Any]] = {
    "count": count_all,
    "behave": behave_all,
    "slow": slow_all,
    "written": written_all,
}


class Farm:
    """Spokes in processes that were started here."""

    def __init__(self, folder: Path, firsts: Sequence[int]) -> None:
        self.folder = folder
        self.sockets = [folder / f"{first}.sock" for first in firsts]
        self.pids: list[int] = []
        self.places: list[Place] = []

    async def order(self, **order: Any) -> list[Any]:
        """What all processes answer to an order."""
        return list(await asyncio.gather(*(ask(path, order) for path in self.sockets)))

    async def counts(self) -> Counts:
        """What happened so far at all spokes."""
        parts = [msgspec.convert(each, Counts) for each in await self.order(do="count")]
        total = parts[0]
        for each in parts[1:]:
            total += each
        return total

    async def behave(self, names: Sequence[str], mode: str) -> None:
        """Have some spokes behave differently."""
        await self.order(do="behave", names=list(names), mode=mode)

    async def slow(self, seconds: float) -> None:
        """Have all spokes answer so much later."""
        await self.order(do="slow", seconds=seconds)

    async def written(self) -> list[Written]:
        """Who wrote where, and when."""
        parts = await self.order(do="written")
        return [msgspec.convert(each, Written) for part in parts for each in part]

    def cpu_seconds(self) -> float:
        """What serving has cost so far."""
        times = [psutil.Process(pid).cpu_times() for pid in self.pids]
        return sum(each.user + each.system for each in times)


def by_spoke(written: list[Written]) -> dict[str, list[Written]]:
    """Who wrote on each spoke, in order of time."""
    found: defaultdict[str, list[Written]] = defaultdict(list)
    for each in sorted(written, key=lambda each: each.first):
        found[each.spoke].append(each)
    return found


def overlapping(written: list[Written]) -> list[str]:
    """Spokes on which one began to write before another had ended."""
    return [
        spoke
        for spoke, writers in by_spoke(written).items()
        if any(one.last >= other.first for one, other in itertools.pairwise(writers))
    ]


async def ask(path: Path, order: dict[str, Any]) -> Any:
    """What one process answers to an order."""
    async with asyncio.timeout(ORDER_SECONDS):
        reader, writer = await asyncio.open_unix_connection(path, limit=64 * 2**20)
        try:
            writer.write(json.dumps(order).encode() + b"\n")
            return json.loads(await reader.readline())
        finally:
            writer.close()


@asynccontextmanager
async def a_farm(folder: Path, count: int) -> AsyncGenerator[Farm, None]:
    """So many spokes, ready; they are gone afterwards."""
    folder.mkdir(mode=0o700, exist_ok=True)
    firsts = range(0, count, PER_PROCESS)
    farm = Farm(folder, firsts)
    processes: list[asyncio.subprocess.Process] = []
    try:
        for first in firsts:
            some = min(PER_PROCESS, count - first)
            processes.append(
                await asyncio.create_subprocess_exec(
                    *(
                        sys.executable,
                        "-m",
                        "testbed.fakes.lean.farm",
                        str(folder),
                        str(first),
                        str(some),
                    ),
                    stdin=asyncio.subprocess.PIPE,
                )
            )
        farm.pids = [process.pid for process in processes]
        async with asyncio.timeout(START_SECONDS):
            for first, process in zip(firsts, processes, strict=True):
                farm.places += await placed(folder / f"{first}.json", process)
        yield farm
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            await asyncio.wait_for(process.wait(), START_SECONDS)


async def placed(path: Path, process: asyncio.subprocess.Process) -> list[Place]:
    """Where the spokes of one process are, once it serves them."""
    while not path.exists():
        assert process.returncode is None, "the farm ended before it served"
        await asyncio.sleep(0.02)
    return msgspec.json.decode(path.read_bytes(), type=list[Place])


def main() -> None:
    """Serve."""
    import uvloop

    folder, first, count = sys.argv[1:]
    uvloop.run(serve(Path(folder), int(first), int(count)))


if __name__ == "__main__":
    main()
