"""A short run: two clusters and half a minute of faults."""

from pathlib import Path

import pytest

from tests.chaos.works.run import chaos


@pytest.mark.soak
@pytest.mark.xdist_group("chaos")
async def test_works_survive_faults_of_hub_agents_and_clusters(tmp_path: Path):
    """`make chaos-works` plays this for longer, with more clusters."""
    wrong, count = await chaos(7, 0.6, 2, tmp_path)

    assert wrong == []
    assert count > 5
