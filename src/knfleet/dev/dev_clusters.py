"""Brings a hub and its spokes up on this machine, tells how they are, and takes them down.

`up` makes true what is asked for, whatever it finds: it starts what is missing, wakes what is
frozen, adds what is new, and undoes what it began when it is interrupted.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import psutil
from msgspec.structs import replace

from knfleet.api.core import NODES, SERVICE_ACCOUNTS
from knfleet.api.meta import Object
from knfleet.dev import control_plane, pki, ports, processes
from knfleet.dev.binaries import locate
from knfleet.dev.control_plane import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    NETWORK,
    NODE,
    OUTBOUND,
)
from knfleet.dev.dev_folder import DevClusterState, DevFolder, DevState, locked, write_private
from knfleet.dev.errors import DevError
from knfleet.dev.network import network_namespace
from knfleet.dev.node.containers import orphan_processes
from knfleet.dev.progress_reporter import ProgressReporter, SilentProgress
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError

MOST_SPOKES = 60
READY_SECONDS = 180.0
POLL_SECONDS = 0.1
PORT_SECONDS = 3.0
NEEDED_BYTES = 200 * 2**20
OPERATOR = "operator"
DASHBOARD = "dashboard"
TUNNEL_PORTS = "tunnel-ports"
STOPPING_ORDER = (
    *(DASHBOARD, TUNNEL_PORTS, OPERATOR),
    *(NODE, CONTROLLER_MANAGER, API_SERVER),
    *(OUTBOUND, NETWORK),
    ETCD,
)


class ProcessEnded(DevError):
    """A process ended while it was waited for."""

    def __init__(self, message: str, process: processes.RecordedProcess) -> None:
        super().__init__(message)
        self.process = process


class DevClusters:
    """The dev clusters of one folder."""

    def __init__(
        self,
        folder: DevFolder,
        *,
        progress: ProgressReporter | None = None,
        port_range: range | None = None,
    ) -> None:
        self.folder = folder
        self.progress = progress or SilentProgress()
        self.port_range = port_range or ports.DEFAULT_RANGE
        self.started: list[processes.RecordedProcess] = []
        """What this run has started, and takes back when it fails."""
        self.audit_policy: Object | None = None
        self.token_webhook = ""
        """The address of a webhook that API servers ask about tokens; none when empty."""
        """Which requests API servers that are started from now on write down; none without it."""

    async def up(
        self, spokes: int, isolated: Mapping[str, Sequence[int]] | None = None
    ) -> DevState:
        """A hub and at least so many spokes, all ready.

        A new cluster that `isolated` names has a network of its own, into which no address leads;
        from inside only the hub's API server and the given ports of this machine are reached.
        """
        tools = await locate.ensure(self.progress)
        self.started = []
        self.folder.create()
        with locked(self.lock, busy=f"`knfleet dev` is at work in {self.folder.root}; let it end"):
            before = self.folder.read()
            self.check_space()
            names = ["hub", *(f"spoke{n + 1}" for n in range(spokes))]
            state = self.widened(before, names, isolated or {})
            try:
                self.folder.write(state)
                await self.bring_up(state, tools)
                accesses = [control_plane.access(self.folder, each) for each in state.clusters]
                write_private(self.folder.kubeconfig, pki.kubeconfig(accesses))
            except DevError:
                self.roll_back(before, state)
                raise
            except BaseException:
                self.roll_back(before, state)
                self.forget(before, state)
                raise
        return state

    @property
    def lock(self) -> Path:
        """Held while a process changes the clusters."""
        return self.folder.root / "lock"

    def check_space(self) -> None:
        """Refuse to start on a disk that etcd would fill."""
        free = shutil.disk_usage(self.folder.root).free
        if free < NEEDED_BYTES:
            raise DevError(
                f"only {free >> 20} MB are free in {self.folder.root}, {NEEDED_BYTES >> 20} are"
                " needed; free space, or choose another folder with --dir"
            )

    def widened(
        self, state: DevState, names: Sequence[str], isolated: Mapping[str, Sequence[int]]
    ) -> DevState:
        """The state with the clusters that are still missing in it."""
        new = [name for name in dict.fromkeys((*names, *isolated)) if state.cluster(name) is None]
        first = max((each.index + 1 for each in state.clusters), default=0)
        added = tuple(
            DevClusterState(
                name,
                first + n,
                port,
                new_prefix(name),
                tuple(isolated[name]) if name in isolated else None,
            )
            for n, (name, port) in enumerate(
                zip(
                    new,
                    ports.reserve(len(new), self.port_range, self.folder.state_file),
                    strict=True,
                )
            )
        )
        return DevState(clusters=state.clusters + added)

    async def bring_up(self, state: DevState, tools: locate.Toolset) -> None:
        """Start what does not run, and wait until everything is ready."""
        arguments = control_plane.etcd_arguments(tools["etcd"].path, self.folder)
        if ETCD not in self.running():
            control_plane.etcd_socket(self.folder).unlink(missing_ok=True)
        self.ensure_running(ETCD, arguments, control_plane.environment())
        await self.wait(ETCD, self.etcd_answers, "etcd does not answer")
        started, total = time.monotonic(), len(state.clusters)
        ready: list[str] = []

        async def bring(cluster: DevClusterState) -> None:
            try:
                await self.bring_up_one(cluster, tools)
            except ProcessEnded as ended:
                if ended.process in self.started:
                    raise
                # It was killed just before we looked, and had not ended yet.
                await self.bring_up_one(cluster, tools)
            ready.append(cluster.name)
            self.progress.report(
                f"{cluster.name} is ready after {time.monotonic() - started:.1f} s"
            )
            self.progress.advance("clusters ready", len(ready), total)

        self.progress.advance("clusters ready", 0, total)
        try:
            async with asyncio.TaskGroup() as group:
                for cluster in state.clusters:
                    group.create_task(bring(cluster))
        except* (DevError, KubeError) as errors:
            raise DevError(str(first(errors))) from None

    async def bring_up_one(self, cluster: DevClusterState, tools: locate.Toolset) -> None:
        """One cluster, ready."""
        await asyncio.to_thread(control_plane.prepare, self.folder, cluster)
        name = control_plane.process_name(cluster.name, API_SERVER)
        if name not in self.running() and not await becomes_free(cluster.port):
            raise DevError(
                f"port {cluster.port} of {cluster.name} is taken by {ports.owner(cluster.port)};"
                " end that process, or start over with `knfleet dev down` and `knfleet dev up`"
            )
        environment = control_plane.environment()
        await self.bring_up_network(cluster)
        self.ensure_running(name, self.api_server(cluster, tools), environment, cluster)
        async with Client(control_plane.connection(self.folder, cluster)) as client:
            await self.wait(name, lambda: readyz(client), f"{cluster.name} does not become ready")
            manager = control_plane.process_name(cluster.name, CONTROLLER_MANAGER)
            self.ensure_running(
                manager, self.controller_manager(cluster, tools), environment, cluster
            )
            node = control_plane.process_name(cluster.name, NODE)
            self.ensure_running(node, self.node(cluster), place=cluster)
            await self.wait(
                manager,
                lambda: exists(client, "default"),
                f"{cluster.name} gets no ServiceAccount from its controller manager",
            )
            await self.wait(
                node, lambda: node_ready(client), f"the node of {cluster.name} is not ready"
            )

    async def bring_up_network(self, cluster: DevClusterState) -> None:
        """The network of an isolated cluster, and the ways out of it."""
        sockets = control_plane.inner_sockets(self.folder, cluster)
        if sockets is None or cluster.outbound is None:
            return
        name = control_plane.process_name(cluster.name, NETWORK)
        if name not in self.running():
            if problem := network_namespace.problem():
                raise DevError(
                    f"{cluster.name} cannot have a network of its own: {problem};"
                    " run as root, or permit user namespaces"
                )
            # What still runs in a network that nobody holds cannot be reached any more.
            self.end(self.recorded_of(cluster.name))
        self.ensure_running(name, control_plane.network_arguments(sockets))

        async def gives_sockets() -> bool:
            with contextlib.suppress(OSError):
                os.close(sockets())
                return True
            return False

        await self.wait(name, gives_sockets, f"the network of {cluster.name} is not there")
        hub = self.folder.read().clusters[0]
        self.ensure_running(
            control_plane.process_name(cluster.name, OUTBOUND),
            control_plane.outbound_arguments(sockets, (hub.port, *cluster.outbound)),
        )

    def entering(self, name: str) -> list[str]:
        """The words in front of a command that is to run in the network of a cluster."""
        return self.inside(self.cluster(name))

    def inside(self, cluster: DevClusterState) -> list[str]:
        """The words in front of a command that is to run where a cluster's own processes do."""
        if cluster.outbound is None:
            return []
        holder = self.running().get(control_plane.process_name(cluster.name, NETWORK))
        if holder is None:
            raise DevError(
                f"the network of {cluster.name} is not there;"
                f" run `knfleet dev up --dir {self.folder.root}`"
            )
        return network_namespace.entering(holder.pid)

    def api_server(self, cluster: DevClusterState, tools: locate.Toolset) -> list[str]:
        """How the API server of a cluster is started."""
        arguments = control_plane.api_server_arguments(tools[API_SERVER].path, self.folder, cluster)
        if self.audit_policy is not None:
            arguments += control_plane.audit_arguments(self.folder, cluster, self.audit_policy)
        if self.token_webhook:
            arguments += control_plane.webhook_arguments(self.folder, cluster, self.token_webhook)
        return arguments

    def controller_manager(self, cluster: DevClusterState, tools: locate.Toolset) -> list[str]:
        """How the controller manager of a cluster is started."""
        return control_plane.controller_manager_arguments(
            tools[CONTROLLER_MANAGER].path, self.folder, cluster
        )

    def node(self, cluster: DevClusterState) -> list[str]:
        """How the node of a cluster is started."""
        return control_plane.node_arguments(self.folder, cluster)

    def connection(self, name: str) -> Connection:
        """The administrator's connection to a cluster."""
        return control_plane.connection(self.folder, self.cluster(name))

    def cluster(self, name: str) -> DevClusterState:
        """A cluster as `up` decided it."""
        cluster = self.folder.read().cluster(name)
        if cluster is None:
            raise DevError(f"there is no cluster {name!r} in {self.folder.root}")
        return cluster

    def recorded_of(self, name: str) -> list[processes.RecordedProcess]:
        """The processes that were started for a cluster."""
        known = processes.recorded(self.folder).values()
        return [each for each in known if each.name.startswith(f"{name}.")]

    def running(self) -> dict[str, processes.RecordedProcess]:
        """The processes that are alive."""
        known = processes.recorded(self.folder)
        return {name: process for name, process in known.items() if process.live()}

    def ensure_running(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        place: DevClusterState | None = None,
    ) -> None:
        """Start a process unless it runs, and wake it if it is frozen.

        It runs in the network of `place`, if that is a cluster that has one.
        """
        process = self.running().get(name)
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(process.pid).send_signal(signal.SIGCONT)
            return
        command = [*(self.inside(place) if place is not None else []), *arguments]
        self.started.append(processes.start(self.folder, name, command, environment))

    async def wait(
        self, process: str, condition: Callable[[], Awaitable[bool]], problem: str
    ) -> None:
        """Wait until something holds; the process that should bring it about must stay alive."""
        deadline = time.monotonic() + READY_SECONDS
        recorded = processes.recorded(self.folder)[process]
        while not await condition():
            log = self.folder.log(process)
            if recorded.live() is None:
                processes.reap(recorded.pid)
                raise ProcessEnded(
                    f"{process} ended right after its start; its log {log} ends with:\n"
                    f"{processes.tail(log)}",
                    recorded,
                )
            if time.monotonic() > deadline:
                raise DevError(
                    f"{problem} within {READY_SECONDS:.0f} s; look at {log}, which ends with:\n"
                    f"{processes.tail(log)}"
                )
            await asyncio.sleep(POLL_SECONDS)

    async def etcd_answers(self) -> bool:
        """Whether etcd accepts connections."""
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(control_plane.etcd_socket(self.folder)))
            return True
        return False

    def roll_back(self, before: DevState, state: DevState) -> None:
        """End what this run started; clusters that ran before keep running."""
        self.end(self.started)
        self.started = []
        if before.clusters != state.clusters:
            self.folder.write(before)

    def forget(self, before: DevState, state: DevState) -> None:
        """Remove the files of clusters that this run began and was asked to give up."""
        if not before.clusters:
            self.folder.remove()
            return
        for cluster in state.clusters:
            if before.cluster(cluster.name) is None:
                shutil.rmtree(self.folder.cluster(cluster.name), ignore_errors=True)

    async def renew(self, name: str) -> None:
        """Replace a cluster by a new one of the same name, port and certificates."""
        tools = await locate.ensure(self.progress)
        with locked(self.lock, busy=f"`knfleet dev` is at work in {self.folder.root}; let it end"):
            state = self.folder.read()
            self.end(self.recorded_of(name))
            (self.folder.cluster(name) / "baseline.json").unlink(missing_ok=True)
            self.folder.write(
                DevState(
                    clusters=tuple(
                        replace(each, prefix=new_prefix(name)) if each.name == name else each
                        for each in state.clusters
                    )
                )
            )
            await self.bring_up(self.folder.read(), tools)

    def down(self) -> bool:
        """End every process and remove every file; whether there was anything."""
        if not self.folder.exists():
            return False
        busy = f"`knfleet dev` is at work in {self.folder.root} and does not end; stop it first"
        with locked(self.lock, wait_seconds=60, busy=busy):
            remaining = self.end(list(processes.recorded(self.folder).values()))
            if remaining:
                names = ", ".join(f"{each.name} (pid {each.pid})" for each in remaining)
                raise DevError(f"{names} did not end, not even by force; run this again")
            self.folder.remove()
        return True

    def end(self, started: Sequence[processes.RecordedProcess]) -> list[processes.RecordedProcess]:
        """End processes: nodes politely, so that they end their pods; the rest at once."""
        nodes = [each for each in started if each.name.endswith(f".{NODE}")]
        remaining = processes.stop(self.folder, nodes, grace_seconds=8)
        rest = sorted(
            (each for each in started if each not in nodes),
            key=lambda each: STOPPING_ORDER.index(each.name.rpartition(".")[2]),
        )
        remaining += processes.stop(self.folder, rest)
        for each in nodes:
            orphan_processes.kill_orphans(
                self.folder.cluster(each.name.rpartition(".")[0]) / "pods"
            )
        return remaining


