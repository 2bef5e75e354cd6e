"""Tests of the tunnel run on both event loops that a process may have: their TLS differs."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from testbed.fakes.tunnels import TunnelHub
from tests.unit.tunnel.waits import echo_server


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops by name."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def hub() -> AsyncIterator[TunnelHub]:
    made = TunnelHub()
    made.accept("c1")
    async with made.running():
        yield made


@pytest.fixture
async def api() -> AsyncIterator[str]:
    async with echo_server() as url:
        yield url
