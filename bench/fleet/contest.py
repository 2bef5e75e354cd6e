"""Turns of several sides on the same clusters, and what they print."""

import argparse
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from bench.fleet.sides import OURS, THEIRS
from bench.fleet.table import table
from bench.knative.scenarios import Figures
from bench.stopping import measured
from knfleet.kube.client.verbs import Client, ClientOptions
from testbed.clusters import Lent, Pool

MANY_AT_ONCE = ClientOptions(concurrency=32)

Turn = Callable[[Pool, str, Path], Awaitable[Figures]]
"""The figures of one side, from empty clusters on; it gets a folder that does not exist."""


@asynccontextmanager
async def connected(lents: Sequence[Lent]) -> AsyncGenerator[list[Client]]:
    """A client for each cluster."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(Client(each.connection, MANY_AT_ONCE)) for each in lents
        ]


async def contest(
    folder: Path, *, rounds: int, names: Sequence[str], turn: Turn
) -> dict[str, list[Figures]]:
    """The figures of all sides, in turns; who was first in a round is last in the next."""
    found: dict[str, list[Figures]] = {name: [] for name in names}
    pool = Pool(folder / "ground")
    try:
        for number in range(rounds):
            shift = number % len(names)
            for name in (*names[shift:], *names[:shift]):
                place = folder / f"{number}-{name.replace(' ', '-')}"
                found[name].append(await turn(pool, name, place))
    finally:
        pool.close()
    return found


def parser_of(description: str, sides: Sequence[str]) -> argparse.ArgumentParser:
    """The options that all contests have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], choices=list(sides))
    parser.add_argument("--json", type=Path, help="where to keep all figures")
    return parser


def hold(
    arguments: argparse.Namespace, sides: Sequence[str], turn: Turn, goals: Mapping[str, str]
) -> None:
    """Measure and print."""
    before = os.getloadavg()
    names = [name for name in sides if not arguments.only or name in arguments.only]
    found = measured(partial(contest, rounds=arguments.rounds, names=names, turn=turn))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    if OURS in found and THEIRS in found:
        print(table(found, OURS, THEIRS, goals))
    print(f"load before: {before[0]:.1f}")
