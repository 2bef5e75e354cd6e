"""Services of a cluster whose pods have networks of their own.

Each port of a Service is listened on at the Service's address, in the network of the cluster, and
each connection is spliced to a ready endpoint. A Service of the type LoadBalancer also gets an
address of this machine's loopback, at which everything outside of the cluster can reach it.
"""

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import cast

import structlog
from msgspec import Struct

from knfleet.api.core import ENDPOINT_SLICES, SERVICES
from knfleet.api.meta import Key, Object
from knfleet.dev.egress import SplicedSide
from knfleet.dev.node.pods.pod_manifests import labels_of, rows, status_of, table
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError
from testbed.serve.dns import ZONE, Found
from testbed.serve.networks import ClusterNetwork
from testbed.serve.splices import RelaySide, connected

SERVICE_LABEL = "kubernetes.io/service-name"
API_SERVER = Key("default", "kubernetes")
MOST_BALANCERS = 250
RETRY_SECONDS = 1.0

log = structlog.get_logger()


class ListenPoint(Struct, frozen=True, order=True):
    """Where a port of a Service is listened on."""

    address: str
    port: int
    service: Key
    port_name: str
    outside: bool
    """Whether on this machine, instead of in the cluster."""


class EndpointAddress(Struct, frozen=True, order=True):
    """Where a connection goes."""

    host: str
    port: int


