"""Works of one ConfigMap each, on a hub and a spoke."""

import pytest

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key, Object
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed.waiting import until


def work(name: str, data: str = "b") -> Object:
    """A work with one ConfigMap."""
    content = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"a": data},
    }
    return {
        "apiVersion": WORKS.api_version,
        "kind": WORKS.kind,
        "metadata": {"name": name, "namespace": "c1"},
        "spec": {"workload": {"manifests": [content]}},
    }


def is_applied(found: Object) -> bool:
    """Whether a work is applied in its newest generation."""
    conditions: list[Object] = found.get("status", {}).get("conditions") or []
    generation = found["metadata"]["generation"]
    return any(
        each["type"] == "Applied"
        and each["status"] == "True"
        and each.get("observedGeneration") == generation
        for each in conditions
    )


async def applied(hub: Client, spoke: Client, name: str, data: str = "b") -> None:
    """Wait until a work is applied in its newest generation."""

    async def holds() -> bool:
        return is_applied(await hub.get(WORKS, name, "c1"))

    await until(holds, f"work {name} is applied")
    assert (await spoke.get(CONFIG_MAPS, name, "default"))["data"] == {"a": data}


async def gone(hub: Client, spoke: Client, name: str) -> None:
    """Wait until a work and its object are gone."""

    async def is_gone() -> bool:
        try:
            await hub.get(WORKS, name, "c1")
        except NotFound:
            return True
        return False

    await until(is_gone, f"work {name} is gone")
    with pytest.raises(NotFound):
        await spoke.get(CONFIG_MAPS, name, "default")


async def whole_life(hub: Client, spoke: Client, name: str) -> None:
    """Create, change and delete a work, and see what becomes of its object."""
    await hub.create(WORKS, work(name))
    await applied(hub, spoke, name)
    await hub.patch(WORKS, Key("c1", name), {"spec": work(name, "c")["spec"]})
    await applied(hub, spoke, name, "c")
    await hub.delete(WORKS, Key("c1", name))
    await gone(hub, spoke, name)
