"""Works on all pairs of hubs and agents: ours, and those of Open Cluster Management."""

import shutil
from pathlib import Path

import pytest

from testbed.clusters import Lend
from tests.peers.work_scenarios import play
from tests.support.pairs import OCM, OURS, joined_pair

pytestmark = [pytest.mark.xdist_group("peers"), pytest.mark.full]


@pytest.mark.parametrize(
    ("hub_side", "agent_side"), [(OCM, OCM), (OURS, OCM), (OCM, OURS), (OURS, OURS)]
)
async def test_works_keep_their_promises(
    lend: Lend, tmp_path: Path, hub_side: str, agent_side: str
):
    """The same scenarios hold on every pair."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that Open Cluster Management cannot be built")
    async with joined_pair(lend, tmp_path, hub_side, agent_side) as pair:
        assert await play(pair) == {}
