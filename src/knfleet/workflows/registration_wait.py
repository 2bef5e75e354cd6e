"""Waiting for what `join` and `accept` began, with the reason when it does not come."""

import asyncio
import time
from collections.abc import Mapping

from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    JOINED,
    ManagedCluster,
)
from knfleet.api.conditions import find, is_true
from knfleet.api.meta import Key, Object
from knfleet.api.operator import HUB_CONNECTION_DEGRADED, KLUSTERLETS, Klusterlet
from knfleet.api.schema import decode
from knfleet.apply.observe.collection import Collection, follow
from knfleet.install.agent_manifests import AgentInstall
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound
from knfleet.workflows.object_lists import WaitTimeout, available

LOOK_SECONDS = 0.5


async def wait_for_registration(
    home: Client, hub: Client, plan: AgentInstall, *, seconds: float
) -> None:
    """Return when the agent runs and its cluster is registered."""
    ends = time.monotonic() + seconds
    await available(home, Key(plan.namespace, plan.workload), seconds=seconds)
    while True:
        if await has_requested(hub, plan.cluster):
            return
        if time.monotonic() > ends:
            why = await excuse(home, plan.klusterlet)
            raise WaitTimeout(f"{plan.cluster} has not asked the hub in {seconds:.0f} s: {why}")
        await asyncio.sleep(LOOK_SECONDS)


async def has_requested(hub: Client, cluster: str) -> bool:
    """Whether a cluster has asked for all that it needs, or has it already."""
    try:
        found = decode(await hub.get(CLUSTERS, cluster), ManagedCluster)
    except NotFound:
        return False
    if is_true(found.status.conditions, JOINED):
        return True
    requests = await hub.list(CSRS, labels=f"{CLUSTER_NAME_LABEL}={cluster}", metadata_only=True)
    return bool(requests.items)


async def excuse(home: Client, klusterlet: str) -> str:
    """What the agent says about its way to the hub."""
    try:
        found = decode(await home.get(KLUSTERLETS, klusterlet), Klusterlet)
    except KubeError as error:
        return str(error)
    condition = find(found.status.conditions, HUB_CONNECTION_DEGRADED)
    return "the agent has not reported yet" if condition is None else condition.message


async def joined(hub: Client, cluster: str, *, seconds: float) -> None:
    """Return when a cluster is available; raises `WaitTimeout` with what it says instead."""
    key = Key("", cluster)

    def is_available(found: Mapping[Key, Object]) -> bool:
        manifest = found.get(key)
        if manifest is None:
            return False
        return is_true(decode(manifest, ManagedCluster).status.conditions, AVAILABLE)

    collection = Collection(CLUSTERS, fields=f"metadata.name={cluster}")
    found = await follow(hub, collection, is_available, seconds=seconds)
    if not is_available(found):
        raise WaitTimeout(
            f"{cluster} is not available after {seconds:.0f} s; see `knfleet doctor {cluster}`"
        )
