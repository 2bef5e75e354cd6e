"""The document's chapter on gRPC, with the pods that `init` and `join` install."""

import re
import shlex
from pathlib import Path

import pytest

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import PODS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import (
    CLUSTER_MANAGER,
    CLUSTER_MANAGERS,
    GRPC_SERVER,
    HUB_NAMESPACE,
    KLUSTERLETS,
)
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError
from testbed.clusters import Lend
from testbed.grpc_servers import published_ca
from testbed.waiting import until
from tests.support.commands import IMAGE, done, refused
from tests.support.fleet_checks import is_clean

pytestmark = [pytest.mark.xdist_group("agent"), pytest.mark.full]
PORT = 8090


async def server_host(hub: Client) -> str:
    """The address on which the server's pod listens, as its log says it."""
    found: list[str] = []

    async def is_serving() -> bool:
        for pod in (await hub.list(PODS, HUB_NAMESPACE, labels=f"app={GRPC_SERVER}")).items:
            path = PODS.path(HUB_NAMESPACE, pod["metadata"]["name"], "log")
            try:
                text = (await hub.raw("GET", path)).decode()
            except KubeError:
                continue
            for line in text.splitlines():
                if '"serving gRPC"' in line and (match := re.search(r"127\.[0-9.]+", line)):
                    found.append(match[0])
                    return True
        return False

    await until(is_serving, "the gRPC server serves")
    return found[0]


def exposure(host: str) -> Object:
    """What makes the server's certificate valid for a host."""
    endpoint = {"type": "hostname", "hostname": {"host": host}}
    exposed = {"protocol": "grpc", "usage": "agentToHub", "grpc": endpoint}
    return {"spec": {"serverConfiguration": {"endpointsExposure": [exposed]}}}


async def joined(hub: Client) -> None:
    """Wait until the cluster is available."""

    async def is_available() -> bool:
        found = await hub.get(CLUSTERS, "cluster1")
        conditions: list[Object] = found.get("status", {}).get("conditions") or []
        return any(
            each["type"] == "ManagedClusterConditionAvailable" and each["status"] == "True"
            for each in conditions
        )

    await until(is_available, "cluster1 is available")


async def test_both_ways_of_the_document_register_a_cluster_over_grpc(
    lend: Lend, small_root: Path, tmp_path: Path
):
    hub, spoke = await lend(2)
    told = await done(
        hub.kubeconfig,
        *("init", "--wait", "--image", IMAGE, "--releases", str(small_root), "--timeout", "90"),
        *("--registration-drivers", "csr,grpc", "--grpc-server", "grpc.example.com"),
    )
    command = next(line for line in told.splitlines() if "knfleet join" in line)
    words = shlex.split(command)
    token = words[words.index("--hub-token") + 1]
    async with Client(hub.connection) as client, Client(spoke.connection) as spoke_client:
        ca = tmp_path / "grpc-ca.pem"
        ca.write_bytes(await published_ca(client))
        host = await server_host(client)
        await client.patch(CLUSTER_MANAGERS, Key("", CLUSTER_MANAGER), exposure(host))
        server = f"{host}:{PORT}"
        common = ("--hub-token", token, "--cluster-name", "cluster1", "--image", IMAGE)
        by_grpc = (
            *("--hub-apiserver", "https://127.0.0.1:1", "--registration-auth", "grpc"),
            *("--grpc-server", server, "--grpc-ca-file", str(ca)),
        )

        async def is_reachable() -> bool:
            try:
                await done(spoke.kubeconfig, "join", *common, *by_grpc)
            except AssertionError:
                return False
            return True

        await until(is_reachable, "the certificate has the address, so that join succeeds")
        wrong = tmp_path / "wrong.pem"
        assert spoke.connection.endpoint.ca is not None
        wrong.write_bytes(spoke.connection.endpoint.ca)
        assert "ca-bundle-configmap" in await refused(
            spoke.kubeconfig, "join", *common, *by_grpc[:-1], str(wrong)
        )
        accept = ("accept", "--clusters", "cluster1", "--wait", "--timeout", "90")
        await done(hub.kubeconfig, *accept)
        await joined(client)
        checked = await done(
            hub.kubeconfig, "doctor", "cluster1", "--spoke-kubeconfig", str(spoke.kubeconfig)
        )
        assert f"gRPC address: {server}" in checked
        found = await spoke_client.get(KLUSTERLETS, "klusterlet")
        driver = found["spec"]["registrationConfiguration"]["registrationDriver"]
        assert driver == {"authType": "grpc"}

        await done(spoke.kubeconfig, "unjoin", "--cluster-name", "cluster1")
        await until(lambda: is_clean(spoke_client), "nothing is left on the spoke")
        await client.delete(CLUSTERS, Key("", "cluster1"))

        async def is_gone() -> bool:
            return not (await client.list(CLUSTERS)).items

        await until(is_gone, "the ManagedCluster is gone")

        said = await done(
            spoke.kubeconfig,
            *("join", *common, "--hub-apiserver", f"https://{server}", "--ca-file", str(ca)),
        )
        assert "knfleet accept" in said
        patch = {
            "spec": {
                "registrationConfiguration": {"registrationDriver": {"authType": "grpc"}},
            }
        }
        await spoke_client.patch(KLUSTERLETS, Key("", "klusterlet"), patch)

        async def is_accepted() -> bool:
            try:
                await done(hub.kubeconfig, *accept)
            except AssertionError:
                return False
            return True

        await until(is_accepted, "the cluster asks, and is accepted")
        await joined(client)
