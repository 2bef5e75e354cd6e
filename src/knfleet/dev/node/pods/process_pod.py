"""A pod of our own image: its containers are processes of this machine.

What a program notices of that: it finds its volumes below KNFLEET_POD_ROOT instead of at the root
of the file system (paths in its command line and environment are turned into the real ones), it
must listen on KNFLEET_BIND_ADDRESS, and it reaches the API server at its real loopback address.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from msgspec import Struct, structs

from knfleet.api.meta import Object
from knfleet.dev.node.addresses import NODE_ADDRESS, PodAddress
from knfleet.dev.node.containers.container import Container, ContainerContext
from knfleet.dev.node.containers.container_command import Rewriter, command_line, program
from knfleet.dev.node.containers.container_environment import (
    ReferenceMissing,
    RuntimeFields,
    environment,
)
from knfleet.dev.node.containers.container_probes import Probe, Prober, probe_of
from knfleet.dev.node.containers.container_process import ProcessSpec
from knfleet.dev.node.containers.own_images import (
    PLUGIN_IMAGES,
    image_environment,
    is_ours,
    repository_name,
)
from knfleet.dev.node.pods.pod_folders import PodFolder, link_executables, mount, mount_paths
from knfleet.dev.node.pods.pod_manifests import (
    annotations_of,
    containers_of,
    init_containers_of,
    is_sidecar,
    labels_of,
    restart_policy,
    rows,
)
from knfleet.dev.node.pods.pod_references import NamespaceStore
from knfleet.dev.node.pods.pod_status import PodReport, waiting
from knfleet.dev.node.pods.simulated_pod import container_status
from knfleet.dev.node.pods.tokens import PodTokens
from knfleet.dev.node.pods.volumes import UnsupportedVolume, VolumeSources, contents, publish
from knfleet.kube.auth.pod_path import POD_ROOT

BIND_ADDRESS = "KNFLEET_BIND_ADDRESS"
"""The environment variable that names the address to listen on."""
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
RETRY_SECONDS = 1.0

log = structlog.get_logger()


class PodHost(Struct, frozen=True):
    """What the node gives to all of its real pods."""

    pods_folder: Path
    api_server: str
    images: tuple[str, ...]
    prober: Prober


class ProcessPod:
    """The processes of one pod; `run` starts them, cancelling it stops them."""

    grace_limit_seconds = 10.0
    """The longest that a process has to end, whatever the pod says."""

    def __init__(
        self,
        pod: Object,
        host: PodHost,
        *,
        address: PodAddress,
        store: NamespaceStore,
        tokens: PodTokens,
        changed: Callable[[], None],
    ) -> None:
        self.pod = pod
        self.host = host
        self.address = address
        self.store = store
        self.tokens = tokens
        self.folder = PodFolder(host.pods_folder, pod)
        self.news = asyncio.Event()
        """Set for containers that wait for something."""
        self.stale = asyncio.Event()
        """Set when volumes may have new contents."""
        self.task: asyncio.Task[None] | None = None
        self.stopping = False
        self.failed = False
        """Whether not even the pod's files could be written."""
        around = ContainerContext(self.folder, self.launch, host.prober, changed, self.news)
        policy = restart_policy(pod)
        self.init_containers = [
            Container(each, init_policy(each, policy), around) for each in init_containers_of(pod)
        ]
        self.containers = [Container(each, policy, around) for each in containers_of(pod)]
        for container in (*self.init_containers, *self.containers):
            container.resume(container_status(pod, container.name))

    def report(self) -> PodReport:
        return PodReport(
            [each.report() for each in self.containers],
            [each.report() for each in self.init_containers],
        )

    def update(self, pod: Object) -> None:
        """Labels and annotations of a pod may change while it runs, and so its files of them."""
        before, self.pod = self.pod, pod
        if (labels_of(before), annotations_of(before)) != (labels_of(pod), annotations_of(pod)):
            self.stale.set()

    def sources_changed(self) -> None:
        """A ConfigMap or Secret of the namespace changed."""
        self.news.set()
        self.stale.set()

    def stop(self, grace_seconds: float) -> None:
        """Begin to end all processes; `run` returns when they are gone."""
        for each in (*self.init_containers, *self.containers):
            each.grace_seconds = min(grace_seconds, self.grace_limit_seconds)
        # A second cancellation would cut short the first one's patience with the processes.
        if self.task is not None and not self.stopping:
            self.stopping = True
            self.task.cancel()

    def kill(self) -> None:
        """End all processes without asking."""
        for each in (*self.init_containers, *self.containers):
            if each.process is not None and "running" in each.state:
                each.process.signal(signal.SIGKILL)

    def is_alive(self, container: str) -> bool:
        """Whether a container may still run, now or later."""
        found = [
            each for each in (*self.init_containers, *self.containers) if each.name == container
        ]
        return bool(found) and not self.ended and "terminated" not in found[0].state

    @property
    def ended(self) -> bool:
        """Whether no process of the pod runs, or ever will."""
        return self.task is not None and self.task.done()

    async def run(self) -> None:
        """Run init containers one after the other, then all others, until they ended for good."""
        self.folder.create()
        for each in (*self.init_containers, *self.containers):
            if self.init_containers and each.final is None:
                each.state = waiting("PodInitializing")
        async with asyncio.TaskGroup() as beside:
            helpers = [beside.create_task(self.keep_volumes_fresh())]
            try:
                if await self.initialize(beside, helpers):
                    async with asyncio.TaskGroup() as group:
                        for container in self.containers:
                            group.create_task(container.run())
            finally:
                for helper in helpers:
                    helper.cancel()

    async def initialize(
        self, beside: asyncio.TaskGroup, helpers: list[asyncio.Task[None]]
    ) -> bool:
        """Run the init containers in order; says whether all did their part."""
        for container in self.init_containers:
            if is_sidecar(container.manifest):
                helpers.append(beside.create_task(self.run_sidecar(container)))
                await container.started.wait()
            elif await container.run() != 0:
                return False
        return True

    async def run_sidecar(self, container: Container) -> None:
        await container.run()

    async def variables(self, container: Object) -> dict[str, str]:
        """What a container's manifest says of its environment, once its volumes are in place."""
        await self.store.known()
        await self.tokens.ensure()
        self.publish_volumes()
        self.stale.set()
        return environment(container, self.pod, self.facts, self.store)

    async def launch(self, container: Object) -> ProcessSpec:
        """How to start a container now, with its volumes in place."""
        variables = await self.variables(container)
        mount(self.folder, container, variables)
        root = self.folder.root(container["name"])
        rewriter = Rewriter(root, mount_paths(container))
        return ProcessSpec(
            program([rewriter.rewrite(part) for part in command_line(container, variables)]),
            {**self.base_environment(root), **rewriter.rewrite_all(variables)},
            self.working_folder(container),
            self.probes(container, rewriter),
        )

    def probes(self, container: Object, rewriter: Rewriter) -> dict[str, Probe]:
        """The container's probes, ready to be performed on this machine."""
        probes = {
            kind: probe_of(container[kind], container, self.address.loopback)
            for kind in PROBES
            if kind in container
        }
        for kind, probe in probes.items():
            if probe.command:
                command = program([rewriter.rewrite(part) for part in probe.command])
                probes[kind] = structs.replace(probe, command=command)
        return probes

    @property
    def facts(self) -> RuntimeFields:
        """What the pod may learn about where it runs."""
        return RuntimeFields(self.address.reported, NODE_ADDRESS)

    def base_environment(self, root: Path) -> dict[str, str]:
        """The variables that every container has."""
        server = urlsplit(self.host.api_server)
        programs = str(Path(sys.executable).parent)
        return image_environment() | {
            "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)]),
            "HOME": str(self.folder.path),
            "TMPDIR": str(self.folder.tmp),
            "LANG": "C.UTF-8",
            "HOSTNAME": self.pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": server.hostname or "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port or 443),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(server.port or 443),
            POD_ROOT: str(root),
            BIND_ADDRESS: self.address.loopback,
        }

    def working_folder(self, container: Object) -> Path:
        """Where a container's process begins: its working directory if that is in a volume."""
        wanted = container.get("workingDir") or ""
        inside = self.folder.root(container["name"]) / wanted.strip("/")
        return inside if wanted.strip("/") and inside.is_dir() else self.folder.path

    def publish_volumes(self) -> bool:
        """Write the files of all volumes; says whether any changed."""
        sources = VolumeSources(self.pod, self.facts, self.store, self.tokens.get)
        changed = False
        for volume in rows(self.pod["spec"].get("volumes")):
            folder = self.folder.volume(volume["name"])
            if "image" in volume:
                self.show_image(volume, folder)
            elif (files := contents(volume, sources)) is None:
                folder.mkdir(parents=True, exist_ok=True)
            else:
                changed |= publish(folder, files)
        return changed

    def show_image(self, volume: Object, folder: Path) -> None:
        """Fill an image volume, if it is of an image of ours."""
        reference = volume["image"].get("reference", "")
        if not is_ours(reference, (*self.host.images, *PLUGIN_IMAGES)):
            raise UnsupportedVolume(
                f'volume "{volume["name"]}": the dev node has no files of the image {reference}'
            )
        link_executables(folder, repository_name(reference))

    async def keep_volumes_fresh(self) -> None:
        """Publish volumes again when their sources changed, and tokens before they end."""
        wait: float | None = None
        while True:
            try:
                async with asyncio.timeout(wait):
                    await self.stale.wait()
            except TimeoutError:
                pass
            self.stale.clear()
            try:
                await self.tokens.ensure()
                self.publish_volumes()
                wait = self.tokens.renew_seconds()
            except (ReferenceMissing, UnsupportedVolume) as error:
                log.debug("volumes not fresh", pod=self.folder.path.name, error=str(error))
                wait = RETRY_SECONDS


def init_policy(container: Object, policy: str) -> str:
    """When an init container is started again."""
    if is_sidecar(container):
        return "Always"
    return "Never" if policy == "Never" else "OnFailure"
