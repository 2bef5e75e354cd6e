"""Credential plugins are run on both event loops, since each starts programs in its own way.

`make test` runs them on uvloop, as the program does; `make test-full` on the other one as well.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

HERE = Path(__file__).parent


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops on which every test of this folder runs."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the loop that the program uses only where uvloop does not exist to `make test-full`."""
    for each in items:
        if each.path.parent == HERE and "[asyncio" in each.name:
            each.add_marker(pytest.mark.full)
