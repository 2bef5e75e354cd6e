"""Watching a set on a real API server: progress, idle passes, repairs and conflicts."""

import asyncio
import random
from collections.abc import AsyncGenerator

import pytest

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, JOBS, SERVICES
from knfleet.api.meta import Key, Object
from knfleet.apply.engine import Engine
from knfleet.apply.observe.drift import ConflictRules, DriftConflicts
from knfleet.apply.observe.repair import Repair, Repairer
from knfleet.apply.observe.watches import SetWatch
from knfleet.apply.refs import Ref
from knfleet.kube.client.verbs import Client
from testbed.waiting import until
from tests.server.apply.conftest import QUICK, Bench
from tests.support.objects import SET, config_map, deployment, job, service

HOLD: Object = {"metadata": {"annotations": {"dev.knfleet.dev/hold": "true"}}}


class Guard:
    """A set that is watched and repaired."""

    def __init__(self, bench: Bench, rules: ConflictRules) -> None:
        self.watch = SetWatch(bench.client, SET)
        self.engine = Engine(bench.client, SET, watch=self.watch, deadlines=QUICK)
        self.repairs: list[Repair] = []
        conflicts = DriftConflicts(asyncio.get_running_loop().time, rules)
        self.repairer = Repairer(self.engine, self.watch, conflicts, self.repairs.append)

    async def install(self, objects: list[Object]) -> None:
        """Apply, and watch from now on."""
        assert (await self.engine.apply(objects)).settled
        self.watch.follow([DEPLOYMENTS, CONFIG_MAPS, SERVICES, JOBS])
        await self.watch.synced()
        self.repairer.guard(objects)

    async def told(self, count: int) -> None:
        """Wait for so many repairs."""
        await until(lambda: len(self.repairs) >= count, f"{count} repairs, not {self.repairs}")


@pytest.fixture
async def guard(bench: Bench) -> AsyncGenerator[Guard, None]:
    """A set that is watched and repaired while the test runs."""
    guard = Guard(bench, ConflictRules(repairs=3, first_delay_seconds=1000))
    running = [asyncio.create_task(each.run()) for each in (guard.watch, guard.repairer)]
    yield guard
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_an_idle_pass_asks_nothing_of_the_cluster(bench: Bench, guard: Guard) -> None:
    """Neither reads nor writes, also when statuses change meanwhile."""
    objects = [deployment("web"), service("web"), config_map("c", a="1")]
    await guard.install(objects)

    async def is_ready() -> bool:
        return guard.watch.summary(guard.engine.prepared_objects(objects)).is_ready

    await until(is_ready, "the Deployment is ready")
    before = bench.requests.total

    changes = await guard.engine.apply(objects)

    assert bench.requests.total == before
    assert len(changes.unchanged) == 3


async def test_the_first_pass_of_a_new_process_reads_from_its_watches(
    bench: Bench, guard: Guard
) -> None:
    """Nothing but the parent is asked for, and nothing is written."""
    objects = [deployment("web"), config_map("c", a="1")]
    await guard.install(objects)
    reborn = Engine(bench.client, SET, watch=guard.watch, deadlines=QUICK)
    await reborn.kinds(objects)
    before = bench.requests.total

    changes = await reborn.apply(objects)

    assert not changes.wrote
    assert bench.requests.total == before + 1


async def test_pruning_asks_for_nothing_that_watches_know(bench: Bench, guard: Guard) -> None:
    """When nothing must go, only the parent is read and written; what must go, goes."""
    objects = [deployment("web"), config_map("c", a="1"), config_map("old")]
    await guard.install(objects)
    await guard.engine.prune(objects)
    before = bench.requests.verbs.copy()
    guard.engine.pruner.forget()

    assert not (await guard.engine.prune(objects)).wrote
    assert bench.requests.verbs - before == {"get": 1}

    rest = objects[:-1]
    assert (await guard.engine.apply(rest)).settled
    changes = await guard.engine.prune(rest)

    assert [ref.name for ref in changes.deleted] == ["old"]


async def test_progress_is_told_until_everything_is_ready(
    bench: Bench, guard: Guard, stranger: Client
) -> None:
    """With numbers and names; a Deployment that is held keeps it going."""
    held = deployment("held", replicas=2)
    held["metadata"]["annotations"] = dict(HOLD["metadata"]["annotations"])
    objects = [deployment("web"), held, job("migrate"), config_map("c")]
    await guard.install(objects)
    told: list[str] = []

    async def follow() -> None:
        async for summary in guard.watch.progress(guard.engine.prepared_objects(objects)):
            told.append(str(summary))

    following = asyncio.create_task(follow())
    await until(
        lambda: told[-1:] == ["2 of 3 ready; Deployment home/held 0/2: 0 of 2 available"],
        "all but one are ready",
    )
    guard.repairer.guard(())
    released = {"metadata": {"annotations": {"dev.knfleet.dev/hold": None}}}
    await stranger.patch(DEPLOYMENTS, Key("home", "held"), released)
    await asyncio.wait_for(following, 60)

    assert told[-1] == "3 of 3 ready"


