"""Credential plugins are run on both event loops, since each starts programs in its own way."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops on which every test of this folder runs."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
