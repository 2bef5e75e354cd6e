"""Certificates of one of the hub's ports: what a Secret holds, and when to replace it. Pure.

One Secret has a bundle of CAs, the key of the newest, and a serving certificate; all replicas
serve the same. A new CA is added to the bundle some time before it signs the serving certificate,
so that clients trust it by then; the old one stays until nothing is signed by it.
"""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.meta import Object
from knfleet.hub.certificates.certificate_authority import (
    authority,
    has_signed,
    is_limited_to,
    key_of,
    key_pem,
    new_key,
    pem,
    served_names,
    serving_certificate,
)

CA_LIFE = timedelta(days=730)
SERVING_LIFE = timedelta(days=180)
BACKDATED = timedelta(minutes=10)
"""A machine whose clock is a little behind must accept them, too."""
OVERLAP = timedelta(hours=1)
"""How long a new CA is distributed before it signs the serving certificate."""
RETRY = timedelta(minutes=1)


class CertificatePolicy(Struct, frozen=True):
    """How long certificates live, and which CAs stay."""

    ca_life: timedelta = CA_LIFE
    serving_life: timedelta = SERVING_LIFE
    ca_name: str = ""
    """The start of the subject of CAs; the first name that is served when empty."""
    signs_clients: bool = False
    """Whether clients have certificates of the CAs: these stay until they expire, and are not
    limited to the names of the server."""


SERVERS = CertificatePolicy()
FIELDS = {"bundle": "ca.crt", "ca_key": "ca.key", "certificate": "tls.crt", "key": "tls.key"}


class PortCertificates(Struct, frozen=True):
    """What the Secret holds, as PEM."""

    bundle: bytes
    """CAs that clients trust, the newest first."""
    ca_key: bytes
    """Key of the newest CA."""
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "PortCertificates()"

    @classmethod
    def of(cls, secret: Object | None) -> "PortCertificates | None":
        """What a Secret holds; None when it lacks something or has something else."""
        data: dict[str, str] = (secret or {}).get("data") or {}
        try:
            fields = {
                name: base64.b64decode(data[key], validate=True) for name, key in FIELDS.items()
            }
            made = cls(**fields)
            made.check()
        except (KeyError, ValueError, TypeError, binascii.Error):
            return None
        return made

    def data(self) -> dict[str, str]:
        """The same as a Secret has it."""
        return {key: base64.b64encode(getattr(self, name)).decode() for name, key in FIELDS.items()}

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` unless everything can be used together."""
        leaf = x509.load_pem_x509_certificate(self.certificate)
        if key_of(self.key).public_key() != leaf.public_key():
            raise ValueError("the key does not belong to the serving certificate")
        if key_of(self.ca_key).public_key() != self.authorities[0].public_key():
            raise ValueError("the key does not belong to the CA")
        if self.issuer is None:
            raise ValueError("the serving certificate is not signed by a CA of the bundle")

    @property
    def authorities(self) -> list[x509.Certificate]:
        """The CAs, the newest first."""
        return x509.load_pem_x509_certificates(self.bundle)

    @property
    def serving(self) -> x509.Certificate:
        """The serving certificate."""
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def issuer(self) -> x509.Certificate | None:
        """The CA of the bundle that signed the serving certificate."""
        leaf = self.serving
        return next((each for each in self.authorities if has_signed(each, leaf)), None)


class CertificateRenewal(Struct, frozen=True):
    """What is to be kept from now on, and when to look again."""

    certificates: PortCertificates
    look_at: datetime


def renewal(
    kept: PortCertificates | None,
    names: Sequence[str],
    now: datetime,
    policy: CertificatePolicy = SERVERS,
) -> CertificateRenewal:
    """The certificates that the server should have now; the same ones while nothing is due."""
    if kept is None or is_invalid(kept.authorities[0], now):
        made = fresh(names, now, policy)
        return CertificateRenewal(made, next_look(made, now))
    made = kept
    fits = policy.signs_clients or is_limited_to(made.authorities[0], names)
    if is_due(made.authorities[0], now) or not fits:
        key, added = new_authority(names, now, policy)
        made = replace(made, bundle=pem(added) + made.bundle, ca_key=key)
    newest, served = made.authorities[0], served_names(made.serving)
    is_old = (
        not has_signed(newest, made.serving) or is_due(made.serving, now) or served != sorted(names)
    )
    may_sign = now >= trusted_at(newest) or len(made.authorities) == 1
    # Who calls a name that is not served yet has nothing that a new CA could break.
    is_useless = is_invalid(made.serving, now) or not set(names) <= set(served)
    if is_old and (may_sign or is_useless):
        made = signed(made, names, now, policy)
    made = without_useless(made, now, policy)
    return CertificateRenewal(made, next_look(made, now))


def fresh(names: Sequence[str], now: datetime, policy: CertificatePolicy) -> PortCertificates:
    """A new CA, and a serving certificate by it."""
    key, certificate = new_authority(names, now, policy)
    return signed(PortCertificates(pem(certificate), key, b"", b""), names, now, policy)


def new_authority(
    names: Sequence[str], now: datetime, policy: CertificatePolicy
) -> tuple[bytes, x509.Certificate]:
    """The key of a new CA, as PEM, and the CA."""
    key = new_key()
    limits = () if policy.signs_clients else names
    subject = policy.ca_name or names[0]
    return key_pem(key), authority(key, subject, now - BACKDATED, now + policy.ca_life, limits)


def signed(
    kept: PortCertificates,
    names: Sequence[str],
    now: datetime,
    policy: CertificatePolicy = SERVERS,
) -> PortCertificates:
    """The same with a new serving certificate by the newest CA."""
    key = new_key()
    certificate = serving_certificate(
        key.public_key(),
        names,
        now - BACKDATED,
        now + policy.serving_life,
        issuer=kept.authorities[0],
        issuer_key=key_of(kept.ca_key),
    )
    return replace(kept, certificate=pem(certificate), key=key_pem(key))


def without_useless(
    kept: PortCertificates, now: datetime, policy: CertificatePolicy
) -> PortCertificates:
    """The same without CAs that have expired, and those that neither sign nor are signed by."""
    newest, *others = kept.authorities
    leaf = kept.serving
    used = [
        each
        for each in others
        if (policy.signs_clients or has_signed(each, leaf)) and not is_invalid(each, now)
    ]
    bundle = b"".join(map(pem, [newest, *used]))
    return replace(kept, bundle=bundle)


def next_look(kept: PortCertificates, now: datetime) -> datetime:
    """When something may be due."""
    newest = kept.authorities[0]
    is_signed = has_signed(newest, kept.serving)
    due = min(due_at(newest), due_at(kept.serving)) if is_signed else trusted_at(newest)
    return max(due, now + RETRY)


def due_at(certificate: x509.Certificate) -> datetime:
    """When two thirds of a certificate's life are over."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


def trusted_at(ca: x509.Certificate) -> datetime:
    """When clients have had time to take up a CA."""
    return ca.not_valid_before_utc + BACKDATED + OVERLAP


def is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether a certificate should be replaced."""
    return now >= due_at(certificate)


def is_invalid(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether a certificate has expired; or is of the future, made by a clock that was wrong."""
    return not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """The names by which clients on the hub call a Service."""
    base = f"{service}.{namespace}.svc"
    return (base, f"{base}.cluster.local")
