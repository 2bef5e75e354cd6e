"""Figures of gRPC: registration and works beside the API server; idle agents; a restart.

    python -m bench.fleet.grpc_agents    on a real hub, whose processes are the real ones

Agents of the first parts are the hub's side of ours: they register as ours do, and keep open what
ours keep open; the part about works has whole agents on real spokes.
"""

import argparse
import asyncio
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import psutil
from msgspec import Struct

from bench.machine import machine
from bench.tunnel import Part, answering
from bench.usage import seconds
from knfleet.agent.grpc.event_works import EventWorkSource
from knfleet.agent.grpc.grpc_config import GrpcConfig
from knfleet.agent.hub_session import CertificateHolder
from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.agent.registration.cluster_registration import RegistrationRequest
from knfleet.agent.registration.drivers.registry import CSR, DRIVERS, GRPC
from knfleet.agent.registration.identity import HUB, Bootstrap, HubAddress, HubCredentials
from knfleet.agent.registration.registration import register
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.cluster.managedcluster import AVAILABLE, CLUSTERS, LEASE_NAME
from knfleet.api.conditions import StandardCondition, find
from knfleet.api.core import CRDS, LEASES
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key, Object
from knfleet.api.operator import (
    BOOTSTRAP_ACCOUNT,
    CLUSTER_MANAGER,
    CLUSTER_MANAGERS,
    OPERATOR_NAMESPACE,
)
from knfleet.api.schema import decode
from knfleet.api.work.manifestwork import WORKS, ManifestWork
from knfleet.dev import processes
from knfleet.kube.cache.informer import Informer
from knfleet.kube.client.verbs import Client, ListSelection
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError
from knfleet.runtime.leader.lease_rules import microtime
from testbed import hubs, small_release
from testbed.agent_process import Agent, bootstrap_token, condition, prepare_spoke
from testbed.clusters import Lent, Pool
from testbed.grpc_servers import HOST, GrpcServerProcess, grpc_manager, published_ca, server_process
from testbed.hub_process import HubProcess, kubeconfig
from testbed.waiting import until

USER = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{BOOTSTRAP_ACCOUNT}"
BEAT_SECONDS = 60.0
KB = 1024
PATIENCE_SECONDS = 600.0


class WayIn(Struct, frozen=True):
    """How agents reach a hub before it knows them."""

    driver: str
    connection: Connection
    grpc: GrpcConfig

    @property
    def bootstrap(self) -> Bootstrap:
        endpoint, credentials = self.connection.endpoint, self.connection.credentials
        found = Connection(HUB, endpoint, credentials)
        return Bootstrap(HubAddress("hub", endpoint), found, self.grpc)


class HubSide:
    """What an agent does at its hub, without a cluster of its own."""

    def __init__(self, cluster: str, way: WayIn) -> None:
        self.cluster = cluster
        self.driver = DRIVERS[way.driver]
        self.way = way
        self.credentials: HubCredentials | None = None
        self.followed: list[Informer] = []
        self.works: EventWorkSource | None = None

    async def register(self) -> None:
        """Get a certificate."""
        wanted = RegistrationRequest(AgentNames(self.cluster, "a1"))
        made = await register(self.driver, self.way.bootstrap, wanted, ignore)
        self.credentials = self.driver.located(made, self.way.bootstrap, None)

    async def live(self) -> None:
        """Follow what an agent follows, and send heartbeats."""
        assert self.credentials is not None
        holder = CertificateHolder(self.credentials)
        hub = self.driver.session_client(self.way.bootstrap, self.cluster, holder)
        own = Informer(hub, CLUSTERS, fields=f"metadata.name={self.cluster}")
        self.followed = [own, Informer(hub, ADDONS, self.cluster)]
        source = self.driver.work_source(hub, self.way.connection.endpoint.server, self.cluster)
        assert isinstance(source, EventWorkSource)
        self.works = source
        parts = [*self.followed, *self.driver.components(hub), source]
        async with asyncio.TaskGroup() as group:
            for each in parts:
                group.create_task(each.run())
            while True:
                await asyncio.sleep(BEAT_SECONDS * random.uniform(0.8, 1.0))
                with suppress(KubeError):
                    lease = await hub.get(LEASES, LEASE_NAME, self.cluster)
                    spec = {**lease["spec"], "renewTime": microtime(datetime.now(UTC))}
                    await hub.replace(LEASES, {**lease, "spec": spec})

    def is_connected(self) -> bool:
        """Whether everything is followed."""
        works = self.works
        if works is None or not works.synced.is_set() or works.failures:
            return False
        return all(each.synced.is_set() and each.failing is None for each in self.followed)


