"""Certificates of the webhook server: what a Secret holds, and when it is to be replaced. Pure.

One Secret has a bundle of CAs, the key of the newest, and a serving certificate; all replicas
serve the same. A new CA is added to the bundle some time before it signs the serving certificate,
so that API servers trust it by then; the old one stays until nothing is signed by it.
"""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.meta import Object

CA_LIFE = timedelta(days=730)
SERVING_LIFE = timedelta(days=180)
BACKDATED = timedelta(minutes=10)
"""A machine whose clock is a little behind must accept them, too."""
OVERLAP = timedelta(hours=1)
"""How long a new CA is distributed before it signs the serving certificate."""
RETRY = timedelta(minutes=1)
FIELDS = {"bundle": "ca.crt", "ca_key": "ca.key", "certificate": "tls.crt", "key": "tls.key"}


class WebhookCertificates(Struct, frozen=True):
    """What the Secret holds, as PEM."""

    bundle: bytes
    """CAs that clients trust, the newest first."""
    ca_key: bytes
    """Key of the newest CA."""
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "WebhookCertificates()"

    @classmethod
    def of(cls, secret: Object | None) -> "WebhookCertificates | None":
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

    certificates: WebhookCertificates
    look_at: datetime


def renewal(
    kept: WebhookCertificates | None, names: Sequence[str], now: datetime
) -> CertificateRenewal:
    """The certificates that the server should have now; the same ones while nothing is due."""
    if kept is None or is_invalid(kept.authorities[0], now):
        made = fresh(names, now)
        return CertificateRenewal(made, next_look(made, now))
    made = kept
    if is_due(made.authorities[0], now):
        key = new_key()
        added = authority(key, now)
        made = WebhookCertificates(
            pem(added) + made.bundle, key_pem(key), made.certificate, made.key
        )
    newest = made.authorities[0]
    is_old = (
        not has_signed(newest, made.serving)
        or is_due(made.serving, now)
        or served_names(made.serving) != sorted(names)
    )
    may_sign = now >= trusted_at(newest) or len(made.authorities) == 1
    if is_old and (may_sign or is_invalid(made.serving, now)):
        made = signed(made, names, now)
    made = without_useless(made, now)
    return CertificateRenewal(made, next_look(made, now))


def fresh(names: Sequence[str], now: datetime) -> WebhookCertificates:
    """A new CA, and a serving certificate by it."""
    key = new_key()
    certificate = authority(key, now)
    return signed(WebhookCertificates(pem(certificate), key_pem(key), b"", b""), names, now)


def signed(kept: WebhookCertificates, names: Sequence[str], now: datetime) -> WebhookCertificates:
    """The same with a new serving certificate by the newest CA."""
    issuer, ca_key = kept.authorities[0], key_of(kept.ca_key)
    key = new_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(common_name(names[0][:64]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(min(now + SERVING_LIFE, issuer.not_valid_after_utc))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    return replace(kept, certificate=pem(certificate), key=key_pem(key))


def authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    """A CA that signs itself; its name tells it from those before."""
    name = common_name(f"knfleet-webhook-ca@{int(now.timestamp())}")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def without_useless(kept: WebhookCertificates, now: datetime) -> WebhookCertificates:
    """The same without CAs that have expired, and those that neither sign nor are signed by."""
    newest, *others = kept.authorities
    leaf = kept.serving
    used = [each for each in others if has_signed(each, leaf) and not is_invalid(each, now)]
    bundle = b"".join(map(pem, [newest, *used]))
    return replace(kept, bundle=bundle)


def next_look(kept: WebhookCertificates, now: datetime) -> datetime:
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


def has_signed(ca: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Whether a CA signed a certificate."""
    try:
        leaf.verify_directly_issued_by(ca)
    except Exception:  # noqa: BLE001  whichever way it does not fit, the answer is no
        return False
    return True


def served_names(certificate: x509.Certificate) -> list[str]:
    """The DNS names of a certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return sorted(found.value.get_values_for_type(x509.DNSName))


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """The names by which API servers call a Service."""
    base = f"{service}.{namespace}.svc"
    return (base, f"{base}.cluster.local")


def common_name(name: str) -> x509.Name:
    """A subject."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def new_key() -> ec.EllipticCurvePrivateKey:
    """A private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_of(text: bytes) -> ec.EllipticCurvePrivateKey:
    """A private key from PEM."""
    key = serialization.load_pem_private_key(text, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not an elliptic curve key")
    return key


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def pem(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)
