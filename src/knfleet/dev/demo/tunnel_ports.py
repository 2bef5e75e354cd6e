"""Ports on this machine that lead to the tunnel of a hub which runs as a pod of a dev cluster.

Stands in for the load balancer that a cloud puts before a Service. It is a process of the dev
clusters, `python -m knfleet.dev.demo.tunnel_ports`, because it must outlive `knfleet demo --keep`.
"""

import asyncio
import contextlib
import sys
from pathlib import Path

from msgspec import Struct

from knfleet.api.cluster.tunnel import AGENT_PORT, FRONT_PORT
from knfleet.api.core import PODS
from knfleet.api.operator import CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.apply.manifest_fields import part
from knfleet.dev import ports, processes
from knfleet.dev.control_plane import FIRST_LOOPBACK_NET
from knfleet.dev.dev_clusters import TUNNEL_PORTS, DevClusters
from knfleet.dev.network.outbound import carry
from knfleet.dev.node.addresses import index_of, pod_address
from knfleet.kube.auth.kubeconfig import load
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError

NAME = f"hub.{TUNNEL_PORTS}"


class ReservedPorts(Struct, frozen=True):
    """The ports that lead to the tunnel."""

    agents: int
    consumers: int


def reserve(ground: DevClusters) -> ReservedPorts:
    """Choose the ports."""
    return ReservedPorts(*ports.reserve(2, ground.port_range, ground.folder.state_file))


def start(ground: DevClusters, chosen: ReservedPorts) -> None:
    """Start it."""
    kubeconfig = ground.folder.cluster("hub") / "admin.kubeconfig"
    program = (sys.executable, "-m", "knfleet.dev.demo.tunnel_ports")
    arguments = [*program, str(kubeconfig), str(chosen.agents), str(chosen.consumers)]
    processes.start(ground.folder, NAME, arguments)


async def serve(kubeconfig: Path, agents: int, consumers: int) -> None:
    """Lead both ports to the hub's pod, until the process ends."""
    async with Client(load([kubeconfig])) as client, asyncio.TaskGroup() as group:
        for port, target in ((agents, AGENT_PORT), (consumers, FRONT_PORT)):
            group.create_task(lead(client, port, target))


async def lead(client: Client, port: int, target: int) -> None:
    """Lead one port to a port of the hub's pod."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, KubeError):
            if address := await hub_pod(client):
                far_reader, far_writer = await asyncio.open_connection(address, target)
                ways = [carry(reader, far_writer), carry(far_reader, writer)]
                await asyncio.gather(*ways)
        writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


async def hub_pod(client: Client) -> str:
    """Where the hub's pod listens on this machine; empty when there is none."""
    for pod in (await client.list(PODS, OPERATOR_NAMESPACE, labels=f"app={CLUSTER_MANAGER}")).items:
        status = part(pod, "status")
        index = index_of(str(status.get("podIP") or ""))
        if index is not None and status.get("phase") == "Running":
            return pod_address(index, FIRST_LOOPBACK_NET).loopback
    return ""


if __name__ == "__main__":
    file, *numbers = sys.argv[1:]
    asyncio.run(serve(Path(file), *map(int, numbers)))
