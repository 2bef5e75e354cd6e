"""Which credentials an add-on's agent gets, and what its Secrets hold. Pure."""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import Struct

from knfleet.agent.registration import client_certificate
from knfleet.agent.registration.drivers import csr
from knfleet.agent.registration.identity import HubAddress, hub_kubeconfig
from knfleet.api.addon.managedclusteraddon import ManagedClusterAddOn, Subject
from knfleet.api.addon.names import (
    ADDON_LABEL,
    DEFAULT_NAMESPACE,
    KUBE_CLIENT_SIGNER,
    TOKEN_READY,
    addon_groups,
    addon_user,
    certificate_secret,
    kubeconfig_secret,
)
from knfleet.api.certificate_requests import CSRS, USAGES
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL
from knfleet.api.conditions import find
from knfleet.api.meta import Key, Object
from knfleet.api.operator import BOOTSTRAP_SECRET, HUB_SECRET
from knfleet.kube.auth.x509 import check_key_pair
from knfleet.kube.untrusted_json import decode_json
from knfleet.kube.yaml import dump_all, load_all

SECRET_LABEL = "knfleet.dev/addon-credentials"  # noqa: S105  a label
"""Label of the Secrets that this agent writes: the add-on that they are for."""
ACCOUNT_UID = re.compile(r"\(UID: ([^)]+)\)")
AGENT_SECRETS = (BOOTSTRAP_SECRET, HUB_SECRET)
LIFE_LEFT = 0.2
"""A token is replaced when so much of its life is left."""


class WantedCredential(Struct, frozen=True):
    """A Secret that an add-on's agent needs."""

    addon: str
    cluster: str
    signer: str
    subject: Subject
    secret: Key
    hosted: bool = False
    """Whether the Secret belongs on the cluster that hosts the agent."""
    uses_token: bool = False

    @property
    def is_kube_client(self) -> bool:
        """Whether it gives access to the hub's API server."""
        return self.signer == KUBE_CLIENT_SIGNER


def install_namespace(addon: ManagedClusterAddOn) -> str:
    """Where an add-on's agent runs."""
    return addon.status.namespace or addon.spec.install_namespace or DEFAULT_NAMESPACE


def wanted_credentials(
    addon: ManagedClusterAddOn, agent: str, *, tokens: bool
) -> list[WantedCredential]:
    """The Secrets that an add-on's agent needs; `tokens`: the hub is reached by tokens."""
    namespace = install_namespace(addon)
    found: dict[str, WantedCredential] = {}
    for each in addon.status.registrations:
        subject = each.subject
        if not subject.user:
            subject = msgspec.structs.replace(
                subject, user=addon_user(addon.cluster, addon.name, agent)
            )
        name = certificate_secret(addon.name, each.signer_name)
        if each.is_kube_client:
            name = kubeconfig_secret(addon.name)
            if not subject.groups:
                groups = addon_groups(addon.cluster, addon.name)
                subject = msgspec.structs.replace(subject, groups=groups)
        found[name] = WantedCredential(
            addon=addon.name,
            cluster=addon.cluster,
            signer=each.signer_name,
            subject=subject,
            secret=Key(namespace, name),
            hosted=bool(addon.hosting_cluster),
            uses_token=tokens and each.is_kube_client,
        )
    return list(found.values())


def secret_problem(wanted: WantedCredential) -> str:
    """Why a Secret cannot be an add-on's; empty when it can.

    Add-ons choose their names and namespaces, and so could name those by which the agent lives.
    """
    if wanted.secret.name not in AGENT_SECRETS:
        return ""
    return (
        f"Secret {wanted.secret} of add-on {wanted.addon} has the name of one of the agent's own;"
        " give the add-on another name"
    )


def request_pem(key: bytes, wanted: WantedCredential) -> bytes:
    """A certificate request of an add-on's agent."""
    private = serialization.load_pem_private_key(key, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    subject = wanted.subject
    attributes = [
        *(csr.attribute(NameOID.ORGANIZATION_NAME, each) for each in subject.groups),
        *(
            csr.attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, each)
            for each in subject.organization_units
        ),
        csr.attribute(NameOID.COMMON_NAME, subject.user),
    ]
    names = x509.SubjectAlternativeName(
        [x509.DNSName(f"{wanted.addon}.addon.open-cluster-management.io")]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    builder = builder.add_extension(names, critical=False)
    return builder.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def request_manifest(pem: bytes, wanted: WantedCredential) -> Object:
    """The object that asks the hub for a certificate."""
    return {
        "apiVersion": CSRS.api_version,
        "kind": CSRS.kind,
        "metadata": {
            "generateName": f"addon-{wanted.cluster}-{wanted.addon}-",
            "labels": {CLUSTER_NAME_LABEL: wanted.cluster, ADDON_LABEL: wanted.addon},
        },
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": wanted.signer,
            "usages": [*USAGES],
        },
    }


