"""What `knfleet demo` shows of many clusters: Knative on two spokes, one of which falls silent."""

import contextlib
import time
from collections.abc import Generator

import psutil
from msgspec.structs import replace

from knfleet.api.core import NAMESPACES
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import READY, TARGET_CLUSTER_RESOLVED
from knfleet.api.meta import Key, Object
from knfleet.dev import processes
from knfleet.dev.cluster_contents import ContentsEntry, contents
from knfleet.dev.control_plane import API_SERVER
from knfleet.dev.demo import demo_steps
from knfleet.dev.demo.demo_steps import (
    DemoResource,
    condition,
    install,
    nothing_left,
    remove,
    served,
    together,
    wait_for,
)
from knfleet.dev.demo.hub_demo import namespace
from knfleet.dev.demo.operator_process import operator
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.manual_profiles import provider_file, register
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.kube.client.verbs import Client

VERSION = "1.23"


async def show_spokes(
    ground: DevClusters, releases: str, progress: ProgressReporter, *, keep: bool
) -> None:
    """Serving on the first spoke, Eventing on the second, which is frozen and thawed; then none."""
    file = provider_file(ground)
    flags = (f"--clusterprofile-provider-file={file}",)
    async with (
        Client(ground.connection("hub")) as hub,
        operator(ground, releases, *flags, keep=keep),
    ):
        await served(hub)
        wanted = [
            await prepare(ground, hub, demo_steps.SERVING, "spoke1"),
            await prepare(ground, hub, demo_steps.EVENTING, "spoke2"),
        ]
        progress.report(
            "hub: spoke1 and spoke2 are registered as ClusterProfiles with secretreader"
        )
        before = {each.place: await inside(ground, each.place) for each in wanted}
        await together(*(install(hub, each, VERSION, progress) for each in wanted))
        await show_outage(ground, hub, wanted[1], progress)
        if keep:
            return
        await together(*(remove(hub, each, progress) for each in wanted))
        for each in wanted:
            async with Client(ground.connection(each.place)) as spoke:
                await nothing_left(spoke, before[each.place], each.place, progress)
            await hub.delete(PROFILES, Key("fleet-system", each.place))


async def prepare(
    ground: DevClusters, hub: Client, wanted: DemoResource, place: str
) -> DemoResource:
    """Register a spoke; the custom resource that is to be installed on it."""
    profile = await register(ground, hub, place)
    await home_on(ground, "hub", wanted)
    await home_on(ground, place, wanted)
    reference = {"name": profile.name, "namespace": profile.namespace}
    return replace(wanted, place=place, spec={**wanted.spec, "clusterProfileRef": reference})


async def home_on(ground: DevClusters, place: str, wanted: DemoResource) -> None:
    """Make the namespace of a component on a cluster."""
    async with Client(ground.connection(place)) as client:
        await client.apply(NAMESPACES, namespace(wanted.key.namespace))


async def inside(ground: DevClusters, place: str) -> set[ContentsEntry]:
    """Everything that is on a cluster."""
    async with Client(ground.connection(place)) as client:
        return set(await contents(client))


async def show_outage(
    ground: DevClusters, hub: Client, wanted: DemoResource, progress: ProgressReporter
) -> None:
    """Freeze the API server of a spoke, and show what its custom resource says; then thaw it."""
    name = f"{wanted.resource.kind} {wanted.key.name}"
    with frozen(ground, wanted.place):
        started = time.monotonic()
        progress.report(f"{wanted.place}: its API server is frozen")
        lost = await wait_for(hub, wanted, is_lost, f"{name} does not notice the frozen spoke")
        found, seconds = condition(lost, TARGET_CLUSTER_RESOLVED), time.monotonic() - started
        progress.report(
            f"hub: {name} says after {seconds:.1f} s: {found['reason']}: {found['message']}"
        )
    started = time.monotonic()
    progress.report(f"{wanted.place}: its API server runs again")
    await wait_for(hub, wanted, is_ready, f"{name} does not notice the spoke's return")
    progress.report(f"hub: {name} is ready again after {time.monotonic() - started:.1f} s")


@contextlib.contextmanager
def frozen(ground: DevClusters, place: str) -> Generator[None]:
    """Stop the clock of an API server for a while."""
    process = psutil.Process(processes.recorded(ground.folder)[f"{place}.{API_SERVER}"].pid)
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def is_lost(manifest: Object) -> bool:
    """Whether a custom resource says that its spoke cannot be used."""
    return condition(manifest, TARGET_CLUSTER_RESOLVED).get("status") == "False"


def is_ready(manifest: Object) -> bool:
    """Whether a custom resource says that all is well."""
    return condition(manifest, READY).get("status") == "True"
