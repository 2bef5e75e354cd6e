"""Random fleets and random events: what a rollout promises holds at every moment."""

from datetime import timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knfleet.hub.rollout.rollout_plan import concurrency
from tests.unit.hub.knativefleet.simulation import Machine, World

REVISIONS = ("1.20", "1.21", "1.22", "1.21+eventing", "1.23+eventing", "1.23")
STEPS = 60
LONG = 400


def work(world: World, chance: Random, _name: str) -> None:
    names = sorted(world.machines)
    for each in chance.sample(names, min(len(names), 3)):
        world.work(each)


def act(world: World, _chance: Random, _name: str) -> None:
    world.act()


def killed(world: World, chance: Random, _name: str) -> None:
    world.act(until=chance.randrange(3))


def wait(world: World, chance: Random, _name: str) -> None:
    world.now += timedelta(seconds=chance.choice([1, 20, 60, 700]))


def die(world: World, _chance: Random, name: str) -> None:
    if name:
        world.machines[name].is_alive = False


def notice(world: World, _chance: Random, name: str) -> None:
    if name:
        machine = world.machines[name]
        machine.is_known_dead = not machine.is_alive


def come_back(world: World, _chance: Random, name: str) -> None:
    if name:
        back(world.machines[name])


def join(world: World, chance: Random, _name: str) -> None:
    joined = f"j{len(world.machines)}-{chance.randrange(1000)}"
    world.machines[joined] = Machine(joined)
    world.waves[chance.randrange(len(world.waves))].append(joined)


def leave(world: World, _chance: Random, name: str) -> None:
    if len(world.machines) > 1:
        del world.machines[name]
        for wave in world.waves:
            wave[:] = [each for each in wave if each != name]


def change(world: World, chance: Random, _name: str) -> None:
    world.change(chance.choice(REVISIONS))


def break_revision(world: World, _chance: Random, name: str) -> None:
    world.broken.add((name, world.target))


def pause(world: World, _chance: Random, _name: str) -> None:
    world.paused = not world.paused


EVENTS = (
    *[work, act] * 8,
    *[killed] * 3,
    *[wait, die] * 2,
    *(notice, come_back, join, leave, change, break_revision, pause),
)
"""What may happen; what is in here more often happens more often."""


def back(machine: Machine) -> None:
    """A cluster answers again; its profile says so."""
    machine.is_alive, machine.is_known_dead = True, False


def settle(world: World) -> None:
    """Everything is in order again, and a user asks for one more revision: the fleet gets there."""
    for machine in world.machines.values():
        back(machine)
    world.broken.clear()
    world.paused = False
    world.change("1.22" if world.target != "1.22" else "1.23")
    for _ in range(LONG):
        for name in list(world.machines):
            world.work(name)
        plan = world.act()
        if plan.is_complete and not plan.writes and not plan.must_record and not plan.next_look:
            break
        world.now += timedelta(seconds=30)
    missing = [
        name
        for name, machine in world.machines.items()
        if {child.revision for child in machine.children.values()} != {world.target}
        or not all(child.is_settled for child in machine.children.values())
    ]
    assert not missing, missing
    assert all(
        child.installed == world.target
        for machine in world.machines.values()
        for child in machine.children.values()
    )


def simulate(seed: int) -> None:
    """One fleet's life."""
    chance = Random(seed)
    sizes = [chance.randrange(0, 5) for _ in range(chance.randrange(1, 4))]
    waves = [[f"c{w}-{i}" for i in range(size)] for w, size in enumerate(sizes)]
    total = sum(sizes)
    world = World(
        waves,
        concurrency(chance.randrange(1, 4), max(total, 1)),
        max_failures=chance.choice([0, 0, 1]),
        soak=chance.choice([0.0, 0.0, 90.0]),
        rollback_scope=chance.choice([None, "Failed", "Wave", "All"]),
        between_seconds=chance.choice([0.0, 0.0, 45.0]),
        joins_at_once=chance.choice([True, False]),
    )
    for _ in range(STEPS):
        names = sorted(world.machines)
        chance.choice(EVENTS)(world, chance, chance.choice(names) if names else "")
    settle(world)


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_rollout_keeps_its_promises_whatever_happens(seed: int):
    simulate(seed)


@pytest.mark.soak
@given(st.integers(0, 2**48))
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_ten_thousand_rollouts_keep_their_promises(seed: int):
    simulate(seed)
