"""The hub runs a gRPC server when its ClusterManager asks for one."""

import base64

import pytest
from cryptography import x509
from msgspec.structs import replace

from knfleet.api.core import DEPLOYMENTS, SECRETS, SERVICES
from knfleet.api.meta import Key, Object
from knfleet.api.operator import (
    CLUSTER_MANAGER,
    CLUSTER_MANAGERS,
    GRPC_SERVER,
    HUB_NAMESPACE,
    HUB_REGISTRATION_DEGRADED,
)
from knfleet.hub.certificates.port_certificates import served_names
from knfleet.hub.grpc.grpc_names import SERVING_SECRET, SIGNER_SECRET
from knfleet.install.deployments import GrpcExposure, HubInstall, cluster_manager
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import NotFound
from testbed import hubs
from testbed.grpc_servers import published_ca
from testbed.waiting import until

PLAN = HubInstall(image="knfleet:v1", grpc=GrpcExposure("loadBalancer"))


async def serving_names(hub: Client) -> list[str]:
    """What the server's certificate is valid for."""
    found = await hub.get(SECRETS, SERVING_SECRET, HUB_NAMESPACE)
    return served_names(x509.load_pem_x509_certificate(base64.b64decode(found["data"]["tls.crt"])))


async def degraded(hub: Client) -> str:
    """Why registration is degraded, as the ClusterManager says it."""
    found = await hub.get(CLUSTER_MANAGERS, CLUSTER_MANAGER)
    conditions: list[Object] = found.get("status", {}).get("conditions") or []
    return next(
        (
            each["message"]
            for each in conditions
            if each["type"] == HUB_REGISTRATION_DEGRADED and each["status"] == "True"
        ),
        "",
    )


async def test_the_server_comes_with_its_certificate_and_goes_with_the_driver(
    fleet: Client, fleet_connection: Connection
):
    async with hubs.running(fleet_connection):
        await fleet.apply(CLUSTER_MANAGERS, cluster_manager(PLAN))
        ca = await published_ca(fleet)

        async def is_deployed() -> bool:
            found = await fleet.list(DEPLOYMENTS, HUB_NAMESPACE)
            return bool(found.items)

        await until(is_deployed, "the server is deployed")
        deployment = await fleet.get(DEPLOYMENTS, GRPC_SERVER, HUB_NAMESPACE)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "knfleet:v1"
        assert container["args"][0] == "grpc-server"
        service = await fleet.get(SERVICES, GRPC_SERVER, HUB_NAMESPACE)
        assert service["spec"]["type"] == "LoadBalancer"
        assert service["spec"]["ports"][0]["port"] == 443

        key = Key(HUB_NAMESPACE, GRPC_SERVER)
        ingress = {"loadBalancer": {"ingress": [{"ip": "10.1.2.3"}]}}
        await fleet.patch(SERVICES, key, {"status": ingress}, subresource="status")

        async def is_named() -> bool:
            return "10.1.2.3" in await serving_names(fleet)

        await until(is_named, "the certificate has the address of the load balancer")
        assert await published_ca(fleet) == ca
        assert f"{GRPC_SERVER}.{HUB_NAMESPACE}.svc" in await serving_names(fleet)

        await fleet.apply(CLUSTER_MANAGERS, cluster_manager(replace(PLAN, grpc=None)))

        async def is_gone() -> bool:
            try:
                await fleet.get(SERVICES, GRPC_SERVER, HUB_NAMESPACE)
            except NotFound:
                return True
            return False

        await until(is_gone, "the server is removed")
        assert (await fleet.get(SECRETS, SIGNER_SECRET, HUB_NAMESPACE))["data"]["tls.key"]


async def test_an_endpoint_that_agents_cannot_find_is_reported(
    fleet: Client, fleet_connection: Connection
):
    manager = cluster_manager(replace(PLAN, grpc=GrpcExposure("hostname")))
    async with hubs.running(fleet_connection):
        await fleet.apply(CLUSTER_MANAGERS, manager)

        async def is_reported() -> bool:
            return "needs a host" in await degraded(fleet)

        await until(is_reported, "the missing host is reported")


@pytest.mark.full
async def test_a_certificate_secret_that_was_spoilt_is_made_again(
    fleet: Client, fleet_connection: Connection
):
    async with hubs.running(fleet_connection):
        await fleet.apply(CLUSTER_MANAGERS, cluster_manager(PLAN))
        ca = await published_ca(fleet)
        key = Key(HUB_NAMESPACE, SERVING_SECRET)

        async def is_there() -> bool:
            try:
                return bool((await fleet.get(SECRETS, key.name, key.namespace))["data"]["tls.crt"])
            except NotFound:
                return False

        await until(is_there, "there is a certificate")
        await fleet.patch(SECRETS, key, {"data": {"tls.crt": "eA=="}})

        async def is_restored() -> bool:
            found = await fleet.get(SECRETS, key.name, key.namespace)
            return found["data"]["tls.crt"] != "eA=="

        await until(is_restored, "the certificate is restored")
        assert await published_ca(fleet) == ca
