"""When a workload counts as lost to its controller."""

from typing import cast

from knfleet.api.meta import Object
from knfleet.apply.nudging import PATIENCE_SECONDS, Nudges
from knfleet.apply.refs import Ref
from knfleet.apply.watching import SetWatch
from tests.support.objects import deployment, job


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def workload(generation: int, observed: int, **meta: str) -> dict[Ref, Object]:
    """A Deployment, and what its controller has seen of it."""
    made = deployment("w")
    made["metadata"] |= {"generation": generation, **meta}
    made["status"] = {"observedGeneration": observed} if observed else {}
    return {Ref.of(made): made}


def nudges(clock: Clock) -> Nudges:
    """Without anything to nudge."""
    return Nudges(cast("SetWatch", None), clock)


def test_a_workload_is_due_when_nobody_saw_it_for_a_while_and_again_after_that() -> None:
    """Not before, and not all the time."""
    clock = Clock()
    lost = nudges(clock)
    unseen = workload(2, 1)

    assert lost.due(unseen) == []
    assert lost.is_waiting
    clock.seconds = PATIENCE_SECONDS - 1
    assert lost.due(unseen) == []
    clock.seconds = PATIENCE_SECONDS
    assert lost.due(unseen) == [*unseen]
    clock.seconds = PATIENCE_SECONDS + 1
    assert lost.due(unseen) == []
    clock.seconds = 2 * PATIENCE_SECONDS
    assert lost.due(unseen) == [*unseen]


def test_one_that_was_seen_begins_anew() -> None:
    """However long it was unseen before."""
    clock = Clock()
    lost = nudges(clock)
    lost.due(workload(1, 0))
    clock.seconds = PATIENCE_SECONDS

    assert lost.due(workload(1, 1)) == []
    assert not lost.is_waiting
    clock.seconds += 1
    assert lost.due(workload(2, 1)) == []


def test_what_leaves_and_what_tells_nothing_is_never_due() -> None:
    """Jobs do not say what their controller has seen."""
    clock = Clock()
    lost = nudges(clock)
    leaving = workload(1, 0, deletionTimestamp="2026-01-01T00:00:00Z")
    made = job("j")
    made["metadata"]["generation"] = 1
    found = {**leaving, Ref.of(made): made}

    lost.due(found)
    clock.seconds = PATIENCE_SECONDS
    assert lost.due(found) == []
    assert not lost.is_waiting