def certificate_content(
    wanted: WantedCredential, address: HubAddress, key: bytes, certificate: bytes
) -> dict[str, bytes]:
    """What a Secret with a certificate holds."""
    content = {"tls.key": key, "tls.crt": certificate}
    if wanted.is_kube_client:
        content["kubeconfig"] = hub_kubeconfig(address)
        content["cluster-name"] = wanted.cluster.encode()
    return content


def token_content(wanted: WantedCredential, address: HubAddress, token: str) -> dict[str, bytes]:
    """What a Secret with a token holds."""
    (config,) = load_all(hub_kubeconfig(address))
    config["users"][0]["user"] = {"tokenFile": "token"}
    return {
        "token": token.encode(),
        "kubeconfig": dump_all([config]).encode(),
        "cluster-name": wanted.cluster.encode(),
    }


def secret_manifest(wanted: WantedCredential, content: Mapping[str, bytes]) -> Object:
    """The Secret for an add-on's agent."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": wanted.secret.name,
            "namespace": wanted.secret.namespace,
            "labels": {SECRET_LABEL: wanted.addon},
        },
        "type": "Opaque",
        "data": {name: base64.b64encode(value).decode() for name, value in content.items()},
    }


def content_of(secret: Object | None) -> dict[str, bytes]:
    """What a Secret holds."""
    data: dict[str, str] = (secret or {}).get("data") or {}
    try:
        return {name: base64.b64decode(text) for name, text in data.items()}
    except (binascii.Error, TypeError):
        return {}


def renewal_time(
    wanted: WantedCredential, address: HubAddress, content: Mapping[str, bytes], now: datetime
) -> datetime | None:
    """When a kept certificate is to be renewed; None when it is of no use now."""
    certificate = client_certificate.read(content.get("tls.crt", b""))
    key = content.get("tls.key", b"")
    if certificate is None or not key or certificate.common_name != wanted.subject.user:
        return None
    if check_key_pair(content["tls.crt"], key) or certificate.ends <= now:
        return None
    if certificate_content(wanted, address, key, content["tls.crt"]) != dict(content):
        return None
    return certificate.renew_at(0.5)


def token_renewal_time(
    wanted: WantedCredential, address: HubAddress, content: Mapping[str, bytes], account_uid: str
) -> datetime | None:
    """When a kept token is to be renewed; None when it is of no use now."""
    token = content.get("token", b"").decode(errors="replace")
    claims = token_claims(token)
    if claims is None or claims.account_uid != account_uid:
        return None
    if token_content(wanted, address, token) != dict(content):
        return None
    life = claims.exp - claims.iat
    return datetime.fromtimestamp(claims.exp - life * LIFE_LEFT, UTC)


class ServiceAccountClaim(Struct, frozen=True):
    """The account of a token."""

    name: str = ""
    uid: str = ""


class KubernetesClaims(Struct, frozen=True):
    """What Kubernetes says in a token."""

    serviceaccount: ServiceAccountClaim = ServiceAccountClaim()


class TokenClaims(Struct, frozen=True):
    """What a token says of itself; it is not verified, for it is our own."""

    exp: int
    iat: int
    kubernetes: KubernetesClaims = msgspec.field(name="kubernetes.io", default=KubernetesClaims())

    @property
    def account_uid(self) -> str:
        """The uid of the account."""
        return self.kubernetes.serviceaccount.uid


def token_claims(token: str) -> TokenClaims | None:
    """What a token says; None when it cannot be read."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return decode_json(payload, TokenClaims)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        return None


def account_uid(addon: ManagedClusterAddOn) -> str:
    """The uid of the add-on's account on the hub; empty while that is not ready."""
    said = find(addon.status.conditions, TOKEN_READY)
    if said is None or said.status != "True":
        return ""
    found = ACCOUNT_UID.search(said.message)
    return found[1] if found else ""
