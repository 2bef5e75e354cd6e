"""The gate before every attempt of a client."""

import asyncio

import pytest

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.kube.client.options import SlotUse
from knfleet.kube.client.verbs import ClientOptions
from knfleet.kube.errors import KubeError
from testbed.fakes.apiserver import ApiServers
from testbed.fakes.clients import client_for
from testbed.waiting import PATIENCE_SECONDS, until

CONFIG_MAP = {"metadata": {"name": "one", "namespace": "default"}}


class Door:
    """A gate that a test opens: until then watches wait, and everything else fails."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.asked: list[SlotUse] = []
        self.knocked = asyncio.Event()

    async def enter(self, use: SlotUse) -> None:
        """Come in, wait, or go away."""
        self.asked.append(use)
        self.knocked.set()
        if use is SlotUse.WATCH:
            await self.opened.wait()
        elif not self.opened.is_set():
            raise KubeError("closed")


async def test_a_closed_gate_lets_nothing_through_but_what_is_urgent() -> None:
    """Nothing is sent, and nothing is tried again."""
    door = Door()
    async with ApiServers() as servers:
        cluster = servers.add("one")
        async with client_for(servers.url("one"), options=ClientOptions(gate=door)) as client:
            with pytest.raises(KubeError, match="closed"):
                await client.list(NAMESPACES)
            with pytest.raises(KubeError, match="closed"):
                await client.create(CONFIG_MAPS, CONFIG_MAP)
            assert cluster.requests == []
            assert door.asked == [SlotUse.READ, SlotUse.WRITE]

            await client.urgent.list(NAMESPACES)
            assert len(cluster.requests) == 1
            door.opened.set()
            await client.list(NAMESPACES)
            assert len(cluster.requests) == 2


async def test_a_watch_waits_at_the_gate_for_as_long_as_it_takes() -> None:
    """Longer than a request may take."""
    door = Door()
    options = ClientOptions(gate=door, deadline_seconds=0.05)
    async with ApiServers() as servers:
        cluster = servers.add("one")
        async with client_for(servers.url("one"), options=options) as client:
            events = client.watch(NAMESPACES)
            first = asyncio.ensure_future(anext(events))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await door.knocked.wait()
            done, _ = await asyncio.wait([first], timeout=4 * options.deadline_seconds)
            assert not done
            assert cluster.requests == []

            door.opened.set()
            assert (await first).type == "BOOKMARK"
            await events.aclose()


async def test_cut_connections_are_made_anew() -> None:
    """A call under way fails, the next one works."""
    async with ApiServers() as servers:
        cluster = servers.add("one")
        options = ClientOptions(attempts=1)
        async with client_for(servers.url("one"), options=options) as client:
            await client.list(NAMESPACES)
            assert client.transport.connected()
            cluster.faults.latency_seconds = 600
            waiting = asyncio.ensure_future(client.list(NAMESPACES))
            await until(lambda: len(cluster.requests) == 2, "the request is there")
            client.transport.cut()
            with pytest.raises(KubeError, match="ended"):
                await waiting

            cluster.faults.latency_seconds = 0
            await client.list(NAMESPACES)
