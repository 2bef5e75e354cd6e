"""What the rollout engine is given and what it answers, in words that fit any kind of change."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Literal

from msgspec import Struct


class State(StrEnum):
    """How far a change is on one cluster."""

    TO_APPLY = "ToApply"
    """The cluster does not have the change yet."""
    PROGRESSING = "Progressing"
    """The cluster has the change, and works on it."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimeOut"
    """Nothing is expected any more, for a reason that is known elsewhere."""
    SKIPPED = "Skip"
    """The cluster needs nothing: it counts as done."""


class Progress(Struct, frozen=True):
    """How far a change is on one cluster, and since when."""

    state: State
    since: datetime | None = None


class Group(Struct, frozen=True):
    """Clusters that a Placement decided on together."""

    index: int
    clusters: tuple[str, ...]
    name: str = ""


class GroupReference(Struct, frozen=True):
    """Groups by name; without a name, one by index."""

    name: str = ""
    index: int = 0

    def selects(self, group: Group) -> bool:
        """Whether a group is meant."""
        return group.name == self.name if self.name else group.index == self.index

    def __str__(self) -> str:
        return self.name or f"number {self.index}"


class Strategy(Struct, frozen=True):
    """In which order clusters get a change, and what stops it."""

    type: Literal["All", "Progressive", "ProgressivePerGroup"] = "All"
    mandatory: tuple[GroupReference, ...] = ()
    """Groups that get the change first, in this order, and tolerate no failure."""
    max_concurrency: int | str | None = None
    """How many clusters are changed at a time: a number, a percentage, or all."""
    max_failures: int | str = 0
    """How many clusters may fail: a number or a percentage."""
    min_success_seconds: float = 0.0
    """How long a cluster must have succeeded to count as done."""
    deadline_seconds: float | None = None
    """How long a cluster may take; None: as long as it takes."""


class Plan(Struct, frozen=True):
    """What to do now. Every cluster is in exactly one of the lists."""

    act: tuple[str, ...] = ()
    """Clusters to change now, in this order."""
    progressing: tuple[str, ...] = ()
    """Clusters that have the change, and are not done."""
    waiting: Mapping[str, str] = {}
    """Clusters that must not get the change yet, and why."""
    failed: tuple[str, ...] = ()
    timed_out: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Clusters that are no longer in any group; they lose what they have, whatever else happens."""
    stopped: str = ""
    """Why nothing new is begun, if that is so."""
    missing_groups: tuple[str, ...] = ()
    """Mandatory groups that do not exist at present."""
    next_look: datetime | None = None
    """When time alone changes the answer."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do or to wait for; clusters may have failed."""
        return not (self.act or self.progressing or self.waiting)

    @property
    def total(self) -> int:
        """How many clusters the change is for."""
        lists = (self.act, self.progressing, self.waiting, self.failed, self.timed_out, self.done)
        return sum(len(each) for each in lists)
