"""What `knfleet demo` shows of Knative: installed on the hub by custom resources, and removed."""

import asyncio
import contextlib
import re
import signal
import sys
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, asynccontextmanager

import psutil
from msgspec import Struct

from knfleet.api.conditions import READY
from knfleet.api.core import NAMESPACES
from knfleet.api.knative import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.parts import items, part
from knfleet.dev import ports
from knfleet.dev.clusters import Ground
from knfleet.dev.errors import GroundError
from knfleet.dev.progress import Progress
from knfleet.dev.reset import Thing, contents
from knfleet.kube.client import Client
from knfleet.kube.errors import KubeError, NotFound
from knfleet.release.errors import ReleaseError
from knfleet.release.sources import GoModule

STEP_SECONDS = 120.0
POLL_SECONDS = 0.1
NUMBERS = re.compile(r"(\d+) of (\d+) ready")
OTHERS = frozenset(
    {"apiservices", "customresourcedefinitions", "endpoints", "endpointslices", "events", "leases"}
)
"""Kinds that the cluster writes by itself, or that stay on purpose."""


class Wanted(Struct, frozen=True):
    """A custom resource of the demo."""

    title: str
    resource: Resource
    key: Key
    spec: Object

    def manifest(self, version: str) -> Object:
        """The custom resource at a version."""
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": self.key.name, "namespace": self.key.namespace},
            "spec": {**self.spec, "version": version},
        }


SERVING = Wanted(
    "Knative Serving with Kourier",
    SERVINGS,
    Key("knative-serving", "knative-serving"),
    {
        "ingress": {"kourier": {"enabled": True}},
        "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}},
    },
)
EVENTING = Wanted("Knative Eventing", EVENTINGS, Key("knative-eventing", "knative-eventing"), {})
BOTH = (SERVING, EVENTING)


async def show_knative(ground: Ground, progress: Progress) -> None:
    """Install both components on the hub, upgrade them, remove them; nothing stays but CRDs."""
    try:
        releases = await GoModule().fetch()
    except ReleaseError as error:
        progress.say(f"Knative is not shown, for want of its release files: {error}")
        return
    connection = ground.connection("hub")
    async with Client(connection) as client, operator(ground, str(releases)) as process:
        await served(client)
        for wanted in BOTH:
            home: Object = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": wanted.key.namespace},
            }
            await client.apply(NAMESPACES, home)
        before = set(await contents(client))
        for version in ("1.22", "1.23"):
            verb = "installing" if version == "1.22" else "upgrading to"
            progress.say(f"hub: {verb} Knative {version} by custom resources")
            await together(*(install(client, each, version, progress) for each in BOTH))
        megabytes = process.memory_info().rss >> 20
        progress.say(f"hub: the operator uses {megabytes} MB; now both are deleted")
        await together(*(remove(client, each, progress) for each in BOTH))
        await nothing_left(client, before, progress)


@asynccontextmanager
async def operator(ground: Ground, releases: str) -> AsyncGenerator[psutil.Process]:
    """The operator as a process of its own, ended with the demo."""
    folder = ground.folder
    (port,) = ports.reserve(1, ground.port_range, folder.state_file)
    kubeconfig = folder.cluster("hub") / "admin.kubeconfig"
    folder.logs.mkdir(exist_ok=True)
    with (folder.logs / "operator.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "knfleet", "operator", "--kubeconfig", str(kubeconfig)),
            *("--disable-ha", "--install-crds", f"--health-port={port}", "--releases", releases),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 15)
        except TimeoutError:
            process.kill()
            await process.wait()


async def served(client: Client) -> None:
    """Wait until the operator has installed its CRDs."""
    async with limit("the operator does not start; look at operator.log among the logs"):
        for resource in (SERVINGS, EVENTINGS):
            while True:
                with contextlib.suppress(KubeError):
                    await client.list(resource)
                    break
                await asyncio.sleep(POLL_SECONDS)


async def together(*work: Coroutine[None, None, None]) -> None:
    """Do some things at the same time; the first error is the demo's."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except* GroundError as errors:
        raise errors.exceptions[0] from None


async def install(client: Client, wanted: Wanted, version: str, progress: Progress) -> None:
    """Apply a custom resource, and show how far it is until it is ready."""
    started = time.monotonic()
    applied = await client.apply(wanted.resource, wanted.manifest(version))
    generation: int = applied["metadata"]["generation"]
    status: Object = {}
    async with limit(f"{wanted.title} {version} does not become ready"):
        events = client.watch(wanted.resource, wanted.key.namespace)
        async with aclosing(events):
            async for event in events:
                status = part(event.object, "status")
                ready = ready_condition(event.object)
                tell(wanted, ready.get("message", ""), progress)
                is_seen = status.get("observedGeneration") == generation
                at_version = str(status.get("version", "")).startswith(version)
                if is_seen and at_version and ready.get("status") == "True":
                    break
    seconds = time.monotonic() - started
    installed = status.get("version", "")
    progress.say(f"hub: {wanted.title} {installed} is ready after {seconds:.1f} s")


def ready_condition(manifest: Object) -> Object:
    """What a custom resource says about being ready."""
    found = [each for each in items(manifest, "status", "conditions") if each["type"] == READY]
    return found[0] if found else {}


def tell(wanted: Wanted, message: str, progress: Progress) -> None:
    """Show how many workloads are ready."""
    found = NUMBERS.search(message)
    if found is not None:
        progress.advance(f"{wanted.title}: workloads ready", int(found[1]), int(found[2]))


async def remove(client: Client, wanted: Wanted, progress: Progress) -> None:
    """Delete a custom resource, and wait until it is gone."""
    started = time.monotonic()
    await client.delete(wanted.resource, wanted.key)
    async with limit(f"{wanted.title} is not removed"):
        while True:
            try:
                await client.get(wanted.resource, wanted.key.name, wanted.key.namespace)
            except NotFound:
                break
            await asyncio.sleep(POLL_SECONDS)
    progress.say(f"hub: {wanted.title} is removed after {time.monotonic() - started:.1f} s")


async def nothing_left(client: Client, before: set[Thing], progress: Progress) -> None:
    """Make sure that only CRDs have stayed."""
    left: list[Thing] = []
    try:
        async with asyncio.timeout(STEP_SECONDS):
            while True:
                left = leftovers(set(await contents(client)) - before)
                if not left:
                    break
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        names = ", ".join(f"{each.resource} {each.key}" for each in left[:5])
        raise GroundError(f"{len(left)} objects are left on the hub: {names}") from None
    progress.say("hub: nothing is left of it but CustomResourceDefinitions")


def leftovers(things: set[Thing]) -> list[Thing]:
    """What should not have stayed."""
    return sorted(each for each in things if each.resource.plural not in OTHERS)


@asynccontextmanager
async def limit(problem: str) -> AsyncGenerator[None]:
    """Give up after a while, and say what did not happen."""
    try:
        async with asyncio.timeout(STEP_SECONDS):
            yield
    except TimeoutError:
        raise GroundError(f"{problem} within {STEP_SECONDS:g} s") from None
