"""Waiting: what counts as done, what is told meanwhile, and how it ends."""

import asyncio
from datetime import UTC, datetime

import pytest

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.knative.conditions import DEPLOYMENTS_AVAILABLE, READY
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.cli.knative.wait import Waiter
from knfleet.cli.output import PlainProgress
from knfleet.kube.client.verbs import Client
from knfleet.view.fleet_reader import HubObjects
from knfleet.view.wait_goals import WaitGoal, WaitProgress, waiting
from testbed.fakes.fleet import Fleet
from tests.support.overview_samples import condition, install, managed

NOW = datetime(2026, 11, 16, 4, tzinfo=UTC)
WAITING = "Waiting on deployments: a; 4 of 5 ready: a 0/1"
BUSY = [condition(type_, "False", "NotReady", WAITING) for type_ in (READY, DEPLOYMENTS_AVAILABLE)]
DONE = condition(READY, "True")
NAMES = ("KnativeServing/knative/a", "KnativeServing/knative/b")


def look(goal: str, *servings: Object) -> WaitProgress:
    """How far the waiting for two installations is."""
    return waiting(HubObjects(servings=list(servings)), NAMES, WaitGoal.parse(goal), NOW)


def test_what_is_ready_is_done_and_the_rest_is_told_with_counts() -> None:
    now = look("ready", install("a", DONE), install("b", *BUSY))

    assert (now.done, now.is_over) == (NAMES[:1], False)
    assert str(now) == (
        "1 of 2 ready; waiting for KnativeServing/knative/b (NotReady: workloads ready 4/5)"
    )


def test_a_spec_that_nobody_looked_at_is_not_ready() -> None:
    """Whoever changes a spec and waits must not be told what was before."""
    changed = install("a", DONE)
    changed["metadata"]["generation"] = 9

    assert look("ready", changed, install("b", DONE)).done == NAMES[1:]


def test_what_is_gone_is_removed_and_not_ready() -> None:
    assert look("removed", install("a", DONE)).done == NAMES[1:]
    assert "it is gone" in str(look("ready", install("a", DONE)))


@pytest.mark.parametrize(
    ("goal", "done"),
    [
        ("condition=Ready", NAMES[:1]),
        ("condition=Ready=false", NAMES[1:]),
        ("condition=Ready=Unknown", ()),
    ],
)
def test_any_condition_can_be_waited_for(goal: str, done: tuple[str, ...]) -> None:
    assert look(goal, install("a", DONE), install("b", *BUSY)).done == done


def test_clusters_are_waited_for_too() -> None:
    objects = HubObjects(clusters=[managed("edge-1"), managed("edge-2", "Unknown")])
    names = ("ManagedCluster/edge-1", "ManagedCluster/edge-2")

    assert waiting(objects, names, WaitGoal("ready"), NOW).done == names[:1]


@pytest.mark.parametrize("goal", ["", "gone", "condition", "condition=", "condition=Ready=maybe"])
def test_a_goal_that_is_none_gets_the_ones_that_there_are(goal: str) -> None:
    with pytest.raises(ValueError, match="ready, removed, condition=TYPE"):
        WaitGoal.parse(goal)


@pytest.fixture
def full(fleet: Fleet) -> Fleet:
    """A fake hub with one installation that is not ready."""
    for resource in (CLUSTERS, SERVINGS, EVENTINGS):
        fleet.hub.resources[resource.group, resource.version, resource.plural] = resource
        fleet.hub.objects[resource] = {}
    fleet.hub.put(SERVINGS, install("a", *BUSY))
    return fleet


class Heard(PlainProgress):
    """Progress that a test reads, and that lets something happen."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.stirred = asyncio.Event()

    def report(self, text: str) -> None:
        """Remember a line."""
        self.lines.append(text)
        self.stirred.set()


async def test_it_ends_when_the_watch_tells_that_all_is_ready(hub: Client, full: Fleet) -> None:
    """Progress has names and counts; nobody polls."""
    heard = Heard()

    async with asyncio.TaskGroup() as group:
        ending = group.create_task(Waiter(hub, WaitGoal("ready"), 30, heard).wait(()))
        await asyncio.wait_for(heard.stirred.wait(), 20)
        full.hub.requests.clear()
        full.hub.put(SERVINGS, install("a", DONE))

    assert ending.result().is_over
    assert full.hub.requests == []
    assert heard.lines[0].startswith("0 of 1 ready; waiting for KnativeServing/knative/a")
    assert heard.lines[-1].startswith("KnativeServing/knative/a ready after ")


async def test_it_ends_when_the_time_is_over(hub: Client, full: Fleet) -> None:
    ended = await Waiter(hub, WaitGoal("ready"), 0.01, None).wait(("a",))

    assert not ended.is_over


async def test_a_removal_is_seen(hub: Client, full: Fleet) -> None:
    heard = Heard()

    async with asyncio.TaskGroup() as group:
        ending = group.create_task(Waiter(hub, WaitGoal("removed"), 30, heard).wait(("knative/a",)))
        await asyncio.wait_for(heard.stirred.wait(), 20)
        full.hub.delete(SERVINGS, Key("knative", "a"))

    assert ending.result().done == NAMES[:1]
