"""Spokes that send without end, or in the worst form: they are refused, and nobody else notices."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import psutil
import pytest
from msgspec.structs import replace

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.meta import Key
from knfleet.clusters import access_errors
from knfleet.clusters.connection import MEMORY_LIMIT_BYTES
from knfleet.clusters.connection_state import Phase
from knfleet.clusters.pool import ClusterPool, PoolPolicy
from knfleet.kube.cache.informer import Informer
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError
from testbed.fakes.fleet import QUICK, Fleet, key, state_of, until_phase
from testbed.waiting import until

GOOD = ("a", "b", "c")
GROWTH_BYTES = 3 * MEMORY_LIMIT_BYTES
"""What one spoke may take, and as much again for what is decoded and sent here."""
TOO_MUCH = "sends more than a cluster may"
PATIENT = PoolPolicy(timing=replace(QUICK, answer=4.0, slow_answer=4.0))
"""On a busy machine good spokes, which run in this process too, do not answer at once."""


def used_bytes() -> int:
    """Memory of this process."""
    return psutil.Process().memory_info().rss


async def read_on(client: Client) -> None:
    """List and watch a cluster for as long as it lets us."""
    async with asyncio.TaskGroup() as group:
        group.create_task(Informer(client, CONFIG_MAPS).run())
        group.create_task(list_on(client))


async def list_on(client: Client) -> None:
    """List something again and again."""
    while True:
        with suppress(KubeError):
            await client.list(CONFIG_MAPS)
        await asyncio.sleep(0)


@asynccontextmanager
async def reading(client: Client) -> AsyncGenerator[None, None]:
    """A cluster is read from."""
    task = asyncio.create_task(read_on(client))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def lose(spokes: ClusterPool, name: str) -> str:
    """Wait until a spoke was given up, however soon it is used again; what was said of it."""
    before = used_bytes()
    messages: list[str] = []

    def note(changed: Key) -> None:
        state = spokes.state(key(name))
        lost = state is not None and state.reason == access_errors.REMOTE_CLIENT_CREATION_FAILED
        if changed == key(name) and state is not None and lost:
            messages.append(state.message)

    def is_given_up() -> bool:
        growth = used_bytes() - before
        assert growth < GROWTH_BYTES, f"the process grew by {growth / 2**20:.0f} MiB"
        return bool(messages)

    spokes.on_change(note)
    await until(is_given_up, f"{name} is given up")
    return messages[0]


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("negative", ""),
        ("crumbs", ""),
        ("endless", ""),
        ("dense", TOO_MUCH),
        ("pages", TOO_MUCH),
        ("empty", TOO_MUCH),
        ("events", TOO_MUCH),
        ("line", TOO_MUCH),
    ],
)
async def test_a_spoke_that_sends_too_much_is_refused_alone(
    fleet: Fleet, mode: str, told: str
) -> None:
    """It is told why, takes no more memory than it may, and is used again when it is good."""
    for name in GOOD:
        fleet.add_spoke(name)
    async with fleet.lean_spoke("bad") as bad, fleet.running(PATIENT) as spokes:
        for name in (*GOOD, "bad"):
            spokes.use(key(name), "test")
            await spokes.live(key(name))
        since = {name: state_of(spokes, name).since for name in GOOD}
        live = await spokes.live(key("bad"))
        bad.behave(mode)

        async with reading(live.client):
            message = await lose(spokes, "bad")

        assert told in message
        for name in GOOD:
            assert (await (await spokes.live(key(name))).client.list(NAMESPACES)).items
            state = state_of(spokes, name)
            assert (state.phase, state.since) == (Phase.UP, since[name])
        bad.behave("well")
        await until_phase(spokes, "bad", Phase.UP)


async def test_a_spoke_that_forgets_all_the_time_is_not_listed_all_the_time(fleet: Fleet) -> None:
    """A watch that is told to begin again, again and again, waits longer each time."""
    async with fleet.lean_spoke("bad") as bad, fleet.running() as spokes:
        spokes.use(key("bad"), "test")
        live = await spokes.live(key("bad"))
        bad.behave("forgotten")
        informer = Informer(live.client, CONFIG_MAPS)
        following = asyncio.create_task(informer.run())
        await until(lambda: bad.requests["watch"] >= 3, "it was told to list again")

        assert informer.relists >= 2

        following.cancel()
        await asyncio.wait([following])
