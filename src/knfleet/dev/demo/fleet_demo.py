"""What `knfleet demo` shows of a fleet: bare clusters join a hub, by commands as people type."""

import asyncio
import base64
import contextlib
import shlex
from contextlib import aclosing
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from knfleet.api.cluster.managedcluster import CLUSTERS, DELETE_NAMESPACE
from knfleet.api.core import NAMESPACES, SECRETS
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import items, part
from knfleet.dev.demo import demo_steps
from knfleet.dev.demo.demo_shell import Shell
from knfleet.dev.demo.demo_steps import DemoResource, install, limit, nothing_left, remove, together
from knfleet.dev.demo.hub_demo import namespace
from knfleet.dev.demo.rollout_demo import show_rollout
from knfleet.dev.demo.spokes_demo import inside, show_outage
from knfleet.dev.demo.tunnel_ports import ReservedPorts
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.dev_folder import write_private
from knfleet.dev.errors import DevError
from knfleet.dev.network import network_namespace
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.operator.spoke_access.packaged import packaged_rights
from knfleet.workflows.cluster_reach import is_by_tunnel

VERSION = "1.23"
PLACE = "open-cluster-management"
"""The namespace in which every cluster has a profile."""
IMAGE = "knfleet"
TUNNELLED, TUNNELLED_PLACE = "cluster2", "spoke2"
"""The cluster that nothing can connect to, and the spoke that it is."""
COMPONENTS = {"cluster1": demo_steps.SERVING, "cluster2": demo_steps.EVENTING}


def joining(ground: DevClusters) -> dict[str, str]:
    """The names under which spokes join, and the spokes."""
    names = [each.name for each in ground.folder.read().clusters if each.name != "hub"]
    return {f"cluster{number}": name for number, name in enumerate(names, start=1)}


def isolated(
    spokes: int, leading: ReservedPorts, progress: ProgressReporter
) -> dict[str, tuple[int, ...]]:
    """The spoke that gets a network of its own, with a way out to the tunnel; none if none can."""
    place = TUNNELLED_PLACE
    if spokes < len(COMPONENTS):
        return {}
    if problem := network_namespace.problem():
        progress.report(
            f"{place} listens on loopback like all others, because this machine permits no network"
            f" namespaces ({problem}); the hub is not given its address"
        )
        return {}
    progress.report(f"{place} gets a network of its own, into which nothing can connect")
    return {place: (leading.agents,)}


async def show_fleet(
    ground: DevClusters,
    releases: str,
    progress: ProgressReporter,
    leading: ReservedPorts,
    *,
    keep: bool,
) -> None:
    """Join all spokes, install Knative on two of them by their profiles and on all by a fleet, and
    take all of it back."""
    shell = Shell(ground, progress)
    places = joining(ground)
    for place in ("hub", *places.values()):
        await make_namespaces(ground, place)
    before = {place: await inside(ground, place) for place in ("hub", *places.values())}
    ways = (
        *("--tunnel-endpoint", f"127.0.0.1:{leading.agents}"),
        *("--tunnel-front", f"https://127.0.0.1:{leading.consumers}"),
    )
    printed = await shell.type(
        "init", "--wait", "--context", "hub", "--image", IMAGE, "--releases", releases, *ways
    )
    command = next(line for line in printed.splitlines() if "knfleet join" in line)
    for name, place in places.items():
        _, *join = shlex.split(command.replace("<cluster_name>", name))
        # An isolated cluster gets the tunnel by itself, since the hub cannot reach it.
        is_named = name == TUNNELLED and not ground.entering(place)
        way = ("--tunnel", "always") if is_named else ()
        shown = " ".join(("join", name, *way))
        options = ("--context", place, "--image", IMAGE, *way)
        await shell.type(*join, *options, shown=shown, place=place)
    await shell.type("accept", "--clusters", ",".join(places), "--wait", "--context", "hub")
    for line in (await shell.type("get", "clusters", "--context", "hub")).splitlines():
        progress.report(f"  {line}")
    async with Client(ground.connection("hub")) as hub:
        for name in places:
            await profile_ready(hub, name)
        wanted = [targeting(each, name, places[name]) for name, each in COMPONENTS.items()]
        progress.report(f"hub: all {len(places)} have a ClusterProfile with access")
        if ground.entering(TUNNELLED_PLACE):
            await check_unreachable(ground, hub, shell)
        else:
            await check_addresses(ground, hub, progress)
        await together(*(install(hub, each, VERSION, progress) for each in wanted))
        await show_kubectl(ground, shell, progress)
        await show_outage(ground, hub, wanted[1], progress)
        if keep:
            return
        await together(*(remove(hub, each, progress) for each in wanted))
        await show_rollout(ground, hub, shell, ("cluster1", places["cluster1"]), PLACE)
        for name, place in places.items():
            await shell.type("unjoin", "--cluster-name", name, "--context", place, place=place)
            await forget(hub, Key("", name))
    await shell.type("clean", "--context", "hub")
    for place, things in before.items():
        async with Client(ground.connection(place)) as client:
            await nothing_left(client, things, place, progress)


