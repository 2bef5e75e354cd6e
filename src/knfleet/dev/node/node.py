"""The whole node: its parts, how they are connected, and how it ends."""

import asyncio
from functools import partial
from typing import NoReturn

import structlog

from knfleet.api.core import SERVICES
from knfleet.api.meta import Key, Object
from knfleet.dev.egress import Dial, Egress, Refuse, Serve, Way
from knfleet.dev.node.addresses import NODE_ADDRESS, Addresses, first_for
from knfleet.dev.node.annotations import WebhookBehaviour, webhook_behaviour
from knfleet.dev.node.ca_bundles import CaBundles
from knfleet.dev.node.config import NodeConfig
from knfleet.dev.node.containers.container_probes import Prober
from knfleet.dev.node.containers.orphan_processes import kill_orphans
from knfleet.dev.node.node_object import NodeObject
from knfleet.dev.node.pods.pod_manifests import annotations_of, uid_of
from knfleet.dev.node.pods.pods import Pods
from knfleet.dev.node.pods.process_pod import PodHost, ProcessPod
from knfleet.dev.node.service_network import Kubelet, Network, NoEndpoint, PodPort
from knfleet.dev.node.serving_certificates import ServingCertificates
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection

MANAGER = "knfleet-dev-node"

log = structlog.get_logger()


class NodeStopped(Exception):
    """The node was asked to end."""


class Node:
    """One cluster's node."""

    pod_type: type[ProcessPod] = ProcessPod
    """How real pods run."""

    def __init__(
        self, config: NodeConfig, client: Client, prober: Prober, group: asyncio.TaskGroup
    ) -> None:
        self.config = config
        self.node = NodeObject(client, config.node)
        self.pods = Pods(
            client,
            self.pod_host(prober),
            node=self.node,
            addresses=self.addresses(),
            group=group,
            pod_type=self.pod_type,
        )
        self.services = Informer(client, SERVICES, trim=without_managed_fields)
        self.network = Network(
            self.services.items, self.pods.in_namespace, self.pods.informer.items
        )
        self.authority = ServingCertificates(config.webhook_ca_certificate, config.webhook_ca_key)
        self.bundles = CaBundles(
            client,
            self.authority.bundle(),
            ours=self.answers_for,
            prepare=self.authority.service_context,
        )
        self.egress = self.make_egress()
        self.services.on_change(self.service_changed)
        self.pods.informer.on_change(self.pod_changed)

    def pod_host(self, prober: Prober) -> PodHost:
        """What real pods get from the node."""
        config = self.config
        return PodHost(config.pods_folder, config.api_server, config.images, prober)

    def addresses(self) -> Addresses:
        """The addresses of pods."""
        return Addresses(self.config.loopback_net, first_for(self.config.api_server))

    def make_egress(self) -> Egress:
        """How the API server reaches pods and Services."""
        return Egress(self.config.egress_socket, self.route)

    def start(self, group: asyncio.TaskGroup) -> None:
        for part in (self.egress, self.services, self.node, self.pods, self.bundles):
            group.create_task(part.run())

    def service_changed(self, change: StoreChange) -> None:
        """Webhook configurations may name the Service."""
        self.bundles.namespace_changed(change.key.namespace)

    def pod_changed(self, change: StoreChange) -> None:
        """Webhook configurations may name a Service of the pod."""
        if change.type != "updated":
            self.bundles.namespace_changed(change.key.namespace)

    def answers_for(self, service: Key) -> bool:
        """Whether this process answers for a Service: it has pods, and all are simulated."""
        manifest = self.services.get(service)
        if manifest is None:
            return False
        pods = self.network.selected(manifest)
        return bool(pods) and not any(map(self.pods.is_real, pods))

    def webhook(self, service: Key) -> WebhookBehaviour:
        """How a Service's webhooks answer."""
        return webhook_behaviour(annotations_of(self.services.get(service)))

    async def route(self, host: str, port: int) -> Way:
        """Where a connection of the API server goes."""
        match self.network.find(host, port):
            case NoEndpoint(why):
                return Refuse(why)
            case Kubelet():
                return await self.kubelet()
            case PodPort(pod, number, service):
                return await self.pod_way(pod, number, service)

    async def pod_way(self, pod: Object, port: int, service: Key | None) -> Way:
        """The way to a pod's port."""
        if self.pods.is_real(pod):
            return Dial(self.pods.addresses.of(pod).loopback, port)
        if service is None:
            return Refuse(f"the pod {Key.of(pod)} is simulated: nothing listens there")
        from knfleet.dev.webhook_answers import WebhookResponder

        responder = WebhookResponder(self.webhook)
        context = await self.authority.service_context(service)
        return Serve(context, partial(responder.protocol, service))

    async def kubelet(self) -> Way:
        """The way to the node's own endpoint."""
        from knfleet.dev.node.kubelet_api import LogServer

        logs = LogServer(
            self.config.pods_folder,
            self.pods.informer.get,
            is_real=self.pods.is_real,
            is_alive=self.is_alive,
        )
        context = await self.authority.context((NODE_ADDRESS, self.config.node))
        return Serve(context, logs.protocol)

    def is_alive(self, pod: Object, container: str) -> bool:
        """Whether a container of a pod may still write to its log."""
        real = self.pods.real.get(uid_of(pod))
        return real is not None and real.is_alive(container)


async def run(config: NodeConfig, connection: Connection, stop: asyncio.Event) -> None:
    """Be the node of a cluster until it is asked to stop; then end all pods' processes."""
    config.pods_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for orphan in await asyncio.to_thread(kill_orphans, config.pods_folder):
        log.info("ended an orphan", pid=orphan.pid, pod=orphan.pod)
    options = ClientOptions(manager=MANAGER, user_agent=MANAGER)
    async with Prober() as prober, Client(connection, options) as client:
        try:
            async with asyncio.TaskGroup() as group:
                machine = Node(config, client, prober, group)
                machine.start(group)
                await stop.wait()
                await machine.pods.shut_down()
                end()
        except* NodeStopped:
            log.info("stopped", cluster=config.cluster)


def end() -> NoReturn:
    """Leave a task group, and end all of its tasks."""
    raise NodeStopped
