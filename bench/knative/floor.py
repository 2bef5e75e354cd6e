"""The floor: the same objects, sent at once by a bare client, until the Deployments are Available.

Nothing is looked at before, kept in order, judged or remembered; only Namespaces come first, since
without them nearly everything would be refused. What is refused because its kind is not served yet,
or its webhook does not answer yet, is sent again at once. No program that installs these objects by
server-side apply can be faster.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path

from msgspec import Struct

from bench.knative.scenarios import SPEC, Figures
from bench.resting import lend_rested
from bench.usage import usage, used
from knfleet.api.core import DEPLOYMENTS, JOBS
from knfleet.api.knative.resources import SERVINGS, KnativeServing
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.schema import decode
from knfleet.apply.desired import defined_kinds, kind_of
from knfleet.apply.observe.readiness import ReadinessState, health
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.errors import NotFound, ServerError
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.render.pipeline import RenderFacts, render
from testbed.clusters import Lent, Pool

SPACE = "knative-serving"
AGAIN_SECONDS = 0.02
LAST_SECONDS = 300.0


class Load(Struct, frozen=True):
    """The objects of an installation, and how each is addressed."""

    objects: tuple[Object, ...]
    kinds: dict[tuple[str, str], Resource]

    def of(self, kind: str) -> frozenset[Key]:
        """The keys of all objects of a kind."""
        return frozenset(Key.of(each) for each in self.objects if each["kind"] == kind)

    def resource(self, manifest: Object) -> Resource:
        """How an object is addressed."""
        return self.kinds[kind_of(manifest)]


class Reached(Struct, frozen=True):
    """How long it took, in seconds."""

    applied: float
    available: float
    """Until all Deployments are Available."""
    complete: float
    """Until all Jobs are complete, too."""


async def load(releases: Path, folder: Path, spec: Object, client: Client) -> Load:
    """What an operator installs for a KnativeServing."""
    manifest: Object = {
        "apiVersion": SERVINGS.api_version,
        "kind": SERVINGS.kind,
        "metadata": {"name": "floor", "namespace": SPACE},
        "spec": spec,
    }
    serving = decode(manifest, KnativeServing)
    bundle = await Releases(releases, cache=ParsedCache(folder)).load(serving)
    objects = render(bundle.objects(), serving, RenderFacts(version=bundle.version)).objects
    kinds = defined_kinds(objects)
    for each in sorted({kind_of(manifest) for manifest in objects} - kinds.keys()):
        kinds[each] = await client.discovery.resource(*each)
    return Load(tuple(objects), kinds)


async def install(spokes: Sequence[Lent], what: Load) -> Reached:
    """Install on all spokes at once; the times of the last one."""
    began = time.monotonic()
    async with asyncio.timeout(LAST_SECONDS), asyncio.TaskGroup() as group:
        tasks = [group.create_task(install_one(spoke, what, began)) for spoke in spokes]
    every = [task.result() for task in tasks]
    return Reached(
        max(each.applied for each in every),
        max(each.available for each in every),
        max(each.complete for each in every),
    )


async def install_one(spoke: Lent, what: Load, began: float) -> Reached:
    """Install on one spoke."""
    async with Client(spoke.connection, ClientOptions(manager="floor")) as client:
        first = [each for each in what.objects if each["kind"] == "Namespace"]
        rest = [each for each in what.objects if each["kind"] != "Namespace"]
        await asyncio.gather(*(send(client, what.resource(each), each) for each in first))
        await asyncio.gather(*(send(client, what.resource(each), each) for each in rest))
        applied = time.monotonic() - began
        available, complete = await asyncio.gather(
            reach(client, DEPLOYMENTS, what.of(DEPLOYMENTS.kind), began),
            reach(client, JOBS, what.of(JOBS.kind), began),
        )
        return Reached(applied, available, max(available, complete))


async def send(client: Client, resource: Resource, manifest: Object) -> None:
    """Apply an object, again and again while its kind is not served or its webhook is not up."""
    while True:
        with suppress(NotFound, ServerError):
            await client.apply(resource, manifest)
            return
        await asyncio.sleep(AGAIN_SECONDS)


async def reach(client: Client, resource: Resource, wanted: frozenset[Key], began: float) -> float:
    """Seconds until all objects of a kind work."""
    ready: set[Key] = set()
    events = client.watch(resource, SPACE)
    async with aclosing(events):
        async for event in events:
            if event.type == "BOOKMARK":
                continue
            key = Key.of(event.object)
            is_ready = (
                event.type != "DELETED" and health(event.object).state == ReadinessState.READY
            )
            (ready.add if is_ready else ready.discard)(key)
            if wanted <= ready:
                return time.monotonic() - began
    raise AssertionError(f"the watch of {resource} ended")


async def turn_alone(pool: Pool, releases: Path, folder: Path) -> Figures:
    """What a bare client needs for one spoke, and for an upgrade of it."""
    _, lone = await lend_rested(pool, 2)
    folder.mkdir()
    new, old = await loads(releases, folder, lone)
    figures = await measured(lone, [lone], new, "1 spoke")
    await pool.clean(lone.name)
    figures["upgrade 1.22 to 1.23, s"] = None
    with suppress(TimeoutError):
        await install([lone], old)
        figures["upgrade 1.22 to 1.23, s"] = (await install([lone], new)).available
    return figures


async def turn(pool: Pool, releases: Path, folder: Path, *, spokes: int, name: str = "") -> Figures:
    """What a bare client needs for many spokes at once."""
    _, *many = await lend_rested(pool, spokes + 1)
    folder.mkdir()
    new, _ = await loads(releases, folder, many[0])
    return await measured(many[0], many, new, name or f"{len(many)} spokes")


async def loads(releases: Path, folder: Path, spoke: Lent) -> tuple[Load, Load]:
    """What is installed: of the newer version, and of the older."""
    async with Client(spoke.connection) as client:
        new = await load(releases, folder, SPEC, client)
        return new, await load(releases, folder, {**SPEC, "version": "1.22.0"}, client)


async def measured(lent: Lent, spokes: Sequence[Lent], what: Load, name: str) -> Figures:
    """How long some spokes take, and how much CPU."""
    before = usage(lent)
    reached = await install(spokes, what)
    parts = used(before, usage(lent))
    return {
        f"{name} until Deployments are Available, s": reached.available,
        f"{name} to Ready, s": reached.available,
        f"{name} until Jobs are complete, too, s": reached.complete,
        f"{name} to Ready: CPU of everything, s": sum(parts.values()),
    }