async def make_namespaces(ground: DevClusters, place: str) -> None:
    """Make the namespaces that `join` makes; they stay after `unjoin`."""
    async with Client(ground.connection(place)) as client:
        for name in packaged_rights().namespaces:
            await client.apply(NAMESPACES, namespace(name))


async def check_unreachable(ground: DevClusters, hub: Client, shell: Shell) -> None:
    """Make sure that no address leads to a cluster, and that its profile leads by the tunnel."""
    server = ground.connection(TUNNELLED_PLACE).endpoint.server
    address = urlsplit(server)
    with contextlib.suppress(ConnectionRefusedError):
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.close()
        raise DevError(f"{server} of {TUNNELLED} can be reached from outside of its network")
    profile = await hub.get(PROFILES, TUNNELLED, PLACE)
    if not is_by_tunnel(profile):
        raise DevError(f"ClusterProfile {PLACE}/{TUNNELLED} does not lead through the tunnel")
    shell.progress.report(f"hub: nothing answers at {server}; {TUNNELLED} is reached by its tunnel")
    for line in (await shell.type("proxy", "health", "--context", "hub")).splitlines():
        shell.progress.report(f"  {line}")


async def check_addresses(ground: DevClusters, hub: Client, progress: ProgressReporter) -> None:
    """Make sure that the hub was not given the address of a cluster."""
    server = ground.connection(TUNNELLED_PLACE).endpoint.server
    known = [
        await hub.get(CLUSTERS, TUNNELLED),
        await hub.get(PROFILES, TUNNELLED, PLACE),
        *(await hub.list(SECRETS, TUNNELLED)).items,
    ]
    if any(server in plain_text(each) for each in known):
        raise DevError(f"the hub was given the address of {TUNNELLED}, {server}")
    progress.report(f"hub: no object about {TUNNELLED} has the address of its API server, {server}")


async def show_kubectl(ground: DevClusters, shell: Shell, progress: ProgressReporter) -> None:
    """Reach a cluster with kubectl, through the hub and its agent, with the hub's rights there."""
    made = await shell.type("kubeconfig", TUNNELLED, "--context", "hub")
    path = ground.folder.root / f"{TUNNELLED}.kubeconfig"
    write_private(path, made.encode())
    there = ("get", "deployments", "--namespace", COMPONENTS[TUNNELLED].key.namespace)
    for line in (await shell.kubectl(path, *there)).splitlines():
        progress.report(f"  {line}")


def plain_text(manifest: Object) -> str:
    """All texts of an object, those of a Secret decoded."""
    data = [base64.b64decode(each).decode() for each in part(manifest, "data").values()]
    return "\n".join([msgspec.json.encode(manifest).decode(), *data])


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


async def profile_ready(hub: Client, name: str) -> None:
    """Wait for a profile with access."""
    only = f"metadata.name={name}"
    async with limit(f"{name} gets no ClusterProfile with access"):
        events = hub.watch(PROFILES, PLACE, fields=only)
        async with aclosing(events):
            async for event in events:
                if event.type != "BOOKMARK" and has_access(event.object):
                    return


def targeting(wanted: DemoResource, name: str, place: str) -> DemoResource:
    """A custom resource for a cluster."""
    reference = {"name": name, "namespace": PLACE}
    spec = {**wanted.spec, "clusterProfileRef": reference}
    return replace(wanted, place=place, spec=spec)


def has_access(profile: Object) -> bool:
    """Whether a profile says how its cluster is reached."""
    return bool(items(profile, "status", "accessProviders"))