class ServiceProxy:
    """All Services of a cluster."""

    def __init__(
        self,
        client: Client,
        services: Informer,
        network: ClusterNetwork,
        *,
        api_server: tuple[str, int],
        loopback_net: int,
    ) -> None:
        self.client = client
        self.services = services
        self.network = network
        self.api_server = api_server
        self.loopback_net = loopback_net
        self.slices = Informer(
            client,
            ENDPOINT_SLICES,
            trim=without_managed_fields,
            indexes={"service": service_of},
        )
        self.news = asyncio.Event()
        self.listening: dict[ListenPoint, asyncio.Server] = {}
        self.balancers: dict[Key, str] = {}
        services.on_change(self.changed)

    def changed(self, _: StoreChange) -> None:
        self.news.set()

    async def run(self) -> None:
        """Listen as long as there are Services."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.slices.run())
            group.create_task(self.follow())

    async def follow(self) -> None:
        """Let what is listened on follow the Services."""
        await self.services.synced.wait()
        try:
            while True:
                self.news.clear()
                services = list(self.services.items())
                await self.listen(set(self.points(services)))
                if await self.report(services):
                    await self.news.wait()
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(RETRY_SECONDS):
                            await self.news.wait()
        finally:
            for server in self.listening.values():
                server.close()

    def points(self, services: Iterable[Object]) -> Iterable[ListenPoint]:
        """Everything that should be listened on."""
        for service in services:
            key, spec = Key.of(service), service["spec"]
            address = spec.get("clusterIP")
            if not address or address == "None":
                continue
            for port in rows(spec.get("ports")):
                if port.get("protocol", "TCP") != "TCP":
                    continue
                number, name = port["port"], port.get("name") or ""
                yield ListenPoint(address, number, key, name, outside=False)
                if spec.get("type") == "LoadBalancer":
                    yield ListenPoint(self.balancer(key), number, key, name, outside=True)

    def balancer(self, key: Key) -> str:
        """The address of a load balancer on this machine."""
        if key not in self.balancers:
            taken = set(self.balancers.values())
            names = (f"127.{self.loopback_net}.255.{n}" for n in range(1, MOST_BALANCERS))
            self.balancers[key] = next(each for each in names if each not in taken)
        return self.balancers[key]

    async def listen(self, wanted: set[ListenPoint]) -> None:
        """Listen there, and nowhere else."""
        for point in set(self.listening) - wanted:
            self.listening.pop(point).close()
        loop = asyncio.get_running_loop()
        for point in sorted(wanted - set(self.listening)):
            try:
                made = self.socket_at(point)
            except OSError as error:
                log.warning("not listening", service=str(point.service), error=str(error))
                continue
            self.listening[point] = await loop.create_server(self.relay(point), sock=made)

    def socket_at(self, point: ListenPoint) -> socket.socket:
        """A socket that listens there."""
        if not point.outside:
            return self.network.namespace.listener(point.address, point.port)
        return socket.create_server((point.address, point.port))

    def relay(self, point: ListenPoint) -> Callable[[], RelaySide]:
        """Relays connections to a ready endpoint of a port."""

        async def dial() -> SplicedSide:
            if point.service == API_SERVER:
                loop = asyncio.get_running_loop()
                _, side = await loop.create_connection(SplicedSide, *self.api_server)
                return side
            found = self.endpoints(point.service, point.port_name)
            if not found:
                raise ConnectionRefusedError(f"no ready endpoint behind {point.service}")
            chosen = random.choice(found)
            return await connected(self.network, SplicedSide, chosen.host, chosen.port)

        made = cast("Callable[[], Awaitable[SplicedSide]]", dial)
        return lambda: RelaySide(made)

    def endpoints(self, service: Key, port_name: str) -> list[EndpointAddress]:
        """The ready endpoints of a Service's port."""
        found: set[EndpointAddress] = set()
        for each in self.slices.by_index("service", str(service)):
            for port in rows(each.get("ports")):
                if (port.get("name") or "") == port_name and port.get("port"):
                    found.update(
                        EndpointAddress(address, port["port"]) for address in ready_addresses(each)
                    )
        return sorted(found)

    async def report(self, services: Iterable[Object]) -> bool:
        """Write the addresses of load balancers; says whether all are written."""
        done = True
        for service in services:
            if service["spec"].get("type") != "LoadBalancer":
                continue
            wanted = [{"ip": self.balancer(Key.of(service))}]
            held = [
                {"ip": each.get("ip")}
                for each in rows(table(status_of(service).get("loadBalancer")).get("ingress"))
            ]
            if held == wanted:
                continue
            patch: Object = {"status": {"loadBalancer": {"ingress": wanted}}}
            try:
                await self.client.patch(SERVICES, Key.of(service), patch, subresource="status")
            except KubeError as error:
                log.warning("no load balancer", service=str(Key.of(service)), error=str(error))
                done = False
        return done

    def lookup(self, name: str) -> Found | None:
        """What a name of the cluster's zone means."""
        labels = name.removesuffix(f".{ZONE}").split(".")
        if len(labels) < 3 or labels[-1] != "svc":
            return None
        *pod, service_name, namespace, _ = labels
        service = self.services.get(Key(namespace, service_name))
        if service is None:
            return None
        spec = service["spec"]
        if spec.get("type") == "ExternalName":
            return Found(alias=spec["externalName"].rstrip(".").lower())
        address = spec.get("clusterIP")
        if address != "None":
            return None if pod or not address else Found((address,))
        slices = self.slices.by_index("service", f"{namespace}/{service_name}")
        found = {
            address
            for each in slices
            for address in ready_addresses(each, hostname=pod[0] if pod else "")
        }
        return Found(tuple(sorted(found))) if found or not pod else None


def service_of(endpoint_slice: Object) -> Iterable[str]:
    """The Service of an EndpointSlice."""
    name = labels_of(endpoint_slice).get(SERVICE_LABEL)
    return [f"{endpoint_slice['metadata']['namespace']}/{name}"] if name else []


def ready_addresses(endpoint_slice: Object, hostname: str = "") -> Iterable[str]:
    """The addresses of an EndpointSlice's ready endpoints, of one host name or of all."""
    for each in rows(endpoint_slice.get("endpoints")):
        if table(each.get("conditions")).get("ready") is False:
            continue
        if not hostname or each.get("hostname") == hostname:
            yield from each.get("addresses") or ()
