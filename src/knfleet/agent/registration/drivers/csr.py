"""The agent's client certificate: keys, requests, and when to ask for the next one. Pure.

A common name may be longer than the 64 characters that X.509 allows: Kubernetes does not care, so
neither the request nor the certificate is checked for that.
"""

import base64
import warnings
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import Struct

from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL, MANAGED_CLUSTERS, cluster_groups
from knfleet.api.meta import Object, Resource
from knfleet.kube.auth.x509 import fingerprint

REQUESTS = Resource(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    namespaced=False,
)
SIGNER = "kubernetes.io/kube-apiserver-client"
USAGES = ["digital signature", "key encipherment", "client auth"]
RENEWED_BELOW = 0.20
RENEWED_SPREAD = 0.05
"""A certificate is renewed when 20 to 25 % of its life are left, so that a fleet spreads out."""


class ClientCertificate(Struct, frozen=True):
    """What a client certificate says."""

    common_name: str
    begins: datetime
    ends: datetime

    def renew_at(self, chance: float) -> datetime:
        """When to ask for the next one; `chance` is a number from 0 to 1."""
        left = RENEWED_BELOW + RENEWED_SPREAD * chance
        return self.ends - (self.ends - self.begins) * left


class IssuedCertificate(Struct, frozen=True):
    """A request was approved and signed."""

    certificate: bytes


class RequestRefused(Struct, frozen=True):
    """A request was denied, failed, or taken away."""

    why: str


def new_key() -> bytes:
    """A new private key, as PEM."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def key_fingerprint(key: bytes) -> str:
    """The digest of a private key's public part, as `knfleet accept` shows it."""
    return fingerprint(serialization.load_pem_private_key(key, None).public_key())


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
    """One part of a subject, however long it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x509.NameAttribute(kind, value, _validate=False)


def request_manifest(pem: bytes, names: AgentNames, lifetime_seconds: int = 0) -> Object:
    """The object that asks the hub for a certificate."""
    spec: Object = {
        "request": base64.b64encode(pem).decode(),
        "signerName": SIGNER,
        "usages": USAGES,
    }
    if lifetime_seconds:
        spec["expirationSeconds"] = lifetime_seconds
    return {
        "apiVersion": REQUESTS.api_version,
        "kind": REQUESTS.kind,
        "metadata": {
            "generateName": f"{names.cluster}-",
            "labels": {CLUSTER_NAME_LABEL: names.cluster},
        },
        "spec": spec,
    }


def outcome(request: Object | None) -> IssuedCertificate | RequestRefused | None:
    """What became of a request; None while nothing has."""
    if request is None:
        return RequestRefused("the request was deleted before it was answered")
    status: Object = request.get("status") or {}
    conditions: list[Object] = status.get("conditions") or []
    for condition in conditions:
        if condition["type"] in ("Denied", "Failed"):
            reported = condition.get("message") or condition.get("reason") or "no reason was given"
            return RequestRefused(f"{condition['type'].lower()}: {reported}")
    if certificate := status.get("certificate"):
        return IssuedCertificate(base64.b64decode(certificate))
    return None


def read(pem: bytes) -> ClientCertificate | None:
    """What the first certificate of a chain says; None when it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaf = x509.load_pem_x509_certificate(pem)
            names = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        return None
    common_name = str(names[0].value) if names else ""
    return ClientCertificate(common_name, leaf.not_valid_before_utc, leaf.not_valid_after_utc)


def valid_for(certificate: ClientCertificate) -> str:
    """From when to when a certificate is valid, for people."""
    begins, ends = (
        each.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        for each in (certificate.begins, certificate.ends)
    )
    return f"from {begins} to {ends}"
