"""What `knfleet demo` shows of a fleet: bare clusters join a hub, by commands as people type."""

import asyncio
import contextlib
import os
import shlex
import sys
from contextlib import aclosing

from msgspec.structs import replace

from knfleet.api.cluster.managedcluster import CLUSTERS, DELETE_NAMESPACE
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import items
from knfleet.dev.demo import demo_steps
from knfleet.dev.demo.demo_steps import DemoResource, install, limit, nothing_left, remove, together
from knfleet.dev.demo.spokes_demo import home_on, inside, show_outage
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.errors import DevError
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound

VERSION = "1.23"
PLACE = "open-cluster-management"
"""The namespace in which every cluster has a profile."""
IMAGE = "knfleet"
PLACES = {"cluster1": "spoke1", "cluster2": "spoke2"}
COMPONENTS = {"cluster1": demo_steps.SERVING, "cluster2": demo_steps.EVENTING}


async def show_fleet(
    ground: DevClusters, releases: str, progress: ProgressReporter, *, keep: bool
) -> None:
    """Join two spokes, install Knative on them by their profiles, and take all of it back."""
    shell = Shell(ground, progress)
    for name, wanted in COMPONENTS.items():
        for place in ("hub", PLACES[name]):
            await home_on(ground, place, wanted)
    before = {place: await inside(ground, place) for place in ("hub", *PLACES.values())}
    told = await shell.type(
        "init", "--wait", "--context", "hub", "--image", IMAGE, "--releases", releases
    )
    command = next(line for line in told.splitlines() if "knfleet join" in line)
    for name, place in PLACES.items():
        _, *join = shlex.split(command.replace("<cluster_name>", name))
        await shell.type(*join, "--context", place, "--image", IMAGE, shown=f"join {name}")
    await shell.type("accept", "--clusters", ",".join(PLACES), "--wait", "--context", "hub")
    for line in (await shell.type("get", "clusters", "--context", "hub")).splitlines():
        progress.report(f"  {line}")
    async with Client(ground.connection("hub")) as hub:
        wanted = [await ready_for(hub, *each) for each in COMPONENTS.items()]
        progress.report("hub: both have a ClusterProfile with access")
        await together(*(install(hub, each, VERSION, progress) for each in wanted))
        await show_outage(ground, hub, wanted[1], progress)
        if keep:
            return
        await together(*(remove(hub, each, progress) for each in wanted))
        for name, place in PLACES.items():
            await shell.type("unjoin", "--cluster-name", name, "--context", place)
            await forget(hub, Key("", name))
    await shell.type("clean", "--context", "hub")
    for place, things in before.items():
        async with Client(ground.connection(place)) as client:
            await nothing_left(client, things, place, progress)


async def forget(hub: Client, cluster: Key) -> None:
    """Delete a cluster that has left, with its namespace on the hub."""
    annotations = {"annotations": {DELETE_NAMESPACE: "true"}}
    await hub.patch(CLUSTERS, cluster, {"metadata": annotations})
    await hub.delete(CLUSTERS, cluster)
    async with limit(f"ManagedCluster {cluster.name} does not go"):
        with contextlib.suppress(NotFound):
            while True:
                await hub.get(CLUSTERS, cluster.name)
                await asyncio.sleep(demo_steps.POLL_SECONDS)


class Shell:
    """Somebody who types our commands."""

    def __init__(self, ground: DevClusters, progress: ProgressReporter) -> None:
        self.environment = {**os.environ, "KUBECONFIG": str(ground.folder.kubeconfig)}
        self.progress = progress

    async def type(self, *arguments: str, shown: str = "") -> str:
        """Run a command, and say which; what it printed. Raises with what it said if it fails."""
        self.progress.report(f"$ knfleet {shown or ' '.join(arguments)}")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "knfleet", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environment,
        )
        async with limit(f"knfleet {arguments[0]} does not end"):
            out, errors = await process.communicate()
        if process.returncode:
            raise DevError(f"knfleet {arguments[0]} failed: {errors.decode().strip()}")
        return out.decode()


async def ready_for(hub: Client, name: str, wanted: DemoResource) -> DemoResource:
    """Wait for a profile with access; the custom resource for its cluster."""
    only = f"metadata.name={name}"
    async with limit(f"{name} gets no ClusterProfile with access"):
        events = hub.watch(PROFILES, PLACE, fields=only)
        async with aclosing(events):
            async for event in events:
                if event.type != "BOOKMARK" and has_access(event.object):
                    break
    reference = {"name": name, "namespace": PLACE}
    spec = {**wanted.spec, "clusterProfileRef": reference}
    return replace(wanted, place=PLACES[name], spec=spec)


def has_access(profile: Object) -> bool:
    """Whether a profile says how its cluster is reached."""
    return bool(items(profile, "status", "accessProviders"))
