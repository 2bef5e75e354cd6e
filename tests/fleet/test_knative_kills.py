"""The operator is killed without a chance to clean up, and started again: nothing is lost or left.

More and other moments: KNFLEET_TEST_KILLS=60 KNFLEET_TEST_SEED=7.
"""

import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from knfleet.api.knative import SERVINGS
from knfleet.apply.parts import part
from tests.fleet.expected import difference, members, serving_refs
from tests.fleet.faults import only_with_faults
from tests.fleet.operators import Hub, Operator
from tests.waiting import until

pytestmark = only_with_faults

KILLS = int(os.environ.get("KNFLEET_TEST_KILLS", "6"))
SEED = int(os.environ.get("KNFLEET_TEST_SEED", "1"))
KOURIER = {"kourier": {"enabled": True}}
WRITES = 90
"""About as many as an installation takes."""


class Killer:
    """Kills the operator after so many requests, and starts it again."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.chance = random.Random(SEED)
        self.moments: list[str] = []

    async def strike(self, verb: str, is_over: Callable[[], Awaitable[bool]]) -> None:
        """Kill it at a random moment of what it does now, and start it again."""
        wanted = self.chance.randint(0, WRITES)

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


async def test_killed_at_random_moments_it_always_ends_right(
    knative_hub: Hub, operator: Operator, bundle_root: Path, tmp_path: Path
) -> None:
    """During an installation, an upgrade and an uninstallation."""
    hub, killer = knative_hub, Killer(operator)

    async def is_at(version: str) -> bool:
        found = await hub.client.list(SERVINGS)
        return all(part(each, "status").get("version") == version for each in found.items)

    async def is_gone() -> bool:
        return not (await hub.client.list(SERVINGS)).items

    async def matches(version: str) -> None:
        wanted = await serving_refs(bundle_root, tmp_path, version=version, ingress=KOURIER)
        problem = ""

        async def holds() -> bool:
            nonlocal problem
            problem = difference(await members(hub.client), wanted)
            return not problem

        try:
            await until(holds, "exactly the release is there", seconds=60)
        except AssertionError:
            raise AssertionError(f"{problem}; killed at {killer.moments}") from None

    await operator.start()
    await hub.create(SERVINGS, version="1.22.1", ingress=KOURIER)
    for _ in range(KILLS // 3):
        await killer.strike("apply", lambda: is_at("1.22.1"))
    await hub.ready(SERVINGS, "1.22.1")
    await matches("1.22.1")

    await hub.change(SERVINGS, version="1.23.0")
    for _ in range(KILLS // 3):
        await killer.strike("apply", lambda: is_at("1.23.0"))
    await hub.ready(SERVINGS, "1.23.0")
    await matches("1.23.0")

    await hub.delete(SERVINGS)
    for _ in range(KILLS - 2 * (KILLS // 3)):
        await killer.strike("delete", is_gone)
    await hub.gone(SERVINGS)
    await hub.clean()
