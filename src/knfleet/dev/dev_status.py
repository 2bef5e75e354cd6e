"""How dev clusters are: each process, and whether the API server answers."""

import asyncio
import contextlib
import time

import psutil
from msgspec import Struct

from knfleet.dev import control_plane, processes
from knfleet.dev.dev_folder import DevClusterState, DevFolder
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError

ANSWER_SECONDS = 5


class ComponentStatus(Struct, frozen=True):
    """One process."""

    name: str
    state: str
    """running, frozen or dead."""
    pid: int = 0
    rss_bytes: int = 0
    uptime_seconds: int = 0


class DevClusterStatus(Struct, frozen=True):
    """One cluster."""

    name: str
    ready: bool
    url: str
    version: str
    problem: str
    components: tuple[ComponentStatus, ...]

    @property
    def rss_bytes(self) -> int:
        """The memory of the cluster's own processes."""
        return sum(each.rss_bytes for each in self.components)


class DevStatus(Struct, frozen=True):
    """All of a folder."""

    folder: str
    kubeconfig: str
    etcd: ComponentStatus
    clusters: tuple[DevClusterStatus, ...]

    @property
    def ready(self) -> bool:
        """Whether everything works."""
        return self.etcd.state == "running" and all(each.ready for each in self.clusters)


async def status(folder: DevFolder) -> DevStatus:
    """How everything in a folder is now."""
    state = folder.read()
    known = processes.recorded(folder)
    clusters = await asyncio.gather(
        *(cluster_status(folder, cluster, known) for cluster in state.clusters)
    )
    return DevStatus(
        folder=str(folder.root),
        kubeconfig=str(folder.kubeconfig),
        etcd=component(control_plane.ETCD, known.get(control_plane.ETCD)),
        clusters=tuple(clusters),
    )


async def cluster_status(
    folder: DevFolder, cluster: DevClusterState, known: dict[str, processes.RecordedProcess]
) -> DevClusterStatus:
    """How one cluster is."""
    components = tuple(
        component(name, known.get(control_plane.process_name(cluster.name, name)))
        for name in control_plane.COMPONENTS
    )
    version, problem = "", ""
    sick = [f"{each.name} is {each.state}" for each in components if each.state != "running"]
    try:
        async with Client(control_plane.connection(folder, cluster)) as client:
            async with asyncio.timeout(ANSWER_SECONDS):
                version = await client.version()
                await client.raw("GET", "/readyz")
    except TimeoutError:
        problem = f"no answer in {ANSWER_SECONDS} s"
    except KubeError as error:
        problem = str(error)
    return DevClusterStatus(
        name=cluster.name,
        ready=not sick and not problem,
        url=control_plane.server_url(cluster),
        version=version,
        problem="; ".join(sick) or problem,
        components=components,
    )


def component(name: str, process: processes.RecordedProcess | None) -> ComponentStatus:
    """How one process is."""
    live = process.live() if process else None
    if process is None or live is None:
        return ComponentStatus(name, "dead")
    with contextlib.suppress(psutil.NoSuchProcess):
        frozen = live.status() == psutil.STATUS_STOPPED
        return ComponentStatus(
            name,
            "frozen" if frozen else "running",
            process.pid,
            live.memory_info().rss,
            round(time.time() - process.started),
        )
    return ComponentStatus(name, "dead")
