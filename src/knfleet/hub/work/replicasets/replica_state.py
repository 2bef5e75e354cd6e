"""How far the works of a replica set are, from what agents reported. Pure."""

from datetime import datetime

from msgspec import Struct

from knfleet.api.conditions import StandardCondition, find
from knfleet.api.meta import Key, Object
from knfleet.api.moments import as_moment
from knfleet.api.schema import ObjectMeta, decode
from knfleet.api.work.manifestwork import APPLIED, AVAILABLE, COMPLETE, DEGRADED, PROGRESSING
from knfleet.api.work.replicaset import PLACEMENT_NAME_LABEL, ROLLOUT_STARTED, TEMPLATE_HASH
from knfleet.hub.rollout.rollout_model import Progress, State


class ReplicaConditions(Struct, frozen=True):
    """What an agent reported."""

    conditions: list[StandardCondition] = []


class ReplicaWork(Struct, frozen=True):
    """The part of a work that says how far it is; the rest may be of another release."""

    metadata: ObjectMeta
    status: ReplicaConditions = ReplicaConditions()

    @property
    def key(self) -> Key:
        """Namespace, which is the cluster, and name."""
        return self.metadata.key

    @property
    def cluster(self) -> str:
        """The cluster that the work is for."""
        return self.metadata.namespace

    @property
    def placement(self) -> str:
        """The Placement that selected its cluster."""
        return self.metadata.labels.get(PLACEMENT_NAME_LABEL, "")

    @property
    def hash(self) -> str:
        """The template that it was made from."""
        return self.metadata.annotations.get(TEMPLATE_HASH, "")

    @property
    def started(self) -> datetime | None:
        """When it was made from that template."""
        text = self.metadata.annotations.get(ROLLOUT_STARTED, "")
        return as_moment(text) if text else None

    def reported(self, type_: str) -> StandardCondition | None:
        """A condition, unless it is about an older spec."""
        found = find(self.status.conditions, type_)
        if found is None or found.observed_generation < self.metadata.generation:
            return None
        return found

    def is_true(self, type_: str) -> bool:
        """Whether a condition about the current spec is True."""
        found = self.reported(type_)
        return found is not None and found.status == "True"


def replica_work(manifest: Object) -> ReplicaWork:
    """What is read of a work."""
    return decode(manifest, ReplicaWork)


def progress_of(work: ReplicaWork, wanted_hash: str, *, has_progress_rule: bool) -> Progress:
    """How far a cluster is; `has_progress_rule` says whether agents report progress."""
    if work.hash != wanted_hash:
        return Progress(State.TO_APPLY)
    applied = work.reported(APPLIED)
    if applied is not None and (applied.status == "False" or work.is_true(DEGRADED)):
        return Progress(State.FAILED, work.started)
    if applied is not None and (types := success(work, has_progress_rule=has_progress_rule)):
        return Progress(State.SUCCEEDED, since(work, *types))
    return Progress(State.PROGRESSING, work.started)


def success(work: ReplicaWork, *, has_progress_rule: bool) -> tuple[str, ...]:
    """The conditions by which a work has succeeded; none while it has not."""
    if work.is_true(COMPLETE):
        return (COMPLETE,)
    if has_progress_rule:
        progressing = work.reported(PROGRESSING)
        is_over = progressing is not None and progressing.status == "False"
        return (PROGRESSING,) if is_over else ()
    is_there = work.is_true(APPLIED) and work.is_true(AVAILABLE)
    return (APPLIED, AVAILABLE) if is_there else ()


def since(work: ReplicaWork, *types: str) -> datetime | None:
    """When conditions came to be as they are, but not before the work was made as it is."""
    moments = [work.started]
    for type_ in types:
        found = work.reported(type_)
        if found is not None and found.last_transition_time:
            moments.append(as_moment(found.last_transition_time))
    known = [each for each in moments if each is not None]
    return max(known, default=None)
