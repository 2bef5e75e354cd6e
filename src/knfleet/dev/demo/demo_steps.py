"""The steps of `knfleet demo`: install Knative by a custom resource, remove it, look for more."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager

from msgspec import Struct

from knfleet.api.knative.conditions import READY
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.dev.cluster_contents import ContentsEntry, contents
from knfleet.dev.errors import DevError
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound

STEP_SECONDS = 120.0
POLL_SECONDS = 0.1
NUMBERS = re.compile(r"(\d+) of (\d+) ready")
OTHERS = frozenset(
    {
        "apiservices",
        "certificatesigningrequests",
        "customresourcedefinitions",
        "endpoints",
        "endpointslices",
        "events",
        "leases",
    }
)
"""Kinds that the cluster writes or clears away by itself, or that stay on purpose."""
OF_EVERY_NAMESPACE = frozenset({("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")})
"""What the cluster puts into a new namespace, sooner or later."""


class DemoResource(Struct, frozen=True):
    """A custom resource of the demo."""

    title: str
    resource: Resource
    key: Key
    spec: Object
    place: str = "hub"
    """The cluster that it is installed on."""

    def manifest(self, version: str) -> Object:
        """The custom resource at a version."""
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": self.key.name, "namespace": self.key.namespace},
            "spec": {**self.spec, "version": version},
        }


SERVING = DemoResource(
    "Knative Serving with Kourier",
    SERVINGS,
    Key("knative-serving", "knative-serving"),
    {
        "ingress": {"kourier": {"enabled": True}},
        "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}},
    },
)
EVENTING = DemoResource(
    "Knative Eventing", EVENTINGS, Key("knative-eventing", "knative-eventing"), {}
)


async def served(client: Client) -> None:
    """Wait until the operator has installed its CRDs."""
    async with limit("the operator does not start; see operator.log among the logs"):
        for resource in (SERVINGS, EVENTINGS):
            while True:
                with contextlib.suppress(KubeError):
                    await client.list(resource)
                    break
                await asyncio.sleep(POLL_SECONDS)


async def wait_for(
    client: Client, wanted: DemoResource, holds: Callable[[Object], bool], problem: str
) -> Object:
    """Watch a custom resource until something holds of it; it as it is then."""
    async with limit(problem):
        only = f"metadata.name={wanted.key.name}"
        events = client.watch(wanted.resource, wanted.key.namespace, fields=only)
        async with aclosing(events):
            async for event in events:
                if event.type != "BOOKMARK" and holds(event.object):
                    return event.object
    raise DevError(problem)


async def together(*work: Coroutine[None, None, None]) -> None:
    """Do some things at the same time; the first error is the demo's."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except* (DevError, KubeError) as errors:
        raise errors.exceptions[0] from None


async def install(
    client: Client, wanted: DemoResource, version: str, progress: ProgressReporter
) -> None:
    """Apply a custom resource, and show how far it is until it is ready."""
    started = time.monotonic()
    applied = await client.apply(wanted.resource, wanted.manifest(version))
    generation: int = applied["metadata"]["generation"]

    def is_ready(manifest: Object) -> bool:
        status, ready = part(manifest, "status"), condition(manifest, READY)
        report(wanted, ready.get("message", ""), progress)
        is_seen = status.get("observedGeneration") == generation
        at_version = str(status.get("version", "")).startswith(version)
        return is_seen and at_version and ready.get("status") == "True"

    problem = f"{wanted.title} {version} does not become ready"
    status = part(await wait_for(client, wanted, is_ready, problem), "status")
    seconds = time.monotonic() - started
    installed = status.get("version", "")
    progress.report(f"{wanted.place}: {wanted.title} {installed} is ready after {seconds:.1f} s")


def condition(manifest: Object, type_: str) -> Object:
    """What a custom resource says about one thing."""
    found = [each for each in items(manifest, "status", "conditions") if each["type"] == type_]
    return found[0] if found else {}


def report(wanted: DemoResource, message: str, progress: ProgressReporter) -> None:
    """Show how many workloads are ready."""
    found = NUMBERS.search(message)
    if found is not None:
        progress.advance(
            f"{wanted.place}: {wanted.title}: workloads ready", int(found[1]), int(found[2])
        )


async def remove(client: Client, wanted: DemoResource, progress: ProgressReporter) -> None:
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
    progress.report(
        f"{wanted.place}: {wanted.title} is removed after {time.monotonic() - started:.1f} s"
    )


async def nothing_left(
    client: Client, before: set[ContentsEntry], place: str, progress: ProgressReporter
) -> None:
    """Make sure that only CRDs have stayed."""
    left: list[ContentsEntry] = []
    try:
        async with asyncio.timeout(STEP_SECONDS):
            while True:
                left = leftovers(set(await contents(client)) - before)
                if not left:
                    break
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        names = ", ".join(f"{each.resource} {each.key}" for each in left[:5])
        raise DevError(f"{len(left)} objects are left on {place}: {names}") from None
    progress.report(f"{place}: nothing is left of it but CustomResourceDefinitions")


def leftovers(things: set[ContentsEntry]) -> list[ContentsEntry]:
    """What should not have stayed."""
    return sorted(
        each
        for each in things
        if each.resource.plural not in OTHERS
        and (each.resource.plural, each.key.name) not in OF_EVERY_NAMESPACE
    )


@asynccontextmanager
async def limit(problem: str) -> AsyncGenerator[None]:
    """Give up after a while, and say what did not happen."""
    try:
        async with asyncio.timeout(STEP_SECONDS):
            yield
    except TimeoutError:
        raise DevError(f"{problem} within {STEP_SECONDS:g} s") from None
