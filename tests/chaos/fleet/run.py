"""`make chaos-fleet`: random faults while everything that a hub spreads comes, changes and goes.

    python -m tests.chaos.fleet.run [--minutes 5] [--seed N] [--spokes 3]

Plays what `make chaos-works` plays, and also strikes tunnels and the gRPC server, while users move
clusters in and out of a Placement and change replica set, add-on and Knative fleet. The clusters
join in three ways: behind a tunnel, over gRPC, and by certificate requests.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from knfleet.kube.errors import KubeError
from tests.chaos.fleet.fleet_faults import FAULTS, HANDS, SORTS, fleet_of
from tests.chaos.fleet.fleet_judge import fleet_problems
from tests.chaos.fleet.fleet_stage import FleetStage
from tests.chaos.plan import Sort
from tests.chaos.works import run
from tests.chaos.works.run import WorksRun
from tests.chaos.works.works_faults import Hand, WorksFault

OUT = Path("build/chaos-fleet")


class FleetRun(WorksRun):
    """One run on one stage."""

    sorts: Sequence[Sort] = SORTS
    faults: Mapping[str, WorksFault] = FAULTS
    hands: Mapping[str, Hand] = HANDS

    async def begin(self) -> None:
        """Spread everything, and create the first works."""
        stage = fleet_of(self.stage)
        await stage.spread()
        await super().begin()
        await stage.watch_decisions()

    async def wrong(self) -> list[str]:
        """What is wrong on the hub and on all clusters."""
        found = await super().wrong()
        try:
            return [*found, *(await fleet_problems(fleet_of(self.stage)))]
        except KubeError as error:
            return [*found, f"fleet: {error}"]


if __name__ == "__main__":
    sys.exit(run.main(out=OUT, kind=FleetStage, played=FleetRun))