def ignore(reason: str, message: str) -> None:
    """Nobody is told what keeps an agent from joining: it tries again."""
    del reason, message


async def agents_part(pipe: Pipe, way: WayIn, names: Sequence[str]) -> None:
    """Agents in a process of their own."""
    sides = [HubSide(name, way) for name in names]
    async with asyncio.TaskGroup() as group:
        registering, living = asyncio.Event(), asyncio.Event()

        def begin(step: asyncio.Event) -> bool:
            step.set()
            return True

        async def life(each: HubSide) -> None:
            await registering.wait()
            await each.register()
            await living.wait()
            await each.live()

        for each in sides:
            group.create_task(life(each))
        await answering(
            pipe,
            {
                "register": lambda: begin(registering),
                "live": lambda: begin(living),
                "registered": lambda: sum(each.credentials is not None for each in sides),
                "open": lambda: sum(each.is_connected() for each in sides),
            },
        )


class HubScene(Struct):
    """A hub with its processes."""

    lent: Lent
    client: Client
    hub: HubProcess
    server: GrpcServerProcess
    grpc: GrpcConfig
    connection: Connection

    def way(self, driver: str) -> WayIn:
        return WayIn(driver, self.connection, self.grpc)

    def used(self) -> dict[str, float]:
        """CPU seconds of the hub's processes so far."""
        found = processes.recorded(self.lent.folder)
        pids = {
            "API server": found[f"{self.lent.name}.kube-apiserver"].pid,
            "hub": pid_of(self.hub.process),
            "gRPC server": pid_of(self.server.process),
        }
        return {name: seconds(psutil.Process(pid)) for name, pid in pids.items()}


def pid_of(process: asyncio.subprocess.Process | None) -> int:
    assert process is not None
    return process.pid


def manager() -> Object:
    """A ClusterManager that takes agents of both drivers in without a person."""
    made = grpc_manager(USER)
    drivers = made["spec"]["registrationConfiguration"]["registrationDrivers"]
    drivers[0]["csr"] = {"autoApprovedIdentities": [USER]}
    return made


async def hub_scene(stack: AsyncExitStack, lent: Lent, folder: Path) -> HubScene:
    """Start everything of a hub."""
    client = await stack.enter_async_context(Client(lent.connection))
    await hubs.install(lent.connection)
    await client.apply(CLUSTER_MANAGERS, manager())
    account = await hubs.as_account(lent.connection, CLUSTER_MANAGER)
    releases = folder / "releases"
    releases.mkdir()
    hub = HubProcess(kubeconfig(folder, account), small_release.write(releases), folder / "hub.log")
    await hub.start("--disable-ha", SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)
    stack.push_async_callback(hub.kill)
    ca = await published_ca(client)
    (folder / "server").mkdir()
    server = await server_process(lent.connection, folder / "server")
    await server.start()
    stack.push_async_callback(server.kill)
    token = await bootstrap_token(client)
    return HubScene(
        lent,
        client,
        hub,
        server,
        GrpcConfig(f"{HOST}:{server.port}", ca, token),
        hubs.with_token(lent.connection, token),
    )


