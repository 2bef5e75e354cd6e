"""`make chaos`: random faults on a hub and its spokes, with everything that must hold watched.

    python -m tests.chaos.run [--minutes 60] [--seed N] [--spokes 4] [--out FOLDER]

The seed decides which faults come when and on what; how the fleet answers, and so what is seen of
it, is as real as the processes that it is made of.
"""

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from knfleet.release.source.sources import GoModuleSource
from tests.chaos import converging, hands, report, scene
from tests.chaos.centre import strike
from tests.chaos.evidence import Span
from tests.chaos.plan import Plan, Step, plan
from tests.chaos.report import Line, Report
from tests.chaos.stage import Stage, stage
from tests.chaos.watching import Watcher

OUT = Path("build/chaos")
FIRST_SECONDS = 300.0
"""How long the first installation may take, before any fault."""
STILL_SECONDS = 5.0
CONVERGE_SECONDS = 240.0
"""How long after the last fault everything must be as it was asked for."""


class Run:
    """One run on one stage."""

    def __init__(self, made: Stage, seed: int, minutes: float) -> None:
        self.stage = made
        self.began = time.time()
        self.timeline: list[Line] = []
        self.watcher = Watcher(made, self.say)
        self.plan: Plan = plan(seed, minutes, sorted(made.spokes), sorted(made.wanted))
        self.minutes = minutes
        self.places: dict[str, asyncio.Lock] = {}
        """Held while a place is struck."""
        self.problem = ""
        self.converged = 0.0

    def say(self, text: str) -> None:
        """Tell something, now and in the report."""
        line = Line(round(time.time() - self.began, 1), text)
        self.timeline.append(line)
        print(line, flush=True)

    async def play(self) -> None:
        """Install, strike, watch, and see that all comes to rest."""
        await self.watcher.remember()
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(replica.keep(self.say))
                for replica in self.stage.replicas.values()
            ]
            background.append(group.create_task(self.watcher.run()))
            try:
                await self.install()
                await self.strike_all()
                await self.converge()
                await self.rest()
                await self.watcher.conclude()
            except* (converging.NotConverged, AssertionError) as errors:
                self.problem = "; ".join(map(str, errors.exceptions))
                self.say(self.problem)
            for task in background:
                task.cancel()

    async def install(self) -> None:
        """Create all custom resources, and wait until they are ready."""
        for wanted in self.stage.wanted.values():
            await hands.create(self.stage, wanted)
        await converging.ready(self.stage, FIRST_SECONDS, self.say)
        self.say(f"installed: {', '.join(self.stage.wanted)}; {len(self.plan.steps)} faults follow")

    async def strike_all(self) -> None:
        """Play every step at its time, until the last one is over."""
        self.began = time.time()
        self.timeline.append(Line(0.0, "the faults begin"))
        async with asyncio.TaskGroup() as group:
            for step in self.plan.steps:
                await asyncio.sleep(max(0.0, self.began + step.at - time.time()))
                group.create_task(self.play_step(step))
        self.say("all faults are lifted")

    async def play_step(self, step: Step) -> None:
        """Play one step."""
        self.say(str(step))
        if step.fault in hands.HANDS:
            self.say(await hands.HANDS[step.fault](self.stage, step))
            return
        # A server that was killed takes a while to come back, longer than the plan knows.
        async with self.places.setdefault(step.target, asyncio.Lock()):
            left = self.began + self.plan.peace_at - time.time()
            if left > 0:
                await strike(self.stage, replace(step, seconds=min(step.seconds, left)))
        self.say(f"{step.fault} {step.target} is over")

    async def converge(self) -> None:
        """Wait until everything is as it was asked for."""
        self.converged = await converging.settled(self.stage, CONVERGE_SECONDS, self.say)
        self.say(f"converged after {self.converged:.1f} s")

    async def rest(self) -> None:
        """Go on watching until the time is up; all must still be as it was asked for."""
        await asyncio.sleep(max(0.0, self.began + self.plan.seconds - time.time()))
        await converging.ready(self.stage, STILL_SECONDS, self.say)

    def figures(self) -> dict[str, int]:
        """How much was seen."""
        evidence = self.stage.evidence
        silent: list[Span] = [span for spans in evidence.silent.values() for span in spans]
        return {
            "faults": len(self.plan.steps),
            "writes judged": len(evidence.writes),
            "changes of the Lease": len(evidence.taken),
            "looks at conditions": self.watcher.looks,
            "silences": len(silent),
            "conditions judged of silent spokes": self.watcher.silent_looks,
            "requests throttled": evidence.throttled,
            "removals": len(evidence.removed),
        }

    def report(self) -> Report:
        """What came of it."""
        return Report(
            seed=self.plan.seed,
            minutes=self.minutes,
            spokes=len(self.stage.spokes),
            steps=self.plan.steps,
            timeline=tuple(self.timeline),
            violations=tuple(self.watcher.violations),
            problem=self.problem,
            converged_seconds=round(self.converged, 1),
            figures=self.figures(),
        )


async def chaos(seed: int, minutes: float, spokes: int, out: Path) -> Report:
    """Run once; the report, which is written as well."""
    releases = await GoModuleSource().fetch()
    with tempfile.TemporaryDirectory(prefix="knfleet-chaos-") as root:
        async with stage(Path(root), releases, spokes=spokes) as made:
            run = Run(made, seed, minutes)
            try:
                await run.play()
            finally:
                made_report = run.report()
                report.write(made_report, out)
                for replica in made.replicas.values():
                    shutil.copy(replica.log, out / f"seed-{seed}.{replica.name}.log")
            if not made_report.is_green:
                await scene.keep(made, out / f"seed-{seed}.scene")
    return made_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and tell what came of it; 1 when something did not hold."""
    parser = argparse.ArgumentParser(description="random faults on a real fleet")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", default="", help="another each time when empty")
    parser.add_argument("--spokes", type=int, default=4)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(arguments)
    seed = int(given.seed) if given.seed else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, {given.minutes:g} minutes, {given.spokes} spokes", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    made = asyncio.run(chaos(seed, given.minutes, given.spokes, given.out))
    print(made.verdict(), flush=True)
    print(f"the report is in {given.out}", flush=True)
    return 0 if made.is_green else 1


if __name__ == "__main__":
    sys.exit(main())
