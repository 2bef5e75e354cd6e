"""Registration by certificate requests: the first driver, and the one that every hub has."""

import base64
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from knfleet.agent.registration import client_certificate
from knfleet.agent.registration.client_certificate import ClientCertificate
from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.agent.registration.cluster_registration import (
    RegistrationRequest,
    ReportFailure,
    ensure_cluster,
    failure_reason,
    retry,
)
from knfleet.agent.registration.drivers.driver import IssuedCertificate, RequestRefused
from knfleet.agent.registration.identity import (
    HUB,
    Bootstrap,
    HubCredentials,
    hub_kubeconfig,
    is_moved,
)
from knfleet.agent.work.source import KubeSource
from knfleet.api.addon.names import ADDON_LABEL
from knfleet.api.certificate_requests import CSRS, GRPC_SIGNER, SIGNER, USAGES
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL, MANAGED_CLUSTERS, cluster_groups
from knfleet.api.meta import Key, Object
from knfleet.apply.observe.collection import Collection, follow
from knfleet.kube.auth.x509 import check_key_pair
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError, NotFound
from knfleet.runtime.logs import log

if TYPE_CHECKING:
    from knfleet.agent.hub_session import CertificateHolder
    from knfleet.agent.work.source import WorkSource
    from knfleet.runtime.manager import Component

FIRST_CALLS = ClientOptions(attempts=1, concurrency=4)
FEW_AT_ONCE = ClientOptions(concurrency=12, user_agent="knfleet-agent")
MOST_REQUESTS = 10
"""With so many requests of a cluster on the hub, no further one is made."""
RECHECK_SECONDS = 60.0
"""How often it is checked that the hub still has a pending request and its ManagedCluster."""
DELETED = RequestRefused("the request was deleted before it was answered")


