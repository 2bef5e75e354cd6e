"""The gRPC server in this process, with no more rights than it gets from `init`."""

import asyncio
import base64
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGERS, GRPC_SERVER, HUB_NAMESPACE
from knfleet.dev import ports
from knfleet.hub.grpc.event_service import ServiceLimits
from knfleet.hub.grpc.grpc_names import BUNDLE_CONFIG_MAP, BUNDLE_KEY
from knfleet.hub.grpc.main import GrpcServer, GrpcServerSettings, start
from knfleet.install.deployments import HubInstall, cluster_manager
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import NotFound
from knfleet.kube.yaml import dump_all
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.manager import Manager
from testbed import hub_process, hubs
from testbed.waiting import until

HOST = "localhost"


class RunningServer(Struct, frozen=True):
    """A gRPC server that agents can reach."""

    url: str
    ca: bytes
    server: GrpcServer

    def config(self, token: str = "") -> bytes:
        """The configuration of a client, with a token if there is one."""
        content = {"url": self.url, "caData": base64.b64encode(self.ca).decode()}
        return dump_all([{**content, "token": token} if token else content]).encode()


def grpc_manager(*users: str) -> Object:
    """A ClusterManager that has agents register over gRPC; of some users without a person."""
    manager = cluster_manager(HubInstall(image=""))
    registration = manager["spec"]["registrationConfiguration"]
    registration["registrationDrivers"] = [
        {"authType": "csr"},
        {"authType": "grpc", "grpc": {"autoApprovedIdentities": list(users)}},
    ]
    if users:
        gate = {"feature": "ManagedClusterAutoApproval", "mode": "Enable"}
        registration["featureGates"] = [gate]
    endpoint = {"type": "hostname", "hostname": {"host": HOST}}
    exposed = {"protocol": "grpc", "usage": "agentToHub", "grpc": endpoint}
    manager["spec"]["serverConfiguration"] = {"endpointsExposure": [exposed]}
    return manager


async def published_ca(hub: Client) -> bytes:
    """The CA that agents trust, as soon as the hub has published it."""
    found: list[str] = []

    async def is_published() -> bool:
        try:
            config = await hub.get(CONFIG_MAPS, BUNDLE_CONFIG_MAP, HUB_NAMESPACE)
        except NotFound:
            return False
        found.append(config["data"][BUNDLE_KEY])
        return True

    await until(is_published, "the CA of the gRPC server is published")
    return found[-1].encode()


@asynccontextmanager
async def running(
    admin: Connection, folder: Path, *users: str, limits: ServiceLimits | None = None
) -> AsyncGenerator[RunningServer]:
    """The gRPC server of a hub that runs."""
    (port,) = ports.reserve(1, ports.DEFAULT_RANGE, folder / "grpc-ports")
    settings = GrpcServerSettings(
        ListenAddress("127.0.0.1", port), limits=limits or ServiceLimits()
    )
    async with Client(admin) as client:
        await client.apply(CLUSTER_MANAGERS, grpc_manager(*users))
        ca = await published_ca(client)
    account = await hubs.as_account(admin, GRPC_SERVER, HUB_NAMESPACE)
    manager = Manager()
    server = start(manager, account, settings)
    task = asyncio.create_task(manager.run())
    try:
        await asyncio.wait_for(server.relay.listening.wait(), 60)
        yield RunningServer(f"{HOST}:{port}", ca, server)
    finally:
        manager.stop()
        with suppress(asyncio.CancelledError):
            await task
        # Connections that were aborted are closed in the next turn of the loop.
        await asyncio.sleep(0)


class GrpcServerProcess(Struct):
    """`knfleet grpc-server` as a process, started as often as a test wants."""

    kubeconfig: Path
    port: int
    log: Path
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "knfleet", "grpc-server"),
                *("--kubeconfig", str(self.kubeconfig), "--port", str(self.port)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        await until(self.listens, f"the gRPC server listens; see {self.log}")

    async def listens(self) -> bool:
        """Whether it accepts connections."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def kill(self) -> None:
        """Kill it, if it runs."""
        process, self.process = self.process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


async def server_process(admin: Connection, folder: Path) -> GrpcServerProcess:
    """A server with no more rights than it gets from `init`, not started yet."""
    (port,) = ports.reserve(1, ports.DEFAULT_RANGE, folder / "grpc-ports")
    account = await hubs.as_account(admin, GRPC_SERVER, HUB_NAMESPACE)
    path = hub_process.kubeconfig(folder, account)
    return GrpcServerProcess(path, port, folder / "grpc-server.log")
