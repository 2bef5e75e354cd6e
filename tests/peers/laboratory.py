"""Brings both outcomes of every sample together: the Knative Operator's, kept or seen, and ours."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.kube.client.verbs import Client
from testbed.clusters import Lent, Pool
from testbed.peers.goproject import GoProject, go_project, modules_digest
from testbed.peers.operator import observe, silenced
from testbed.peers.samples import Sample
from tests.peers import golden
from tests.peers.comparison import Difference, compare
from tests.peers.differences import DELIBERATE
from tests.peers.ours import Ours
from tests.peers.store import Store

LANES = 3
"""Clusters on which the Knative Operator works at the same time."""
EXTENTS = ("quick", "all")


class Compared(Struct, frozen=True):
    """How the two outcomes of one sample differ."""

    objects: int
    """So many of the Knative Operator's were compared."""
    problem: str
    """Why the Knative Operator did not install the sample, if so."""
    differences: list[Difference]
    digest: str = ""
    """Of our outcome, for the record."""

    def unexpected(self) -> list[str]:
        """The differences that are not listed."""
        found = self.differences
        return [str(each) for each in found if not any(d.covers(each) for d in DELIBERATE)]

    def unseen(self, sample: str) -> list[str]:
        """The listed differences that this sample should show, and does not."""
        return [
            deliberate.reason
            for deliberate in DELIBERATE
            if deliberate.shown_by == sample
            and not any(deliberate.covers(each) for each in self.differences)
        ]


def chosen(samples: Sequence[Sample], store: Store) -> list[Sample]:
    """The samples to compare: all, or a few and those whose outcome is known already."""
    extent = os.environ.get("KNFLEET_PEERS", "quick")
    assert extent in EXTENTS, f"KNFLEET_PEERS={extent!r} is not one of {', '.join(EXTENTS)}"
    return [each for each in samples if extent == "all" or each.quick or store.has(each)]


async def compare_all(
    pool: Pool, samples: Sequence[Sample], folder: Path, progress: ProgressReporter
) -> dict[str, Compared]:
    """Both outcomes of the samples that were chosen, by name."""
    project = await go_project(progress)
    store = Store(project)
    wanted = chosen(samples, store)
    missing = [sample for sample in wanted if not store.has(sample)]
    lent = await pool.lend(1 + min(LANES, len(missing)))
    with silenced():
        async with asyncio.TaskGroup() as group:
            for one in lent[1:]:
                group.create_task(observe_some(pool, project, one, missing, folder, progress))
    found: dict[str, Compared] = {}
    async with Client(lent[0].connection) as client:
        ours = Ours(project.kodata, client, folder / "ours")
        for sample in wanted:
            theirs = store.get(sample)
            assert theirs is not None, f"{store.path(sample)} is damaged; remove it"
            mine = await ours.outcome(sample)
            given = msgspec.json.encode(sample.manifest).decode()
            differences = compare(mine, theirs, given)
            digest = golden.digest(sample, mine)
            found[sample.name] = Compared(len(theirs.objects), theirs.problem, differences, digest)
    if len(found) == len(samples):
        record(found)
    return found


def record(found: Mapping[str, Compared]) -> None:
    """Keep which outcomes of ours were compared and are as they should be."""
    golden.write(
        modules_digest(),
        {
            name: each.digest
            for name, each in found.items()
            if not each.unexpected() and not each.unseen(name)
        },
    )


async def observe_some(
    pool: Pool,
    project: GoProject,
    lent: Lent,
    missing: list[Sample],
    folder: Path,
    progress: ProgressReporter,
) -> None:
    """Let the Knative Operator install one missing sample after the other on a cluster."""
    store = Store(project)
    while missing:
        sample = missing.pop(0)
        began = time.monotonic()
        outcome = await observe(project, sample, lent, folder / "theirs" / sample.name)
        store.put(sample, outcome)
        seconds = time.monotonic() - began
        result = outcome.problem or f"{len(outcome.objects)} objects"
        progress.report(f"{sample.name}: {result[:100]} ({seconds:.0f} s, {len(missing)} to do)")
        await pool.clean(lent.name)
