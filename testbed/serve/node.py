"""A node on which every pod runs: each with its own network, each container with its own root."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from knfleet.api.meta import Object
from knfleet.dev.egress import Dial, Egress, Route, SplicedSide
from knfleet.dev.node.addresses import NODE_ADDRESS, Addresses, PodAddress, first_for
from knfleet.dev.node.config import NodeConfig
from knfleet.dev.node.containers.container_probes import Prober
from knfleet.dev.node.containers.orphan_processes import kill_orphans
from knfleet.dev.node.node import MANAGER, Node, NodeStopped, end
from knfleet.dev.node.pods.process_pod import ProcessPod
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from testbed.serve import dns
from testbed.serve.images import Images
from testbed.serve.networks import ClusterNetwork
from testbed.serve.pods import ServingHost, ServingPod
from testbed.serve.probes import NetworkProber
from testbed.serve.services import ServiceProxy
from testbed.serve.splices import connected

DNS_PORT = 53

log = structlog.get_logger()


class RoutedAddresses(Addresses):
    """Pods listen on the addresses that are reported."""

    def of(self, pod: Object) -> PodAddress:
        """The pod's address, chosen now if it has none."""
        reported = super().of(pod).reported
        return PodAddress(reported, reported)


class NetworkEgress(Egress):
    """Leads an API server into the network of its cluster."""

    def __init__(self, path: Path, route: Route, network: ClusterNetwork) -> None:
        super().__init__(path, route)
        self.network = network

    async def far_side(self, way: Dial) -> SplicedSide:
        """A connection to a pod."""
        return await connected(self.network, SplicedSide, way.host, way.port)


class ServingNode(Node):
    """One cluster's node, which simulates nothing."""

    pod_type: type[ProcessPod] = ServingPod

    def __init__(
        self,
        config: NodeConfig,
        client: Client,
        prober: Prober,
        group: asyncio.TaskGroup,
        *,
        network: ClusterNetwork,
        images: Images,
    ) -> None:
        self.cluster_network = network
        self.images = images
        super().__init__(config, client, prober, group)
        server = urlsplit(config.api_server)
        self.proxy = ServiceProxy(
            client,
            self.services,
            network,
            api_server=(server.hostname or "127.0.0.1", server.port or 443),
            loopback_net=config.loopback_net,
        )

    def pod_host(self, prober: Prober) -> ServingHost:
        """What pods get from the node."""
        config = self.config
        return ServingHost(
            config.pods_folder,
            config.api_server,
            config.images,
            prober,
            self.cluster_network,
            self.images,
        )

    def addresses(self) -> Addresses:
        """The addresses of pods."""
        return RoutedAddresses(self.config.loopback_net, first_for(self.config.api_server))

    def make_egress(self) -> Egress:
        """How the API server reaches pods and Services."""
        return NetworkEgress(self.config.egress_socket, self.route, self.cluster_network)

    def start(self, group: asyncio.TaskGroup) -> None:
        super().start(group)
        group.create_task(self.proxy.run())
        group.create_task(self.serve_names())

    async def serve_names(self) -> None:
        """Be the DNS server of the cluster."""
        made = self.cluster_network.namespace.datagrams(NODE_ADDRESS, DNS_PORT)
        await dns.serve(made, self.proxy.lookup)


async def run(
    config: NodeConfig, images: Images, connection: Connection, stop: asyncio.Event
) -> None:
    """Be the node of a cluster until it is asked to stop; then end all pods' processes."""
    config.pods_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for orphan in await asyncio.to_thread(kill_orphans, config.pods_folder):
        log.info("ended an orphan", pid=orphan.pid, pod=orphan.pod)
    network = ClusterNetwork()
    options = ClientOptions(manager=MANAGER, user_agent=MANAGER)
    async with NetworkProber(network) as prober, Client(connection, options) as client:
        try:
            async with asyncio.TaskGroup() as group:
                machine = ServingNode(config, client, prober, group, network=network, images=images)
                machine.start(group)
                await stop.wait()
                await machine.pods.shut_down()
                end()
        except* NodeStopped:
            log.info("stopped", cluster=config.cluster)
