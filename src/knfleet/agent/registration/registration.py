"""Asking a hub to take a cluster in: the ManagedCluster, and the first certificate.

All this is done as the bootstrap identity, which may do little more. What the hub refuses is logged
once with what to do about it, and tried again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.agent.registration.drivers import csr
from knfleet.agent.registration.drivers.csr import REQUESTS, IssuedCertificate, RequestRefused
from knfleet.agent.registration.identity import Bootstrap, HubCredentials, hub_kubeconfig
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL, CLUSTERS
from knfleet.api.meta import Key, Object
from knfleet.apply.observe.collection import Collection, follow
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.errors import (
    AlreadyExists,
    Forbidden,
    KubeError,
    NotFound,
    TlsFailed,
    Unauthorized,
)
from knfleet.runtime.logs import log

MOST_REQUESTS = 10
"""With so many requests of a cluster on the hub, no further one is made."""
LOOK_SECONDS = 60.0
"""How often a pending registration is looked at as a whole."""
PATIENCE = (60.0, 90.0)
"""How long to wait after a refusal, at random between the two."""
RETRY_SECONDS = (1.0, 30.0)
"""How long to wait after a failure: at first, and at most."""
DOUBTS = (Forbidden, NotFound)

T = TypeVar("T")
ReportFailure = Callable[[str, str], None]
"""Told a reason and a message whenever something keeps the cluster from joining."""


class RegistrationRequest(Struct, frozen=True):
    """What the cluster tells when it asks to join."""

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
    """Make the ManagedCluster, unless it is there."""
    try:
        await hub.get(CLUSTERS, wanted.names.cluster)
    except NotFound:
        try:
            await hub.create(CLUSTERS, cluster_manifest(wanted))
        except AlreadyExists:
            return
        log.info("asked to join", cluster=wanted.names.cluster)


async def register(
    bootstrap: Bootstrap, wanted: RegistrationRequest, report: ReportFailure
) -> HubCredentials:
    """Have the hub know the cluster, and give it a certificate; however long that takes."""
    async with Client(bootstrap.connection, ClientOptions(attempts=1, concurrency=4)) as hub:
        await retry(lambda: ensure_cluster(hub, wanted), report)
        while True:
            key = csr.new_key()
            name = await retry(lambda key=key: request(hub, wanted, key), report)
            if not name:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            answer = await wait_for_decision(hub, name, wanted, report)
            if isinstance(answer, IssuedCertificate):
                return HubCredentials(
                    wanted.names.cluster,
                    wanted.names.agent,
                    hub_kubeconfig(bootstrap.address),
                    key,
                    answer.certificate,
                )
            log.error("certificate request refused", request=name, error=answer.why)
            report("BootstrapSecretError", f"request {name} was refused: {answer.why}")
            await asyncio.sleep(random.uniform(*PATIENCE))  # noqa: S311 - not a secret


async def request(hub: Client, wanted: RegistrationRequest, key: bytes) -> str:
    """Ask for a certificate; the request's name, or nothing when there are too many already."""
    names = wanted.names
    labels = f"{CLUSTER_NAME_LABEL}={names.cluster}"
    there = await hub.list(REQUESTS, labels=labels, metadata_only=True)
    if len(there.items) >= MOST_REQUESTS:
        log.error(
            "too many certificate requests; delete old ones", labels=labels, count=len(there.items)
        )
        return ""
    pem = csr.request_pem(key, names)
    manifest = csr.request_manifest(pem, names, wanted.lifetime_seconds)
    made = await hub.create(REQUESTS, manifest)
    log.info(
        "asked for a certificate",
        request=made["metadata"]["name"],
        user=names.user,
        key=csr.key_fingerprint(key),
    )
    return made["metadata"]["name"]


async def wait_for_decision(
    hub: Client, name: str, wanted: RegistrationRequest, report: ReportFailure
) -> IssuedCertificate | RequestRefused:
    """What became of a request, as soon as something did."""
    key = Key("", name)
    collection = Collection(REQUESTS, fields=f"metadata.name={name}")

    def is_done(found: Mapping[Key, Object]) -> bool:
        return csr.outcome(found.get(key)) is not None

    while True:
        found = await retry(lambda: follow(hub, collection, is_done, seconds=LOOK_SECONDS), report)
        if key in found and (became := csr.outcome(found[key])) is not None:
            return became
        try:
            became = csr.outcome(await hub.get(REQUESTS, name))
        except NotFound:
            return RequestRefused("the request was deleted before it was answered")
        except KubeError as error:
            report(*failure_reason(error))
            continue
        if became is not None:
            return became
        await retry(lambda: ensure_cluster(hub, wanted), report)


async def retry(call: Callable[[], Awaitable[T]], report: ReportFailure) -> T:
    """What a call returns once it succeeds; failures are told and waited out."""
    pause, most = RETRY_SECONDS
    logged = ""
    while True:
        try:
            return await call()
        except KubeError as error:
            reason, message = failure_reason(error)
            if message != logged:
                log.warning("the hub does not take us yet", error=message, reason=reason)
                logged = message
            report(reason, message)
        await asyncio.sleep(pause * random.uniform(0.75, 1.0))  # noqa: S311 - not a secret
        pause = min(2 * pause, most)


def failure_reason(error: KubeError) -> tuple[str, str]:
    """The reason for the Klusterlet's condition, and the error with what to do about it."""
    if isinstance(error, Unauthorized):
        remedy = "the token is wrong or expired; get one by `knfleet get token` and join again"
        return "BootstrapSecretUnauthorized", f"{error}; {remedy}"
    if isinstance(error, DOUBTS):
        remedy = "the hub lacks what `knfleet init` installs, or the token is not one for joining"
        return "BootstrapSecretUnauthorized", f"{error}; {remedy}"
    if isinstance(error, TlsFailed):
        remedy = "the CA of the bootstrap kubeconfig is not the hub's; join again with --ca-file"
        return "BootstrapSecretError", f"{error}; {remedy}"
    return "BootstrapSecretError", str(error)
