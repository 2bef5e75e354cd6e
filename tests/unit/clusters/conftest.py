"""Fixtures for tests of access: a fake fleet."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testbed.fakes.fleet import Fleet, a_fleet


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fake hub without spokes."""
    async with a_fleet(tmp_path) as fleet:
        yield fleet
