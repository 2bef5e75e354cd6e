"""The ManagedCluster by which a cluster asks to join, and how failures on the way are handled.

All this is done as the bootstrap identity, which may do little more. What the hub refuses is logged
once with what to do about it, and tried again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.meta import Object
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import (
    AlreadyExists,
    Forbidden,
    KubeError,
    NotFound,
    TlsFailed,
    Unauthorized,
)
from knfleet.runtime.logs import log

RETRY_SECONDS = (1.0, 30.0)
"""How long to wait after a failure: at first, and at most."""
NOT_A_JOIN_TOKEN = (Forbidden, NotFound)

T = TypeVar("T")
ReportFailure = Callable[[str, str], None]
"""Called with a reason and a message whenever something keeps the cluster from joining."""


class RegistrationRequest(Struct, frozen=True):
    """What a cluster asks to be registered with."""

    names: AgentNames
    annotations: Mapping[str, str] = {}
    client_configs: tuple[Object, ...] = ()
    lifetime_seconds: int = 0


def cluster_manifest(wanted: RegistrationRequest) -> Object:
    """The ManagedCluster that asks to be accepted."""
    spec: Object = {"hubAcceptsClient": False}
    if wanted.client_configs:
        spec["managedClusterClientConfigs"] = list(wanted.client_configs)
    meta: Object = {"name": wanted.names.cluster}
    if wanted.annotations:
        meta["annotations"] = dict(wanted.annotations)
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": CLUSTERS.kind,
        "metadata": meta,
        "spec": spec,
    }


async def ensure_cluster(hub: Client, wanted: RegistrationRequest) -> None:
    """Create the ManagedCluster, unless it exists."""
    try:
        await hub.get(CLUSTERS, wanted.names.cluster)
    except NotFound:
        try:
            await hub.create(CLUSTERS, cluster_manifest(wanted))
        except AlreadyExists:
            return
        log.info("asked to join", cluster=wanted.names.cluster)


async def retry(call: Callable[[], Awaitable[T]], report: ReportFailure) -> T:
    """What a call returns once it succeeds; failures are reported, and retried with backoff."""
    pause, most = RETRY_SECONDS
    logged = ""
    while True:
        try:
            return await call()
        except KubeError as error:
            reason, message = failure_reason(error)
            if message != logged:
                log.warning("registration not approved yet; retrying", error=message, reason=reason)
                logged = message
            report(reason, message)
        await asyncio.sleep(pause * random.uniform(0.75, 1.0))  # noqa: S311 - not a secret
        pause = min(2 * pause, most)


def failure_reason(error: KubeError) -> tuple[str, str]:
    """The reason for the Klusterlet's condition, and the error with what to do about it."""
    if isinstance(error, Unauthorized):
        remedy = "the token is wrong or expired; get one by `knfleet get token` and join again"
        return "BootstrapSecretUnauthorized", f"{error}; {remedy}"
    if isinstance(error, NOT_A_JOIN_TOKEN):
        remedy = "the hub lacks what `knfleet init` installs, or the token is not one for joining"
        return "BootstrapSecretUnauthorized", f"{error}; {remedy}"
    if isinstance(error, TlsFailed):
        remedy = "the CA of the bootstrap kubeconfig is not the hub's; join again with --ca-file"
        return "BootstrapSecretError", f"{error}; {remedy}"
    return "BootstrapSecretError", str(error)