async def reached(part: Part, question: str, count: int) -> float:
    """Seconds until so many agents answer a question with yes."""
    began = time.perf_counter()
    while (found := part.ask(question)) < count:
        assert time.perf_counter() - began < PATIENCE_SECONDS, f"{found} of {count}"
        await asyncio.sleep(0.05)
    return time.perf_counter() - began


async def registration(scene: HubScene, driver: str, names: Sequence[str]) -> tuple[float, Part]:
    """Have agents register at once; the seconds that it took, and the agents."""
    part = Part(agents_part, scene.way(driver), names)
    before = scene.used()
    part.ask("register")
    took = await reached(part, "registered", len(names))
    used = {name: value - before[name] for name, value in scene.used().items()}
    used["the agents themselves"] = part.cpu()
    parts = ", ".join(f"{name} {value:.1f}" for name, value in used.items())
    print(f"{len(names)} agents by {driver}: {took:.1f} s; CPU seconds: {parts}", flush=True)
    return took, part


async def agents(scene: HubScene, count: int, rounds: int, idle_seconds: float) -> None:
    """Registration by both drivers in turn; then idle agents, and a restart of the server."""
    took: dict[str, list[float]] = {CSR: [], GRPC: []}
    for number in range(rounds):
        for driver in (CSR, GRPC) if number % 2 else (GRPC, CSR):
            names = [f"{driver[0]}{number}-{index:03}" for index in range(count)]
            seconds_taken, part = await registration(scene, driver, names)
            took[driver].append(seconds_taken)
            part.kill()
    if rounds:
        ratio = statistics.median(took[GRPC]) / statistics.median(took[CSR])
        print(f"registration: gRPC takes {ratio:.2f} of the time of CSRs", flush=True)
    await scene.server.kill()
    await scene.server.start()
    await asyncio.sleep(5)
    before_all = own_memory(scene.server)
    _, part = await registration(scene, GRPC, [f"idle-{index:03}" for index in range(count)])
    try:
        await asyncio.sleep(10)
        memory = own_memory(scene.server)
        each = (memory - before_all) / count
        print(f"registration leaves {each / KB:.0f} KB for each on the gRPC server", flush=True)
        part.ask("live")
        await reached(part, "open", count)
        await asyncio.sleep(10)
        each = (own_memory(scene.server) - memory) / count
        before, began = scene.used(), time.perf_counter()
        await asyncio.sleep(idle_seconds)
        elapsed = time.perf_counter() - began
        share = (scene.used()["gRPC server"] - before["gRPC server"]) / elapsed
        print(
            f"{count} idle agents for {elapsed:.0f} s: the gRPC server uses {share:.2%} of a core,"
            f" and {each / KB:.0f} KB for each",
            flush=True,
        )
        await scene.server.kill()
        await until(lambda: part.ask("open") == 0, "all agents have noticed that it is gone")
        began = time.perf_counter()
        await scene.server.start()
        started = time.perf_counter() - began
        before, agents_before = scene.used(), part.cpu()
        await reached(part, "open", count)
        back = time.perf_counter() - began
        used = {name: value - before[name] for name, value in scene.used().items()}
        used["the agents themselves"] = part.cpu() - agents_before
        parts = ", ".join(f"{name} {value:.1f}" for name, value in used.items())
        print(
            f"server restarted: it listens after {started:.1f} s, all {count} agents are back after"
            f" {back:.1f} s; CPU seconds meanwhile: {parts}",
            flush=True,
        )
    finally:
        part.kill()


def own_memory(server: GrpcServerProcess) -> int:
    """Bytes that a server needs for itself alone."""
    return psutil.Process(pid_of(server.process)).memory_full_info().uss


def work(name: str, cluster: str) -> Object:
    """A work with one ConfigMap."""
    meta = {"name": name, "namespace": "default"}
    content: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {}}
    return {
        "apiVersion": WORKS.api_version,
        "kind": WORKS.kind,
        "metadata": {"name": name, "namespace": cluster},
        "spec": {"workload": {"manifests": [content]}},
    }


