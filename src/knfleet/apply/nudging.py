"""Workloads that the controllers of their cluster have lost sight of.

Such a controller repeats what fails, a few times, ever later, and then gives up; it looks again
when the workload changes, or after half a day. While an API server comes and goes, all of that may
happen within a minute. So a workload whose newest spec nobody has looked at for a while gets a
label, which goes again at once.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from knfleet.api.meta import Object
from knfleet.apply.readiness import is_observed
from knfleet.apply.refs import GroupKind, Ref
from knfleet.apply.watching import SetWatch
from knfleet.kube.errors import KubeError

KINDS = frozenset(GroupKind("apps", name) for name in ("DaemonSet", "Deployment", "StatefulSet"))
"""Kinds whose status says which spec their controller has seen."""
LABEL = "knfleet.dev/look-again"
"""Not an annotation, which ReplicaSets would copy."""
PATIENCE_SECONDS = 30.0
"""Controllers look at a change within milliseconds."""


class Nudges:
    """Has controllers look again at members of one set."""

    def __init__(self, watch: SetWatch, now: Callable[[], float] = time.monotonic) -> None:
        self.watch = watch
        self.now = now
        self.since: dict[Ref, float] = {}
        """Since when workloads are unseen, or since they were last nudged."""

    @property
    def is_waiting(self) -> bool:
        """Whether there are workloads that may have to be nudged."""
        return bool(self.since)

    def due(self, found: Mapping[Ref, Object]) -> list[Ref]:
        """The workloads that nobody has looked at for too long."""
        now = self.now()
        unseen = [ref for ref, manifest in found.items() if is_unseen(ref, manifest)]
        self.since = {ref: self.since.get(ref, now) for ref in unseen}
        late = [ref for ref in unseen if now - self.since[ref] >= PATIENCE_SECONDS]
        self.since.update(dict.fromkeys(late, now))
        return sorted(late)

    async def look(self) -> list[Ref]:
        """Nudge what is due; what was nudged."""
        late = self.due(self.watch.found())
        done = await asyncio.gather(*map(self.nudge, late))
        return [ref for ref, is_done in zip(late, done, strict=True) if is_done]

    async def nudge(self, ref: Ref) -> bool:
        """Change a workload, and change it back; whether that was possible now."""
        resource = self.watch.informers[ref.group_kind].resource
        try:
            for value in ("true", None):
                patch: Object = {"metadata": {"labels": {LABEL: value}}}
                await self.watch.client.patch(resource, ref.key, patch)
        except KubeError:
            return False
        return True


def is_unseen(ref: Ref, manifest: Object) -> bool:
    """Whether the controller of a workload has not seen what it should be now."""
    is_leaving = bool(manifest["metadata"].get("deletionTimestamp"))
    return ref.group_kind in KINDS and not is_leaving and not is_observed(manifest)
