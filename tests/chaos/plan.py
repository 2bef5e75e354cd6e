"""What is done to a fleet, and when: drawn from a seed, so that the same seed does the same again.

Faults are dealt from shuffled packs, so that every sort comes before any comes again too often.
Two faults never strike the same place at once, and the last part of the time is left in peace.
"""

from collections.abc import Sequence
from enum import StrEnum
from random import Random

from msgspec import Struct

FIRST_SECONDS = 3.0
PEACE_SECONDS = 120.0
"""How long the end is without faults, of a long run; of a short one it is a third."""
PAUSES = (1.0, 7.0)
"""How long after one fault the next begins."""
CALM_SECONDS = (35.0, 85.0)
"""How long hub and operators are left alone between two faults, so that they can be judged."""


class Place(StrEnum):
    """What a fault strikes."""

    SPOKE = "spoke"
    OBJECTS = "objects"
    """What is installed on a spoke; its API server must answer for that."""
    RESOURCE = "resource"
    """A custom resource on the hub."""
    CENTRE = "centre"
    """The hub and the operators."""


class Sort(Struct, frozen=True):
    """A sort of fault."""

    name: str
    place: Place
    seconds: tuple[float, float] = (0.0, 0.0)
    cards: int = 1
    """How often it is in the pack."""
    stops_server: bool = False
    """Whether the API server itself answers nobody meanwhile."""


SORTS = (
    Sort("freeze", Place.SPOKE, (8, 55), cards=2, stops_server=True),
    Sort("kill", Place.SPOKE, (3, 45), cards=2, stops_server=True),
    Sort("refuse", Place.SPOKE, (5, 50)),
    Sort("blackhole", Place.SPOKE, (8, 55), cards=2),
    Sort("slow", Place.SPOKE, (15, 45)),
    Sort("throttle", Place.SPOKE, (8, 40)),
    Sort("revoke", Place.SPOKE, (5, 45)),
    Sort("edit", Place.OBJECTS, cards=6),
    Sort("change", Place.RESOURCE, cards=3),
    Sort("upgrade", Place.RESOURCE),
    Sort("recreate", Place.RESOURCE, cards=2),
    Sort("kill-leader", Place.CENTRE, (1, 20)),
    Sort("freeze-leader", Place.CENTRE, (12, 30)),
    Sort("cut-leader", Place.CENTRE, (12, 30)),
    Sort("stop-leader", Place.CENTRE, (1, 10)),
    Sort("freeze-hub", Place.CENTRE, (4, 20)),
    Sort("kill-hub", Place.CENTRE, (2, 15)),
)
BY_NAME = {sort.name: sort for sort in SORTS}


class Step(Struct, frozen=True):
    """One fault: from when, for how long, and on what."""

    at: float
    fault: str
    target: str
    seconds: float
    draw: int
    """Decides what the fault leaves open, such as which object is edited."""

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.fault} {self.target}{lasting}"


class Plan(Struct, frozen=True):
    """All faults of a run, the first one first."""

    seed: int
    seconds: float
    peace_at: float
    """From when on there is no fault any more."""
    steps: tuple[Step, ...]


class Busy:
    """Which places are struck, and until when."""

    def __init__(self, targets: dict[Place, Sequence[str]]) -> None:
        self.targets = targets
        self.until: dict[tuple[Place, str], float] = {}
        self.silent_until: dict[str, float] = {}

    def free(self, sort: Sort, at: float) -> list[str]:
        """Where a fault may strike at a moment."""
        return [
            target
            for target in self.targets[sort.place]
            if self.until.get((sort.place, target), 0.0) <= at
            and not (sort.place is Place.OBJECTS and self.silent_until.get(target, 0.0) > at)
        ]

    def strike(self, sort: Sort, target: str, end: float, calm_seconds: float) -> None:
        """A place is struck until a moment; the centre is then left in peace for a while."""
        rest = calm_seconds if sort.place is Place.CENTRE else 0.0
        self.until[sort.place, target] = end + rest
        if sort.stops_server:
            self.silent_until[target] = end


class Pack:
    """Some sorts of faults, dealt in random order, and shuffled again when all are played."""

    def __init__(self, random: Random, sorts: Sequence[Sort]) -> None:
        self.random = random
        self.sorts = [sort for sort in sorts for _ in range(sort.cards)]
        self.left: list[Sort] = []

    def deal(self, busy: Busy, at: float) -> Sort | None:
        """The next fault that can be played at a moment; None when all places are struck."""
        if not self.left:
            self.left = self.random.sample(self.sorts, len(self.sorts))
        playable = [sort for sort in self.left if busy.free(sort, at)]
        if not playable:
            return None
        self.left.remove(playable[0])
        return playable[0]


def plan(seed: int, minutes: float, spokes: Sequence[str], resources: Sequence[str]) -> Plan:
    """The faults of a run on some spokes and custom resources."""
    targets = {
        Place.SPOKE: spokes,
        Place.OBJECTS: spokes,
        Place.RESOURCE: resources,
        Place.CENTRE: ["centre"],
    }
    return dealt(seed, minutes, targets, SORTS)


def dealt(
    seed: int, minutes: float, targets: dict[Place, Sequence[str]], sorts: Sequence[Sort]
) -> Plan:
    """The faults of a run, of some sorts and on some targets."""
    random = Random(seed)
    seconds = minutes * 60
    peace_at = seconds - min(PEACE_SECONDS, seconds / 3)
    busy = Busy(targets)
    # The centre has a pack of its own: it is seldom free, and would hold the others up.
    centre = Pack(random, [sort for sort in sorts if sort.place is Place.CENTRE])
    others = Pack(random, [sort for sort in sorts if sort.place is not Place.CENTRE])
    steps: list[Step] = []
    at = FIRST_SECONDS
    while at < peace_at:
        sort = centre.deal(busy, at) or others.deal(busy, at)
        if sort is not None:
            target = random.choice(busy.free(sort, at))
            lasting = min(round(random.uniform(*sort.seconds), 1), round(peace_at - at, 1))
            busy.strike(sort, target, at + lasting, random.uniform(*CALM_SECONDS))
            steps.append(Step(round(at, 1), sort.name, target, lasting, random.randrange(2**32)))
        at += random.uniform(*PAUSES)
    return Plan(seed, seconds, peace_at, tuple(steps))
