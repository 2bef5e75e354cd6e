"""The agent's client certificate and its key: what they contain, and when to renew them. Pure.

A common name may be longer than the 64 characters that X.509 allows: Kubernetes does not care, so
it is not checked.
"""

import warnings
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import Struct

from knfleet.kube.auth.x509 import fingerprint

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


def read(pem: bytes) -> ClientCertificate | None:
    """What the first certificate of a chain says; None when it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaf = x509.load_pem_x509_certificate(pem)
            names = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (ValueError, x509.InvalidVersion):
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
