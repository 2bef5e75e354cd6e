"""One operator and many spokes, in small; `make scale` does the same with hundreds, and measures.

Set KNFLEET_SPOKES to let it be more of them.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testbed import small_release
from testbed.clusters import Lent
from testbed.scale import Stage, a_stage

SPOKES = int(os.environ.get("KNFLEET_SPOKES", "20"))
LIMIT_SECONDS = 60 + 2.0 * SPOKES
WRITES = ("apply", "create", "patch", "delete")
RESTART_REQUESTS = 20
"""What a spoke is asked at most when nothing has changed since the last process."""
RESTART_HANDSHAKES = 12


@pytest.fixture
async def stage(lent: Lent, tmp_path: Path) -> AsyncIterator[Stage]:
    """Spokes on which Serving is installed, and quiet."""
    (tmp_path / "releases").mkdir()
    releases = small_release.write(tmp_path / "releases")
    async with a_stage(lent, tmp_path, releases, spokes=SPOKES) as stage:
        await stage.start()
        await stage.install(LIMIT_SECONDS)
        await stage.steady(LIMIT_SECONDS)
        yield stage


async def test_a_restart_writes_nothing_and_asks_little(stage: Stage):
    """Whatever is as it should be is seen by the watches, which are opened anyway."""
    before = await stage.farm.counts()

    await stage.restart(LIMIT_SECONDS)

    more = await stage.farm.counts() - before
    wrote = sum(more.requests.get(verb, 0) for verb in WRITES)
    assert wrote == 0
    assert sum(more.requests.values()) <= RESTART_REQUESTS * SPOKES
    assert more.handshakes <= RESTART_HANDSHAKES * SPOKES
    assert stage.pending == set()


@pytest.mark.soak
async def test_spokes_that_come_and_go_hold_up_no_other(stage: Stage):
    """What is wanted elsewhere is done meanwhile; those that are back catch up."""
    names = [place.name for place in stage.farm.places]
    gone, hung, *healthy = names
    await stage.farm.behave([gone], "cut")
    await stage.farm.behave([hung], "hung")

    for name in names:
        await stage.ask_for(name, "new")
    await stage.when(lambda: stage.pending == {gone, hung}, LIMIT_SECONDS)
    await stage.farm.behave([gone, hung], "well")
    await stage.all_ready(LIMIT_SECONDS)

    assert len(healthy) == SPOKES - 2
