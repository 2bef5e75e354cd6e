"""Certificates of a dev cluster, made with `cryptography`, and the kubeconfigs that carry them."""

import base64
import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from knfleet.dev.dev_folder import write_private
from knfleet.hub.certificates.certificate_authority import authority_usage

LIFETIME = timedelta(days=3650)
BACKDATED = timedelta(hours=1)
"""A machine whose clock is a little behind must still accept them."""


class KeyPair(Struct, frozen=True):
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> None:
        """Keep both as NAME.crt and NAME.key, for the owner alone."""
        write_private(folder / f"{name}.key", self.key)
        write_private(folder / f"{name}.crt", self.certificate)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def subject(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    """A subject: to an API server the user's name and groups."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class CertificateAuthority:
    """A certificate authority."""

    def __init__(self, pair: KeyPair) -> None:
        self.pair = pair
        self.certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError("an authority's key is an elliptic curve key")
        self.key = key

    @classmethod
    def create(cls, common_name: str) -> "CertificateAuthority":
        """A new authority that signs itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = subject(common_name)
        certificate = (
            draft(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(authority_usage(), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(KeyPair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key)))

    @classmethod
    def load(cls, folder: Path, name: str) -> "CertificateAuthority":
        """The authority that was kept as NAME.crt and NAME.key."""
        crt, key = folder / f"{name}.crt", folder / f"{name}.key"
        return cls(KeyPair(crt.read_bytes(), key.read_bytes()))

    def client(self, common_name: str, *organizations: str) -> KeyPair:
        return self.issue(subject(common_name, organizations), ExtendedKeyUsageOID.CLIENT_AUTH)

    def server(self, common_name: str, *names: str) -> KeyPair:
        """A certificate for a server known by these DNS names and addresses."""
        return self.issue(subject(common_name), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def issue(
        self, name: x509.Name, usage: x509.ObjectIdentifier, names: Sequence[str] = ()
    ) -> KeyPair:
        """A certificate signed by this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            draft(name, self.certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if names:
            alternatives = x509.SubjectAlternativeName([general_name(each) for each in names])
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))


def draft(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    """What all our certificates have in common."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
    )


def general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def signing_key() -> tuple[bytes, bytes]:
    """A private and a public key for ServiceAccount tokens, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return key_pem(key), public


class KubeconfigAccess(Struct, frozen=True):
    """One context of a kubeconfig."""

    context: str
    server: str
    ca: bytes
    client: KeyPair


def kubeconfig(accesses: Sequence[KubeconfigAccess]) -> bytes:
    """A kubeconfig with a context for each cluster; the first one is current."""
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": accesses[0].context if accesses else "",
        "clusters": [
            {
                "name": each.context,
                "cluster": {"server": each.server, "certificate-authority-data": encoded(each.ca)},
            }
            for each in accesses
        ],
        "users": [
            {
                "name": f"{each.context}-admin",
                "user": {
                    "client-certificate-data": encoded(each.client.certificate),
                    "client-key-data": encoded(each.client.key),
                },
            }
            for each in accesses
        ],
        "contexts": [
            {
                "name": each.context,
                "context": {"cluster": each.context, "user": f"{each.context}-admin"},
            }
            for each in accesses
        ],
    }
    # JSON is YAML, and kubectl reads either.
    return msgspec.json.format(msgspec.json.encode(document))


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