async def test_an_edit_is_undone_and_told(guard: Guard, bench: Bench, stranger: Client) -> None:
    """Which field, and whose field manager."""
    await guard.install([config_map("c", a="1", b="2")])

    await stranger.patch(CONFIG_MAPS, Key("home", "c"), {"data": {"a": "wrong"}})
    await guard.told(1)

    assert str(guard.repairs[0].drift) == "ConfigMap home/c was changed: data.a by stranger"
    assert [ref.name for ref in guard.repairs[0].changes.configured] == ["c"]
    assert (await bench.get(CONFIG_MAPS, "c"))["data"] == {"a": "1", "b": "2"}


async def test_a_deleted_object_comes_back(guard: Guard, bench: Bench, stranger: Client) -> None:
    """Whatever its kind."""
    await guard.install([deployment("web"), service("web"), config_map("c")])

    await stranger.delete(DEPLOYMENTS, Key("home", "web"), propagation="Background")
    await stranger.delete(SERVICES, Key("home", "web"))
    await guard.told(2)

    assert {str(each.drift) for each in guard.repairs} == {
        "Deployment home/web was deleted",
        "Service home/web was deleted",
    }
    assert await bench.exists(DEPLOYMENTS, "web")
    assert await bench.exists(SERVICES, "web")


async def test_what_others_add_is_no_drift(guard: Guard, bench: Bench, stranger: Client) -> None:
    """And neither is what we write ourselves."""
    first = [config_map("c", a="1"), config_map("d", a="1")]
    await guard.install(first)
    await stranger.patch(CONFIG_MAPS, Key("home", "c"), {"data": {"theirs": "x"}})
    second = [config_map("c", a="2"), config_map("d", a="1")]
    await guard.engine.apply(second)
    guard.repairer.guard(second)

    await stranger.patch(CONFIG_MAPS, Key("home", "d"), {"data": {"a": "wrong"}})
    await guard.told(1)

    assert [each.drift.ref.name for each in guard.repairs] == ["d"]
    assert (await bench.get(CONFIG_MAPS, "c"))["data"] == {"a": "2", "theirs": "x"}


async def test_a_drift_conflict_is_reported_and_slowed(
    guard: Guard, bench: Bench, stranger: Client
) -> None:
    """After a few repairs the other one may have it for a while."""
    await guard.install([config_map("c", a="1")])

    for count in range(1, 5):
        await stranger.patch(CONFIG_MAPS, Key("home", "c"), {"data": {"a": f"no {count}"}})
        await guard.told(count)
    conflict = guard.repairs[-1].conflict
    await stranger.patch(CONFIG_MAPS, Key("home", "c"), {"data": {"a": "no 5"}})
    key = Ref("", "ConfigMap", "home", "c")
    await until(lambda: key in guard.repairer.drifts, "the next change is noticed")

    assert [each.conflict for each in guard.repairs[:3]] == [None] * 3
    assert conflict is not None
    assert (conflict.manager, conflict.field, conflict.ref) == ("stranger", "data.a", key)
    assert (await bench.get(CONFIG_MAPS, "c"))["data"] == {"a": "no 5"}


async def test_fifty_random_edits_and_deletions_are_repaired(
    guard: Guard, bench: Bench, stranger: Client
) -> None:
    """At the end everything is as it was applied."""
    objects = [config_map(f"c{n}", a="1", b="2") for n in range(10)] + [service("web")]
    await guard.install(objects)
    chosen = random.Random(7)

    async def vandalize(name: str) -> None:
        key = Key("home", name)
        if chosen.random() < 0.3:
            await stranger.delete(CONFIG_MAPS, key)
        else:
            field = chosen.choice("ab")
            value = chosen.choice([None, "wrong"])
            await stranger.patch(CONFIG_MAPS, key, {"data": {field: value}})

    for round_ in range(5):
        names = [f"c{n}" for n in range(10)]
        await asyncio.gather(*map(vandalize, names))
        await guard.told(10 * (round_ + 1))
        guard.repairer.conflicts.histories.clear()

    found = (await bench.client.list(CONFIG_MAPS, "home", labels=SET.selector)).items
    assert {each["metadata"]["name"]: each["data"] for each in found} == {
        f"c{n}": {"a": "1", "b": "2"} for n in range(10)
    }
    assert guard.repairer.repaired == 50


async def test_an_uninstall_is_not_repaired(guard: Guard, bench: Bench) -> None:
    """Deletions of our own are no drift."""
    await guard.install([config_map("c"), service("web")])

    changes = await guard.engine.uninstall()

    assert changes.settled
    assert guard.repairs == []
    assert not await bench.exists(CONFIG_MAPS, "c")