def new_prefix(name: str) -> str:
    """A prefix in etcd that was never used."""
    return f"/{name}-{secrets.token_hex(4)}"


async def becomes_free(port: int) -> bool:
    """Whether a port is free, or will be in a moment: a server that ends keeps it a little."""
    deadline = time.monotonic() + PORT_SECONDS
    while not ports.is_free(port):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


def first(errors: BaseExceptionGroup[Exception]) -> BaseException:
    """The first of several errors that happened at once."""
    error = errors.exceptions[0]
    return first(error) if isinstance(error, BaseExceptionGroup) else error


async def readyz(client: Client) -> bool:
    """Whether an API server says that it is ready."""
    with contextlib.suppress(KubeError):
        return await client.raw("GET", "/readyz", deadline=5) == b"ok"
    return False


async def exists(client: Client, name: str) -> bool:
    """Whether the default namespace has a ServiceAccount of that name, so that pods can be made."""
    with contextlib.suppress(KubeError):
        await client.get(SERVICE_ACCOUNTS, name, "default", deadline=5)
        return True
    return False


async def node_ready(client: Client) -> bool:
    """Whether the cluster has a node that takes pods."""
    with contextlib.suppress(KubeError):
        for node in (await client.list(NODES, deadline=5)).items:
            for condition in node.get("status", {}).get("conditions", []):
                if condition["type"] == "Ready" and condition["status"] == "True":
                    return True
    return False
