"""What `knfleet demo` shows: real clusters, work on each, Knative on the hub and on spokes."""

import asyncio
import time
from contextlib import aclosing

from msgspec import Struct

from knfleet.api.core import DEPLOYMENTS
from knfleet.api.meta import Key, Object
from knfleet.dev.demo import dashboard_process, fleet_demo, tunnel_ports
from knfleet.dev.demo.hub_demo import show_hub
from knfleet.dev.demo.spokes_demo import show_spokes
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.dev_status import DevClusterStatus, status
from knfleet.dev.errors import DevError
from knfleet.dev.manual_profiles import provider_file
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.kube.client.verbs import Client
from knfleet.release.errors import ReleaseError
from knfleet.release.source.sources import GoModuleSource

AVAILABLE_SECONDS = 60
SHOWN_SPOKES = 2
"""How many spokes the part on many clusters needs."""


class DemoResult(Struct, frozen=True):
    """What there is at the end."""

    clusters: tuple[DevClusterStatus, ...]
    url: str
    """Of the dashboard."""


async def show(
    ground: DevClusters,
    spokes: int,
    progress: ProgressReporter,
    *,
    keep: bool = False,
    profiles: str = "fleet",
) -> DemoResult:
    """A hub and spokes with a Deployment on each, Knative on all; how they are then."""
    started = time.monotonic()
    progress.report(f"starting a hub and {spokes} spokes: real API servers on loopback")
    leading = tunnel_ports.reserve(ground)
    isolated = fleet_demo.isolated(spokes, leading, progress) if profiles == "fleet" else {}
    state = await ground.up(spokes, isolated)
    progress.report(f"{len(state.clusters)} clusters ready in {time.monotonic() - started:.1f} s")
    async with asyncio.TaskGroup() as group:
        for cluster in state.clusters:
            group.create_task(deploy(ground, cluster.name, progress))
    releases = ""
    try:
        releases = str(await GoModuleSource().fetch())
    except ReleaseError as error:
        progress.report(f"Knative is not shown, because its release files are missing: {error}")
    file = "" if profiles == "fleet" else str(provider_file(ground))
    url = await dashboard_process.start(ground, dashboard_process.flags_for(releases, file))
    progress.report(f"dashboard: {url}")
    if releases:
        await show_hub(ground, releases, progress)
        if spokes >= SHOWN_SPOKES:
            if profiles == "fleet":
                tunnel_ports.start(ground, leading)
                await fleet_demo.show_fleet(ground, releases, progress, leading, keep=keep)
            else:
                await show_spokes(ground, releases, progress, keep=keep)
    return DemoResult((await status(ground.folder)).clusters, url)


async def deploy(ground: DevClusters, cluster: str, progress: ProgressReporter) -> None:
    """A Deployment on one cluster, applied and waited for."""
    started = time.monotonic()
    manifest = deployment("hello", replicas=3)
    async with Client(ground.connection(cluster)) as client:
        await client.apply(DEPLOYMENTS, manifest)
        try:
            async with asyncio.timeout(AVAILABLE_SECONDS):
                await available(client, Key.of(manifest))
        except TimeoutError:
            raise DevError(
                f"deployment hello on {cluster} is not available after {AVAILABLE_SECONDS} s;"
                f" look at: knfleet dev logs {cluster} node --dir {ground.folder.root}"
            ) from None
    seconds = time.monotonic() - started
    progress.report(f"{cluster}: deployment hello is available with 3 pods after {seconds:.1f} s")


async def available(client: Client, key: Key) -> None:
    """Wait until a Deployment has all its replicas."""
    events = client.watch(DEPLOYMENTS, key.namespace, fields=f"metadata.name={key.name}")
    async with aclosing(events):
        async for event in events:
            conditions = event.object.get("status", {}).get("conditions", [])
            if any(each["type"] == "Available" and each["status"] == "True" for each in conditions):
                return


def deployment(name: str, *, replicas: int) -> Object:
    """A Deployment of simulated pods."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": name, "image": "example.com/hello:1"}]},
            },
        },
    }
