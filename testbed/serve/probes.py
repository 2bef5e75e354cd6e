"""Probes through the network of a cluster, gRPC probes among them."""

import asyncio
import socket
import tempfile
from pathlib import Path
from typing import Any, cast

import aiohttp
import grpc
from grpc import aio

from knfleet.dev.egress import SplicedSide
from knfleet.dev.node.containers.container_probes import Probe, Prober
from testbed.serve.networks import ClusterNetwork
from testbed.serve.splices import connected, relay_to

HEALTH = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"
"""The answer of which the first field, the status, is SERVING."""


class GrpcProbe(Probe, frozen=True):
    """A probe by the health protocol of gRPC, at an address."""

    service: str = ""


class NetworkProber(Prober):
    """Performs probes in the network of a cluster."""

    def __init__(self, network: ClusterNetwork) -> None:
        self.network = network
        super().__init__()

    def connector(self) -> aiohttp.TCPConnector:
        """Sockets are made in the cluster's network."""

        def make(_: Any) -> socket.socket:
            return self.network.namespace.stream()

        return aiohttp.TCPConnector(ssl=False, force_close=True, socket_factory=make)

    async def connect(self, host: str, port: int) -> bool:
        """Whether a process accepts connections."""
        side = await connected(self.network, SplicedSide, host, port)
        if side.transport is not None:
            side.transport.close()
        return True

    async def probe(self, probe: Probe, environment: dict[str, str], folder: Path) -> bool:
        """Whether the container answers the probe in time, and well."""
        if not isinstance(probe, GrpcProbe):
            return await super().probe(probe, environment, folder)
        try:
            async with asyncio.timeout(probe.timeout_seconds):
                return await self.ask_health(probe)
        except (TimeoutError, OSError, grpc.RpcError):
            return False

    async def ask_health(self, probe: GrpcProbe) -> bool:
        """Ask a server how it is; gRPC knows no sockets of others, but Unix sockets."""
        assert probe.address is not None
        name = probe.service.encode()
        request = bytes([0x0A, len(name)]) + name if name else b""
        with tempfile.TemporaryDirectory(prefix="probe-") as folder:
            path = f"{folder}/health"
            server = await asyncio.get_running_loop().create_unix_server(
                relay_to(self.network, *probe.address), path
            )
            try:
                async with aio.insecure_channel(f"unix:{path}") as channel:
                    answer = cast("bytes", await channel.unary_unary(HEALTH)(request))
                    return answer[:2] == SERVING
            finally:
                server.close()
