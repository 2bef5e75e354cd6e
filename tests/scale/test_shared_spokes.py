"""Three operators share the spokes of one hub; no spoke is ever written by two of them at once."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from testbed import small_release
from testbed.clusters import Lent
from testbed.fakes.lean.farm import overlapping
from testbed.scale import a_stage

pytestmark = pytest.mark.soak
SPOKES = int(os.environ.get("KNFLEET_SPOKES", "20"))
LIMIT_SECONDS = 90 + 2.0 * SPOKES
SERVED_SECONDS = 60.0
"""After a process died, its spokes are another's within that time, however busy the machine is;
`make scale REPLICAS=3` tells how long it takes."""
FLAGS = ("--share-spokes",)


async def test_spokes_of_a_killed_operator_are_served_by_the_others(lent: Lent, tmp_path: Path):
    """Each works on its part; a part that nobody has any more is shared out among the others.

    A spoke that hangs moves like any other, and holds nobody up. An operator that was paused for
    longer than its Lease ends when it wakes, and writes nothing more.
    """
    (tmp_path / "releases").mkdir()
    releases = small_release.write(tmp_path / "releases")
    async with a_stage(lent, tmp_path, releases, spokes=SPOKES) as stage:
        for number in range(3):
            await stage.start(*FLAGS, number=number)
        await stage.shared_by(3, LIMIT_SECONDS)
        await stage.install(LIMIT_SECONDS)
        await stage.steady(LIMIT_SECONDS)
        before = await stage.shares()
        victim, *others = stage.operators

        await victim.kill()
        stage.operators = others
        await stage.change("after", SERVED_SECONDS)
        await stage.shared_by(2, LIMIT_SECONDS)
        hung = [place.name for place in stage.farm.places[:2]]
        await stage.farm.behave(hung, "hung")
        await stage.start(*FLAGS, number=3)
        await stage.shared_by(3, LIMIT_SECONDS)
        await stage.farm.behave(hung, "well")
        await stage.change("joined", LIMIT_SECONDS)
        paused = stage.operators.pop(0)
        assert paused.process is not None
        paused.process.send_signal(signal.SIGSTOP)
        await stage.change("paused", SERVED_SECONDS)
        paused.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(LIMIT_SECONDS):
            woken = await paused.process.wait()
        await stage.change("woken", LIMIT_SECONDS)

        written = await stage.farm.written()
        assert len(before) == 3
        assert sorted(name for share in before.values() for name in share) == sorted(
            place.name for place in stage.farm.places
        )
        assert overlapping(written) == []
        assert len({each.who for each in written}) == 4
        assert woken == 1
        assert "not renewed" in paused.said()
