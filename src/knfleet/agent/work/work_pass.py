"""What is remembered of a work between looks at it, and one such look."""

from collections.abc import Iterable

from msgspec import Struct

from knfleet.agent.work.act.removal import Leftover
from knfleet.agent.work.desired.manifests import WorkManifest, read_manifests
from knfleet.agent.work.plan import Entry
from knfleet.agent.work.source import Work
from knfleet.api.meta import Object
from knfleet.api.schema import DecodeError
from knfleet.api.work.appliedmanifestwork import AppliedManifestWork
from knfleet.api.work.manifestwork import ManifestWorkSpec, WorkExecutor
from knfleet.runtime.controller import Result

NEVER = float("inf")
POKE_SECONDS = 1.0
"""A manifest that failed is tried again by an event at most so often."""
SOON_SECONDS = 0.05


class WorkState(Struct):
    """What is remembered of one work."""

    uid: str
    generation: int = -1
    """That the entries are about."""
    entries: list[Entry] = []
    flaw: str = ""
    """Why the work cannot be read."""
    executor: WorkExecutor | None = None
    poked: bool = False
    """Whether something changed that manifests may have waited for."""
    swept: str = ""
    """UID of the AppliedManifestWork whose leftovers were looked for in the cluster."""
    leftovers: list[Leftover] = []
    reported_at: float = 0.0
    held_since: float | None = None

    def kinds(self) -> set[str]:
        """Kinds of the objects that are written, as an AppliedManifestWork notes them."""
        return {
            f"{each.resource.api_version}/{each.resource.kind}"
            for each in self.entries
            if each.resource is not None and each.strategy != "ReadOnly"
        }


class Bodies:
    """The manifests of a work, unpacked when the first one is needed."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.unpacked: ManifestWorkSpec | None = None
        self.read: list[WorkManifest] = []

    def spec(self) -> ManifestWorkSpec:
        """What the work wants; nothing when it cannot be read."""
        if self.unpacked is None:
            try:
                self.unpacked = self.work.spec()
            except DecodeError:
                self.unpacked = ManifestWorkSpec()
            self.read = read_manifests(self.unpacked.workload.manifests)
        return self.unpacked

    def manifests(self) -> list[WorkManifest]:
        """All manifests."""
        self.spec()
        return self.read

    def body(self, ordinal: int) -> Object:
        """The manifest at an index."""
        return self.manifests()[ordinal].body


class WorkPass(Struct):
    """One look at a work."""

    work: Work
    state: WorkState
    applied: AppliedManifestWork
    bodies: Bodies
    now: float

    @property
    def name(self) -> str:
        """Name of the work."""
        return self.work.name

    @property
    def owner(self) -> str:
        """UID of the AppliedManifestWork."""
        return self.applied.metadata.uid

    def poke(self) -> None:
        """Have manifests that failed tried again soon: what they wait for may be there."""
        for each in self.state.entries:
            each.retry_at = min(each.retry_at, each.tried_at + POKE_SECONDS)

    def result(self, entries: Iterable[Entry]) -> Result:
        """When to look again."""
        waits = [each.retry_at - self.now for each in entries if each.retry_at and not each.flaw]
        soonest = min(waits, default=NEVER)
        return Result.never() if soonest == NEVER else Result.after(max(soonest, SOON_SECONDS))
