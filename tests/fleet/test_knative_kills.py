"""The operator is killed without a chance to clean up, and started again: nothing is lost or left.

Once in each phase, and twenty times at random moments. More of them, and other moments:
KNFLEET_TEST_KILLS=60 KNFLEET_TEST_SEED=7.
"""

import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from knfleet.api.knative.resources import SERVINGS
from knfleet.apply.manifest_fields import part
from knfleet.apply.refs import Ref
from testbed.operators import Hub, Operator
from testbed.waiting import until
from tests.support.expected import difference, members, serving_refs

KILLS = int(os.environ.get("KNFLEET_TEST_KILLS", "20"))
SEED = int(os.environ.get("KNFLEET_TEST_SEED", "1"))


class Story(Struct, frozen=True):
    """What is installed, upgraded and removed while the operator is killed."""

    kills: int
    writes: int
    """About as many as an installation takes."""
    versions: tuple[str, str]
    spec: dict[str, Any]


REAL = Story(KILLS * 3 // 10, 90, ("1.22.1", "1.23.0"), {"ingress": {"kourier": {"enabled": True}}})
SMALL = Story(KILLS - REAL.kills, 20, ("1.22.0", "1.23.0"), {"ingress": {}})
PHASES = Story(3, 20, SMALL.versions, SMALL.spec)
"""One kill in each: installation, upgrade, uninstallation."""


class Killer:
    """Kills the operator after so many requests, and starts it again."""

    def __init__(self, operator: Operator, writes: int) -> None:
        self.operator = operator
        self.writes = writes
        self.chance = random.Random(SEED)
        self.moments: list[str] = []

    async def strike(self, verb: str, is_over: Callable[[], Awaitable[bool]]) -> None:
        """Kill it at a random moment of what it does now, and start it again."""
        wanted = self.chance.randint(0, self.writes)

        async def is_time() -> bool:
            try:
                done = (await self.operator.requests()).get(verb, 0)
            except OSError:  # it does not listen yet
                return False
            return done >= wanted or await is_over()

        await until(is_time, f"{wanted} requests {verb} are made", seconds=120)
        await self.operator.kill()
        self.moments.append(f"{verb} {wanted}")
        await self.operator.start()


async def live_and_die(hub: Hub, operator: Operator, story: Story, cache: Path) -> list[str]:
    """Install, upgrade and uninstall under fire; the moments of the kills.

    Fails unless after each of the three exactly that is there which should be.
    """
    killer = Killer(operator, story.writes)

    async def is_at(version: str) -> bool:
        found = await hub.client.list(SERVINGS)
        return all(part(each, "status").get("version") == version for each in found.items)

    async def is_gone() -> bool:
        return not (await hub.client.list(SERVINGS)).items

    old, new = story.versions
    each = story.kills // 3
    await hub.create(SERVINGS, version=old, **story.spec)
    for _ in range(each):
        await killer.strike("apply", lambda: is_at(old))
    await hub.ready(SERVINGS, old)
    await matches(hub, await serving_refs(operator.releases, cache, version=old, **story.spec))

    await hub.change(SERVINGS, version=new)
    for _ in range(each):
        await killer.strike("apply", lambda: is_at(new))
    await hub.ready(SERVINGS, new)
    await matches(hub, await serving_refs(operator.releases, cache, version=new, **story.spec))

    await hub.delete(SERVINGS)
    for _ in range(story.kills - 2 * each):
        await killer.strike("delete", is_gone)
    await hub.gone(SERVINGS)
    await hub.clean()
    return killer.moments


async def matches(hub: Hub, wanted: set[Ref]) -> None:
    """Wait until exactly some objects are there."""
    problem = ""

    async def holds() -> bool:
        nonlocal problem
        problem = difference(await members(hub.client), wanted)
        return not problem

    try:
        await until(holds, "exactly the release is there")
    except AssertionError:
        raise AssertionError(problem) from None


async def test_killed_once_in_each_phase(knative_hub: Hub, small: Operator, tmp_path: Path) -> None:
    """During an installation, an upgrade and an uninstallation."""
    moments = await live_and_die(knative_hub, small, PHASES, tmp_path)

    assert len(moments) == PHASES.kills


@pytest.mark.full
async def test_killed_at_random_moments_of_the_real_release(
    knative_hub: Hub, operator: Operator, tmp_path: Path
) -> None:
    """During an installation, an upgrade and an uninstallation."""
    await operator.start()
    moments = await live_and_die(knative_hub, operator, REAL, tmp_path)

    assert len(moments) == REAL.kills


@pytest.mark.full
async def test_killed_at_random_moments_of_a_small_release(
    knative_hub: Hub, small: Operator, tmp_path: Path
) -> None:
    """The same with less to do between two kills, and more kills."""
    moments = await live_and_die(knative_hub, small, SMALL, tmp_path)

    assert len(moments) == SMALL.kills
