"""Three operators share the spokes of one hub; no spoke is ever written by two of them at once."""

import os
from collections import defaultdict
from pathlib import Path

from tests.fakes.farm import overlapping
from tests.fleet import small_release
from tests.ground import Lent
from tests.scale.stage import FLEET, Stage, a_stage
from tests.waiting import until

from knfleet.api.core import LEASES
from knfleet.runtime.sharing import MEMBER, view_of

SPOKES = int(os.environ.get("KNFLEET_SPOKES", "20"))
LIMIT_SECONDS = 90 + 2.0 * SPOKES
SERVED_SECONDS = 20.0
"""After a process died, its spokes are another's within that time."""
FLAGS = ("--share-spokes",)


async def shares(stage: Stage) -> dict[str, set[str]]:
    """The spokes of each operator that wrote."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for each in await stage.farm.written():
        found[each.who].add(each.spoke)
    return found


async def is_shared_by(stage: Stage, count: int) -> bool:
    """Whether so many members have published the view that they are all there is."""
    leases = await stage.hub.client.list(LEASES, FLEET, labels=f"{MEMBER}=operator")
    views = {each["metadata"]["name"]: view_of(each) for each in leases.items}
    return any(
        len(view) == count and all(views.get(name) == view for name in view)
        for view in views.values()
    )


async def test_spokes_of_a_killed_operator_are_served_by_the_others(lent: Lent, tmp_path: Path):
    """Each works on its part; a part that nobody has any more is shared out among the others."""
    (tmp_path / "releases").mkdir()
    releases = small_release.write(tmp_path / "releases")
    async with a_stage(lent, tmp_path, releases, spokes=SPOKES) as stage:
        for number in range(3):
            await stage.start(*FLAGS, number=number)
        await until(lambda: is_shared_by(stage, 3), "all know of all", seconds=LIMIT_SECONDS)
        await stage.install(LIMIT_SECONDS)
        await stage.steady(LIMIT_SECONDS)
        before = await shares(stage)
        victim, *others = stage.operators

        await victim.kill()
        stage.operators = others
        taken = await stage.change("after", SERVED_SECONDS)
        await until(lambda: is_shared_by(stage, 2), "two are left", seconds=LIMIT_SECONDS)
        await stage.start(*FLAGS, number=3)
        await until(lambda: is_shared_by(stage, 3), "another joined", seconds=LIMIT_SECONDS)
        await stage.steady(LIMIT_SECONDS)
        await stage.change("joined", LIMIT_SECONDS)

        written = await stage.farm.written()
        assert len(before) == 3
        assert sorted(name for share in before.values() for name in share) == sorted(
            place.name for place in stage.farm.places
        )
        assert taken < SERVED_SECONDS
        assert overlapping(written) == []
        assert len({each.who for each in written}) == 4
