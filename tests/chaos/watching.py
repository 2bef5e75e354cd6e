"""Looks at a fleet all the time, and has judged what it sees."""

import asyncio
import time
from collections.abc import Callable, Iterable

from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items
from knfleet.kube.errors import KubeError
from tests.chaos import audit, foreign, judges
from tests.chaos.evidence import Foreign, Said, Violation
from tests.chaos.resources import Wanted
from tests.chaos.stage import Stage

LOOK_SECONDS = 1.0
FOREIGN_SECONDS = 8.0
READ_SECONDS = 5.0


class Watcher:
    """Keeps looking until it is cancelled; what must not be is told once, and kept."""

    def __init__(self, stage: Stage, say: Callable[[str], None]) -> None:
        self.stage = stage
        self.say = say
        self.violations: list[Violation] = []
        self.told: set[tuple[str, str]] = set()
        self.before: dict[str, dict[str, Foreign]] = {}
        self.judged = 0
        """How many removals were judged."""
        self.looks = 0
        """How often conditions were read, and how often of a spoke that was silent for long."""
        self.silent_looks = 0

    def convict(self, found: Iterable[Violation]) -> None:
        """Keep violations, and tell those that are new."""
        for each in found:
            topic = each.text.partition(",")[0]
            if (each.invariant, topic) not in self.told:
                self.told.add((each.invariant, topic))
                self.violations.append(each)
                self.say(f"VIOLATION {each.invariant}: {each.text}")

    async def remember(self) -> None:
        """Take the foreign objects of all clusters as they are to stay."""
        for cluster in (self.stage.hub.lent.name, *self.stage.spokes):
            found = await foreign.sight(self.stage.client(cluster), cluster)
            self.before[cluster] = dict(found.found)

    async def run(self) -> None:
        """Look at everything, each thing as often as it is worth."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.repeat(self.read_audits, LOOK_SECONDS))
            group.create_task(self.repeat(self.read_conditions, LOOK_SECONDS))
            for cluster in self.before:
                group.create_task(
                    self.repeat(lambda each=cluster: self.read_foreign(each), FOREIGN_SECONDS)
                )

    async def repeat(self, look: Callable[[], object], seconds: float) -> None:
        """Look again and again; a server that cannot be reached is looked at later."""
        while True:
            try:
                looking = look()
                if asyncio.iscoroutine(looking):
                    await looking
            except KubeError:
                pass
            await asyncio.sleep(seconds)

    def read_audits(self) -> None:
        """Judge who wrote since the last look, and what removals left behind."""
        evidence = self.stage.evidence
        fresh = [
            write
            for log in self.stage.logs
            for write in audit.take_in(evidence, log.cluster, log.news())
        ]
        self.convict(judges.two_leaders(evidence, fresh))
        self.convict(judges.left_behind(evidence.removed[self.judged :]))
        self.judged = len(evidence.removed)

    async def read_conditions(self) -> None:
        """Judge what custom resources say."""
        for resource in {each.resource for each in self.stage.wanted.values()}:
            listing = await self.stage.hub.client.list(resource, deadline=READ_SECONDS)
            at = time.time()
            by_key = {(each["metadata"]["name"]): each for each in listing.items}
            for wanted in self.stage.wanted.values():
                manifest = by_key.get(wanted.key.name)
                if wanted.resource == resource and manifest is not None:
                    self.judge_conditions(wanted, manifest, at)
        self.looks += 1

    def judge_conditions(self, wanted: Wanted, manifest: Object, at: float) -> None:
        """Judge what one custom resource says."""
        evidence = self.stage.evidence
        self.convict(judges.untrue(evidence, conditions(wanted, manifest, at)))
        seconds = judges.unanswered_seconds(evidence, wanted.spoke, at)
        self.silent_looks += seconds > judges.SILENCE_SECONDS

    async def read_foreign(self, cluster: str) -> None:
        """Judge whether foreign objects are as they were."""
        found = await foreign.sight(self.stage.client(cluster), cluster)
        self.convict(judges.touched(self.before[cluster], found))

    async def conclude(self) -> None:
        """Judge everything once more, with all that is known now."""
        self.read_audits()
        self.convict(judges.two_leaders(self.stage.evidence, self.stage.evidence.writes))
        for cluster in self.before:
            await self.read_foreign(cluster)


def conditions(wanted: Wanted, manifest: Object, at: float) -> list[Said]:
    """What a custom resource says of itself."""
    return [
        Said(at, wanted.title, wanted.spoke, each["type"], each["status"])
        for each in items(manifest, "status", "conditions")
    ]