class CSRDriver:
    """Gets client certificates by CertificateSigningRequests."""

    signer = SIGNER

    @property
    def annotations(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    async def bootstrap_client(self, bootstrap: Bootstrap, cluster: str) -> Client:
        """A client of the hub's API server, for the bootstrap identity."""
        del cluster
        return Client(bootstrap.connection, FIRST_CALLS)

    def session_client(
        self, bootstrap: Bootstrap, cluster: str, identity: "CertificateHolder"
    ) -> Client:
        """A client of the hub's API server, for the agent."""
        del cluster
        return Client(Connection(HUB, bootstrap.address.endpoint, identity), FEW_AT_ONCE)

    def components(self, hub: Client) -> "Sequence[Component]":
        """Nothing."""
        del hub
        return ()

    def work_source(self, hub: Client, server: str, cluster: str) -> "WorkSource":
        """Works of the cluster's namespace."""
        return KubeSource(hub, server, cluster)

    def located(
        self, credentials: HubCredentials, bootstrap: Bootstrap, folder: Path | None
    ) -> HubCredentials:
        """Credentials with a kubeconfig for the hub."""
        del folder
        moved = is_moved(credentials, bootstrap.address)
        kubeconfig = hub_kubeconfig(bootstrap.address) if moved else credentials.kubeconfig
        return replace(credentials, kubeconfig=kubeconfig, config=b"")

    def problem(self, credentials: HubCredentials, names: AgentNames, now: datetime) -> str:
        """Why a certificate cannot be used; empty when it can."""
        if not credentials.key or not credentials.certificate:
            return "there is no certificate yet"
        if bool(credentials.config) != (self.signer == GRPC_SIGNER):
            return "the certificate was issued for another registration driver"
        certificate = client_certificate.read(credentials.certificate)
        if certificate is None:
            return "the certificate cannot be read"
        if problem := check_key_pair(credentials.certificate, credentials.key):
            return problem
        return usability(certificate, names, now)

    def expires(self, credentials: HubCredentials) -> datetime | None:
        """When a certificate ends."""
        certificate = client_certificate.read(credentials.certificate)
        return None if certificate is None else certificate.ends

    def renew_at(self, credentials: HubCredentials, chance: float) -> datetime | None:
        """When to ask for the next certificate."""
        certificate = client_certificate.read(credentials.certificate)
        return None if certificate is None else certificate.renew_at(chance)

    def validity(self, credentials: HubCredentials) -> str:
        """From when to when a certificate is valid."""
        certificate = client_certificate.read(credentials.certificate)
        return "" if certificate is None else client_certificate.valid_for(certificate)

    async def obtain(
        self, hub: Client, wanted: RegistrationRequest, report: ReportFailure
    ) -> IssuedCertificate | RequestRefused:
        """Create a request, and wait until it is signed or refused."""
        key = client_certificate.new_key()
        name = await retry(lambda: create_request(hub, wanted, key, self.signer), report)
        if not name:
            labels = f"{CLUSTER_NAME_LABEL}={wanted.names.cluster}"
            return RequestRefused(
                f"the hub has {MOST_REQUESTS} certificate requests or more with label {labels};"
                " delete old ones"
            )
        decision = await wait_for_decision(hub, name, wanted, report)
        if isinstance(decision, RequestRefused):
            return RequestRefused(f"request {name} was refused: {decision.why}")
        return IssuedCertificate(key, decision)


def usability(certificate: ClientCertificate, names: AgentNames, now: datetime) -> str:
    """Why a certificate cannot be used for an agent now; empty when it can."""
    if certificate.common_name != names.user:
        return f"the certificate is for {certificate.common_name}, not for {names.user}"
    if certificate.ends <= now:
        return f"the certificate ended {certificate.ends:%Y-%m-%d %H:%M:%S UTC}"
    return ""


def request_pem(key: bytes, names: AgentNames) -> bytes:
    """A certificate request of an agent."""
    private = serialization.load_pem_private_key(key, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    groups = (cluster_groups(names.cluster)[0], MANAGED_CLUSTERS)
    attributes = [
        *(attribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
        attribute(NameOID.COMMON_NAME, names.user),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    return builder.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def attribute(kind: x509.ObjectIdentifier, value: str) -> "x509.NameAttribute[str]":
    """One part of a subject, however long it is: Kubernetes permits more than X.509 does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x509.NameAttribute(kind, value, _validate=False)


def request_manifest(
    pem: bytes, names: AgentNames, lifetime_seconds: int = 0, signer: str = SIGNER
) -> Object:
    """The CertificateSigningRequest of an agent."""
    spec: Object = {
        "request": base64.b64encode(pem).decode(),
        "signerName": signer,
        "usages": [*USAGES],
    }
    if lifetime_seconds:
        spec["expirationSeconds"] = lifetime_seconds
    return {
        "apiVersion": CSRS.api_version,
        "kind": CSRS.kind,
        "metadata": {
            "generateName": f"{names.cluster}-",
            "labels": {CLUSTER_NAME_LABEL: names.cluster},
        },
        "spec": spec,
    }


def decision_on(request: Object) -> bytes | RequestRefused | None:
    """The certificate, or why there is none; None while a request is pending."""
    status: Object = request.get("status") or {}
    conditions: list[Object] = status.get("conditions") or []
    for condition in conditions:
        if condition["type"] in ("Denied", "Failed"):
            why = condition.get("message") or condition.get("reason") or "no reason was given"
            return RequestRefused(f"{condition['type'].lower()}: {why}")
    if certificate := status.get("certificate"):
        return base64.b64decode(certificate)
    return None


async def create_request(hub: Client, wanted: RegistrationRequest, key: bytes, signer: str) -> str:
    """Ask for a certificate; the request's name, or nothing when there are too many already."""
    names = wanted.names
    labels = f"{CLUSTER_NAME_LABEL}={names.cluster},!{ADDON_LABEL}"
    existing = await hub.list(CSRS, labels=labels, metadata_only=True)
    if len(existing.items) >= MOST_REQUESTS:
        return ""
    pem = request_pem(key, names)
    manifest = request_manifest(pem, names, wanted.lifetime_seconds, signer)
    name: str = (await hub.create(CSRS, manifest))["metadata"]["name"]
    fingerprint = client_certificate.key_fingerprint(key)
    log.info("asked for a certificate", request=name, user=names.user, key=fingerprint)
    return name


async def wait_for_decision(
    hub: Client, name: str, wanted: RegistrationRequest, report: ReportFailure
) -> bytes | RequestRefused:
    """The decision on a request, as soon as there is one."""
    key = Key("", name)
    collection = Collection(CSRS, fields=f"metadata.name={name}")

    def is_done(found: Mapping[Key, Object]) -> bool:
        return key not in found or decision_on(found[key]) is not None

    while True:
        found = await retry(
            lambda: follow(hub, collection, is_done, seconds=RECHECK_SECONDS), report
        )
        if key in found and (decision := decision_on(found[key])) is not None:
            return decision
        try:
            decision = decision_on(await hub.get(CSRS, name))
        except NotFound:
            return DELETED
        except KubeError as error:
            report(*failure_reason(error))
            continue
        if decision is not None:
            return decision
        await retry(lambda: ensure_cluster(hub, wanted), report)
