"""`make chaos-works`: random faults on a hub and its agents, while works come, change and go.

    python -m tests.chaos.works.run [--minutes 5] [--seed N] [--spokes 3]

At the end every cluster must have exactly the objects that its works want, each with the UID that
it had, unless it was deleted by hand; and every work must report so.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from msgspec.structs import replace

from knfleet.kube.errors import KubeError
from tests.chaos.plan import Place, Sort, Step, dealt
from tests.chaos.works.works_faults import FAULTS, HANDS, SORTS, Hand, WorksFault
from tests.chaos.works.works_judge import problems
from tests.chaos.works.works_stage import WorksStage, works_stage

OUT = Path("build/chaos-works")
FIRST_WORKS = 4
CONVERGE_SECONDS = 240.0
LOOK_SECONDS = 0.5


class WorksRun:
    """One run on one stage."""

    sorts: Sequence[Sort] = SORTS
    faults: Mapping[str, WorksFault] = FAULTS
    """What lasts, and is lifted again."""
    hands: Mapping[str, Hand] = HANDS
    """What users do."""

    def __init__(self, stage: WorksStage, seed: int, minutes: float) -> None:
        self.stage = stage
        names = sorted(stage.members)
        targets: dict[Place, Sequence[str]] = {
            Place.SPOKE: names,
            Place.OBJECTS: names,
            Place.RESOURCE: names,
            Place.CENTRE: ["centre"],
        }
        self.plan = dealt(seed, minutes, targets, self.sorts)
        self.began = time.time()
        self.places: dict[tuple[str, str], asyncio.Lock] = {}
        self.done: Counter[str] = Counter()

    def say(self, text: str) -> None:
        """Print something with its time."""
        print(f"{time.time() - self.began:7.1f} {text}", flush=True)

    async def play(self) -> list[str]:
        """Create works, strike, and return what is wrong when all should be at rest."""
        keepers = [asyncio.create_task(each.keep()) for each in self.stage.members.values()]
        try:
            await self.begin()
            if wrong := await self.at_rest():
                return wrong
            self.began = time.time()
            async with asyncio.TaskGroup() as group:
                for step in self.plan.steps:
                    await asyncio.sleep(max(0.0, self.began + step.at - time.time()))
                    group.create_task(self.play_step(step))
            self.say("all faults are lifted")
            if wrong := await self.at_rest():
                return wrong
            await asyncio.sleep(max(0.0, self.began + self.plan.seconds - time.time()))
            return await self.wrong()
        finally:
            for task in keepers:
                task.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def begin(self) -> None:
        """Create the first works."""
        draw = Random(self.plan.seed)
        for member in self.stage.members.values():
            for _ in range(FIRST_WORKS):
                await self.hands["create-work"](self.stage, member, draw)

    async def play_step(self, step: Step) -> None:
        """Play one step; two of a kind never strike one place at once."""
        by_hand = step.fault in self.hands
        place = (step.target, "hand" if by_hand else "fault")
        async with self.places.setdefault(place, asyncio.Lock()):
            if by_hand:
                member = self.stage.members[step.target]
                text = await self.hands[step.fault](self.stage, member, Random(step.draw))
                self.say(f"{step.target}: {text}")
            else:
                self.say(str(step))
                left = max(0.1, self.began + self.plan.peace_at - time.time())
                cut = replace(step, seconds=min(step.seconds, left))
                async with self.faults[step.fault](self.stage, cut):
                    await asyncio.sleep(cut.seconds)
        self.done[step.fault] += 1

    async def at_rest(self) -> list[str]:
        """Wait until nothing is wrong; what still is after a long time."""
        begun = time.monotonic()
        while True:
            wrong = await self.wrong()
            seconds = time.monotonic() - begun
            if not wrong:
                self.say(f"converged after {seconds:.1f} s")
                return []
            if seconds > CONVERGE_SECONDS:
                return wrong
            await asyncio.sleep(LOOK_SECONDS)

    async def wrong(self) -> list[str]:
        """What is wrong on all clusters."""
        found: list[str] = []
        for name, member in self.stage.members.items():
            try:
                found += [f"{name}: {each}" for each in await problems(self.stage, member)]
            except KubeError as error:
                found.append(f"{name}: {error}")
        return found


async def chaos(
    seed: int,
    minutes: float,
    spokes: int,
    out: Path,
    *,
    kind: type[WorksStage] = WorksStage,
    played: type[WorksRun] = WorksRun,
) -> tuple[list[str], int]:
    """Run once; what is wrong at the end, and how many faults were played."""
    with tempfile.TemporaryDirectory(prefix="knfleet-chaos-works-") as root:
        async with works_stage(Path(root), spokes=spokes, kind=kind) as stage:
            run = played(stage, seed, minutes)
            wrong = await run.play()
            if wrong:
                out.mkdir(parents=True, exist_ok=True)
                (out / f"seed-{seed}.txt").write_text("\n".join(wrong) + "\n")
                logs = {
                    each.name: each.agent.folder / "agent.log" for each in stage.members.values()
                }
                for name, log in {**logs, "hub": stage.process.log}.items():
                    shutil.copy(log, out / f"seed-{seed}.{name}.log")
            return wrong, run.done.total()


def main(
    arguments: Sequence[str] | None = None,
    *,
    out: Path = OUT,
    kind: type[WorksStage] = WorksStage,
    played: type[WorksRun] = WorksRun,
) -> int:
    """Run, and print what came of it; 1 when something did not hold."""
    parser = argparse.ArgumentParser(description="random faults on works of a real fleet")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", default="", help="another each time when empty")
    parser.add_argument("--spokes", type=int, default=3)
    parser.add_argument("--out", type=Path, default=out)
    given = parser.parse_args(arguments)
    seed = int(given.seed) if given.seed else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, {given.minutes:g} minutes, {given.spokes} spokes", flush=True)
    playing = chaos(seed, given.minutes, given.spokes, given.out, kind=kind, played=played)
    wrong, count = asyncio.run(playing)
    for each in wrong:
        print(each, flush=True)
    print(f"seed {seed}: {count} faults, {len(wrong)} problems", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