async def works(scene: HubScene, spokes: Sequence[Lent], folder: Path, count: int) -> None:
    """One work after the other on a cluster of each driver, until each is Applied."""
    async with AsyncExitStack() as stack:
        for driver, spoke_lent in zip((CSR, GRPC), spokes, strict=True):
            await join(stack, scene, driver, spoke_lent, folder)
        took: dict[str, list[float]] = {CSR: [], GRPC: []}
        for number in range(count):
            for driver in (CSR, GRPC) if number % 2 else (GRPC, CSR):
                took[driver].append(await until_applied(scene.client, f"w{number}", driver))
        medians = {driver: statistics.median(found) for driver, found in took.items()}
        print(
            f"{count} works each, created until Applied: csr {medians[CSR] * 1000:.0f} ms,"
            f" grpc {medians[GRPC] * 1000:.0f} ms, ratio {medians[GRPC] / medians[CSR]:.2f}",
            flush=True,
        )


async def join(
    stack: AsyncExitStack, scene: HubScene, driver: str, spoke_lent: Lent, folder: Path
) -> None:
    """Start a whole agent of a spoke, whose cluster is called like its driver."""
    spoke = await stack.enter_async_context(Client(spoke_lent.connection))
    for each in spoke_definitions():
        await spoke.apply(CRDS, each)
        await hubs.established(spoke, each["metadata"]["name"])
    await prepare_spoke(spoke)
    home = folder / driver
    home.mkdir()
    agent = Agent(spoke_lent, home, driver)
    agent.point_to(scene.lent.connection.endpoint, scene.grpc.token)
    flags: tuple[str, ...] = ()
    if driver == GRPC:
        config = home / "grpc.yaml"
        config.write_bytes(scene.grpc.with_token())
        flags = ("--registration-auth", "grpc", "--grpc-bootstrap-config", str(config))
    await agent.start(*flags)
    stack.push_async_callback(agent.end, signal.SIGKILL)

    async def is_there() -> bool:
        found = await scene.client.list(CLUSTERS, fields=f"metadata.name={driver}")
        return bool(found.items)

    await until(is_there, f"{driver} asks to join")
    await condition(scene.client, AVAILABLE, "True", name=driver)


async def until_applied(hub: Client, name: str, cluster: str) -> float:
    """Seconds from the creation of a work until it is Applied."""
    selection = ListSelection(WORKS, cluster, "", f"metadata.name={name}")
    async with hub.watching(selection) as events:
        began = time.perf_counter()
        await hub.create(WORKS, work(name, cluster))
        async for event in events:
            if event.type != "BOOKMARK" and is_applied(event.object):
                break
    taken = time.perf_counter() - began
    await hub.delete(WORKS, Key(cluster, name))
    return taken


def is_applied(manifest: Object) -> bool:
    """Whether a work is Applied."""
    found: StandardCondition | None = find(
        decode(manifest, ManifestWork).status.conditions, "Applied"
    )
    return found is not None and found.status == "True"


async def measure(count: int, rounds: int, idle_seconds: float, of_works: int) -> None:
    """Measure everything."""
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="knfleet-bench-") as made:
        folder = Path(made)
        pool = Pool(folder / "dev")
        try:
            hub, *spokes = await pool.lend(3 if of_works else 1)
            async with AsyncExitStack() as stack:
                scene = await hub_scene(stack, hub, folder)
                if of_works:
                    await works(scene, spokes, folder, of_works)
                if count:
                    await agents(scene, count, rounds, idle_seconds)
        finally:
            pool.close()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--works", type=int, default=40)
    asked = parser.parse_args()
    asyncio.run(measure(asked.agents, asked.rounds, asked.seconds, asked.works))


if __name__ == "__main__":
    main()
