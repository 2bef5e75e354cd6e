"""What a new installation writes before it watches it is not lost sight of."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.meta import HUB, Key
from knfleet.apply.desired import OwnerReferences
from knfleet.kube.client.verbs import Client
from knfleet.operator import installation
from knfleet.operator.installation import Installation
from knfleet.operator.targets.targets import Target
from tests.support.objects import HOME, config_map, namespace

WAIT_SECONDS = 60


@asynccontextmanager
async def living(made: Installation) -> AsyncGenerator[None]:
    """Let an installation watch and repair."""
    task = asyncio.create_task(made.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_was_deleted_before_it_was_watched_comes_back(
    hub: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an installation that is not ready for long; no watch ever tells of it."""
    monkeypatch.setattr(installation, "LATE_SECONDS", 0.5)
    await hub.create(NAMESPACES, namespace(HOME))
    owner = await hub.create(CONFIG_MAPS, config_map("owner"))
    asked = asyncio.Event()
    target = Target(HUB, hub, OwnerReferences(owner), Key(HOME, "inventory"))
    made = Installation(target, asked.set, lambda _: None)
    objects = [config_map("settings", a="1")]
    changes = await made.apply(objects)
    is_watched_at_first = made.watch.follows([CONFIG_MAPS])
    await hub.delete(CONFIG_MAPS, Key(HOME, "settings"))

    async with living(made), asyncio.timeout(WAIT_SECONDS):
        await asked.wait()
        again = await made.apply(objects)

    assert changes.wrote
    assert not is_watched_at_first
    assert made.watch.follows([CONFIG_MAPS])
    assert again.wrote
    assert (await hub.get(CONFIG_MAPS, "settings", HOME))["data"] == {"a": "1"}
