"""The Node object and its lease: that the node exists, is ready, and goes on being so."""

import asyncio
import os
import platform
from datetime import UTC, datetime

import structlog

from knfleet.api.core import LEASES, NODES
from knfleet.api.meta import Key, Object
from knfleet.dev.node.addresses import KUBELET_PORT, NODE_ADDRESS
from knfleet.dev.node.pods.pod_manifests import rows, table, timestamp
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound

RENEW_SECONDS = 10.0
LEASE_SECONDS = 40
LEASE_NAMESPACE = "kube-node-lease"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
UNREADY_TAINTS = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
CAPACITY = {"cpu": "256", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "1000"}
"""Far more than the machine has: simulated pods use nothing."""

log = structlog.get_logger()


def node_manifest(name: str) -> Object:
    """The Node as it is applied."""
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    labels = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "kubernetes.io/hostname": name,
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def node_status(name: str, *, version: str, now: datetime, before: Object) -> Object:
    """The Node's status: ready, roomy, and with the address at which its logs are asked for."""
    known = {each["type"]: each for each in rows(before.get("conditions"))}

    def condition(kind: str, status: str, reason: str) -> Object:
        old = known.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == status else timestamp(now)
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "the dev node answers for this",
            "lastHeartbeatTime": timestamp(now),
            "lastTransitionTime": since,
        }

    return {
        "capacity": CAPACITY,
        "allocatable": CAPACITY,
        "conditions": [
            *(condition(kind, "False", f"KubeletHasNo{kind}") for kind in PRESSURES),
            condition("Ready", "True", "KubeletReady"),
        ],
        "addresses": [
            {"type": "InternalIP", "address": NODE_ADDRESS},
            {"type": "Hostname", "address": name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "nodeInfo": {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "bootID": "",
            "containerRuntimeVersion": "process://knfleet",
            "kernelVersion": platform.release(),
            "kubeProxyVersion": version,
            "kubeletVersion": version,
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "knfleet dev node",
            "systemUUID": "",
        },
    }


def lease_manifest(name: str, now: datetime) -> Object:
    """The lease by which the control plane knows that the node lives."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


class NodeObject:
    """Keeps the Node there, ready and untainted."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.known = asyncio.Event()
        """Set when the Node exists."""
        self.current: Object = node_manifest(name)
        self.awake = asyncio.Event()
        self.informer = Informer(
            client, NODES, fields=f"metadata.name={name}", trim=without_managed_fields
        )
        self.informer.on_change(self.changed)

    def changed(self, change: StoreChange) -> None:
        """Another client changed or deleted the Node."""
        if change.new is None or needs_repair(change.new):
            self.awake.set()
        if change.new is not None:
            self.current = change.new

    async def run(self) -> None:
        """Keep the Node and its lease until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informer.run())
            group.create_task(self.maintain())

    async def maintain(self) -> None:
        """Renew the lease regularly, and repair the Node when it is not as it should be."""
        while True:
            self.awake.clear()
            try:
                await self.establish()
                await self.renew()
            except KubeError as error:
                log.warning("node not kept", error=str(error))
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await self.awake.wait()
            except TimeoutError:
                continue

    async def establish(self) -> None:
        """Make the Node exist and be ready, if it is not."""
        if self.known.is_set() and not needs_repair(self.informer.get(Key("", self.name))):
            return
        node = await self.client.apply(NODES, node_manifest(self.name))
        version = await self.client.version()
        status = node_status(
            self.name, version=version, now=datetime.now(UTC), before=table(node.get("status"))
        )
        key = Key("", self.name)
        await self.client.patch(
            NODES, key, {"status": status}, strategic=True, subresource="status"
        )
        taints = list(rows(table(node.get("spec")).get("taints")))
        kept = [taint for taint in taints if taint["key"] not in UNREADY_TAINTS]
        if kept != taints:
            await self.client.patch(NODES, key, {"spec": {"taints": kept or None}})
        self.current = node
        if not self.known.is_set():
            log.info("node ready", node=self.name, pid=os.getpid())
        self.known.set()

    async def renew(self) -> None:
        """Renew the lease; the namespace for leases may come later than the node."""
        lease = lease_manifest(self.name, datetime.now(UTC))
        try:
            await self.client.urgent.apply(LEASES, lease)
        except NotFound:
            log.debug("no namespace for leases yet")


def needs_repair(node: Object | None) -> bool:
    """Whether the Node is missing, not ready, or tainted as not ready."""
    if node is None:
        return True
    conditions = rows(table(node.get("status")).get("conditions"))
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    taints = rows(table(node.get("spec")).get("taints"))
    return not ready or any(taint["key"] in UNREADY_TAINTS for taint in taints)
