"""What is measured of an operator on one cluster; more scenarios are more functions here."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from msgspec import Struct

from bench.knative.contestants import Running
from bench.knative.readiness import ready
from bench.requests import READS, WRITES, by_verb, requests
from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, SERVICES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.errors import NotFound
from testbed.operators import Hub
from testbed.waiting import until

SPACE = "knative-serving"
SPEC: Object = {"version": "1.23.0", "ingress": {"kourier": {"enabled": True}}}
REPAIR_SECONDS = 15.0
"""What is not repaired by then is not repaired at once, and counts as not at all."""
LOOKS = 4
MIB = 2**20
MB = 10**6

Figures = dict[str, float | None]
"""A measurement by its name; None where something did not happen in time."""
Act = Callable[[], Awaitable[object]]
Test = Callable[[], Awaitable[bool]]


class Stage(Struct, frozen=True):
    """An operator at work on a cluster."""

    hub: Hub
    operator: Running


async def install(stage: Stage) -> Figures:
    """From nothing to Ready, seconds."""
    began = time.monotonic()
    await stage.hub.create(SERVINGS, **SPEC)
    await ready(stage.hub, SERVINGS, SPEC["version"], ["knative"])
    return {"Serving + Kourier to Ready, s": time.monotonic() - began}


async def forced_pass(stage: Stage) -> Figures:
    """What a pass costs when nothing is to be done."""
    hub, operator = stage.hub, stage.operator
    await until(lambda: is_quiet(stage), "the operator is quiet")
    passes, before = await operator.passes(), await requests(hub.client)
    patch: Object = {"metadata": {"annotations": {"example.com/again": str(time.time())}}}
    began = time.monotonic()
    await hub.client.patch(SERVINGS, Key(SPACE, "knative"), patch)

    async def is_made() -> bool:
        return await operator.passes() > passes

    await until(is_made, "a pass is made")
    seconds = time.monotonic() - began
    asked = await requests(hub.client) - before
    asked["PATCH", SERVINGS.plural] -= 1  # the one above
    return {
        "forced pass: reads": by_verb(asked, READS),
        "forced pass: writes": by_verb(asked, WRITES),
        "forced pass, s": seconds,
    }


async def is_quiet(stage: Stage) -> bool:
    """Whether nothing was asked of the server, and no pass made, for as long as a few looks take.

    The cluster's own controllers ask for something every now and then, so it must not be many.
    """
    before = await requests(stage.hub.client), await stage.operator.passes()
    for _ in range(LOOKS):
        if (await requests(stage.hub.client), await stage.operator.passes()) != before:
            return False
    return True


async def local_drift(stage: Stage) -> Figures:
    """How soon changes by others are repaired on the hub."""
    return await drift(stage, lambda: is_quiet(stage))


async def drift(stage: Stage, quiet: Test) -> Figures:
    """How soon changes by others are repaired, seconds; each is made when all is quiet."""
    label: Object = {"metadata": {"labels": {"app.kubernetes.io/name": "changed"}}}
    config, service = Key(SPACE, "config-gc"), Key(SPACE, "controller")
    workload = Key(SPACE, "activator")
    async with meddler(stage.hub) as other:
        changes: dict[str, tuple[Act, Test]] = {
            "edited ConfigMap repaired, s": (
                partial(other.patch, CONFIG_MAPS, config, label),
                partial(has_label, other, CONFIG_MAPS, config),
            ),
            "edited Service repaired, s": (
                partial(other.patch, SERVICES, service, label),
                partial(has_label, other, SERVICES, service),
            ),
            "deleted Deployment made anew, s": (
                partial(other.delete, DEPLOYMENTS, workload),
                partial(exists, other, DEPLOYMENTS, workload),
            ),
        }
        figures: Figures = {}
        for name, (change, is_right) in changes.items():
            await until(quiet, "the operator is quiet")
            figures[name] = await repaired(change, is_right)
        return figures


@asynccontextmanager
async def meddler(hub: Hub) -> AsyncGenerator[Client]:
    """Somebody else's client."""
    async with Client(hub.lent.connection, ClientOptions(manager="meddler")) as client:
        yield client


async def repaired(change: Act, is_right: Test) -> float | None:
    """Seconds from a change until all is right again; None if it takes too long."""
    await change()
    began = time.monotonic()
    try:
        await until(is_right, "it is repaired", seconds=REPAIR_SECONDS)
    except AssertionError:
        return None
    return time.monotonic() - began


async def has_label(client: Client, resource: Resource, key: Key) -> bool:
    """Whether an object of the release has its own label again."""
    found = await client.get(resource, key.name, key.namespace)
    return found["metadata"]["labels"]["app.kubernetes.io/name"] != "changed"


async def exists(client: Client, resource: Resource, key: Key) -> bool:
    """Whether an object is there."""
    try:
        await client.get(resource, key.name, key.namespace)
    except NotFound:
        return False
    return True


async def memory(stage: Stage) -> Figures:
    """What the process holds with one installation."""
    return {"RSS with one installation, MiB": stage.operator.memory_bytes / MIB}


SCENARIOS = (install, memory, forced_pass, local_drift)
"""In this order, one after the other, on the same installation."""
