"""The real thing in small: a hub, two spokes, two operators, and a quarter minute of faults."""

import os
from pathlib import Path

import pytest

from tests.chaos.run import chaos

# Has the leader end, a spoke fall silent, an edit, an upgrade and a removal.
SEED = int(os.environ.get("KNFLEET_TEST_SEED", "1722"))

pytestmark = pytest.mark.soak


@pytest.mark.xdist_group("chaos")
async def test_everything_holds_under_faults_and_converges(
    bundle_root: Path, tmp_path: Path
) -> None:
    """Whatever is done meanwhile; `make chaos` plays this for an hour with four spokes."""
    report = await chaos(SEED, 0.4, 2, tmp_path / "chaos")

    assert report.is_green, report.text()
    assert report.figures["writes judged"] > 100
    assert report.figures["changes of the Lease"] > 1
    assert report.figures["removals"] > 0
