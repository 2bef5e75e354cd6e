"""Repairs what others change, as soon as a watch tells of it, and no faster than peace allows."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.apply.change_set import ChangeSet
from knfleet.apply.engine import Engine
from knfleet.apply.observe.drift import Drift, DriftConflict, DriftConflicts, drift
from knfleet.apply.observe.metadata import is_newer
from knfleet.apply.observe.watches import MemberChange, SetWatch
from knfleet.apply.refs import Ref
from knfleet.kube.errors import KubeError

RETRY_SECONDS = 5.0


class Repair(Struct, frozen=True):
    """One object that others changed, and what was done about it."""

    drift: Drift
    changes: ChangeSet
    """What the repair did, with the changes of others that were repaired at the same time."""
    conflict: DriftConflict | None = None


class Repairer:
    """Repairs the members of one set that are watched."""

    def __init__(
        self,
        engine: Engine,
        watch: SetWatch,
        conflicts: DriftConflicts,
        report: Callable[[Repair], None],
    ) -> None:
        self.engine = engine
        self.conflicts = conflicts
        self.report = report
        self.objects: Sequence[Object] = ()
        self.drifts: dict[Ref, Drift] = {}
        self.woken = asyncio.Event()
        self.repaired = 0
        watch.on_change(self.notice)

    def guard(self, objects: Sequence[Object]) -> None:
        """From now on these objects must be as they are applied; with none, nothing is repaired."""
        self.objects = objects
        self.drifts.clear()

    def notice(self, noticed: MemberChange) -> None:
        """Handle a change; what we wrote ourselves, or have not applied yet, is no drift."""
        desired = self.engine.prepared_objects(self.objects).get(noticed.ref)
        record = self.engine.applied_objects.records.get(noticed.ref)
        if desired is None or record is None or record.digest != desired.digest:
            return
        if not is_newer(noticed.version, record.version):
            return
        found = drift(desired, noticed.observed, self.engine.context())
        if found is None:
            self.drifts.pop(noticed.ref, None)
            return
        self.drifts[noticed.ref] = found
        self.woken.set()

    async def run(self) -> None:
        """Repair until cancelled."""
        while True:
            self.woken.clear()
            waits = {ref: self.conflicts.wait_seconds(ref) for ref in self.drifts}
            due = [ref for ref, seconds in waits.items() if seconds <= 0]
            if due:
                await self.repair({ref: self.drifts.pop(ref) for ref in due})
                continue
            await self.wait(min(waits.values(), default=None))

    async def wait(self, seconds: float | None) -> None:
        """Wait for the next change, or for the end of a delay."""
        try:
            async with asyncio.timeout(seconds):
                await self.woken.wait()
        except TimeoutError:
            pass

    async def repair(self, drifts: dict[Ref, Drift]) -> None:
        """Apply some objects again, and tell of it."""
        try:
            changes = await self.engine.apply(self.objects, only=drifts.keys())
        except KubeError:
            # The cluster is away; what was changed is still to be repaired when it is back.
            self.drifts = {**drifts, **self.drifts}
            await asyncio.sleep(RETRY_SECONDS)
            return
        self.repaired += len(drifts)
        for each in drifts.values():
            self.report(Repair(each, changes, self.conflicts.note(each)))
