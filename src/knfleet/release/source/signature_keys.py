"""Signatures of cosign over files, checked without a network by keys that the user has pinned.

A pinned file has public keys, as `cosign generate-key-pair` writes them, or certificates of
authorities, as Sigstore's are: then the signature must come with a certificate that one of them
issued, for the identity that is expected. Such certificates are valid for minutes. That a signature
was made in them is recorded in a public log, which is not asked here.
"""

import base64
import binascii
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from msgspec import Struct

from knfleet.release.errors import NotAvailable, Tampered
from knfleet.release.signers import IDENTITY, ISSUER

OIDC_ISSUER = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
OIDC_ISSUER_BEFORE = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
MOST_BYTES = 64 * 1024
MOST_ISSUERS = 4
MALFORMED = (
    ValueError,
    UnsupportedAlgorithm,
    x509.UnsupportedGeneralNameType,
    x509.InvalidVersion,
    x509.DuplicateExtension,
)
"""What the reading of a certificate raises."""
Kind = TypeVar("Kind", bound=x509.ExtensionType)


class PinnedKeys(Struct, frozen=True):
    """Whose signatures are believed."""

    keys: tuple[EllipticCurvePublicKey, ...] = ()
    authorities: tuple[x509.Certificate, ...] = ()
    identity: str = IDENTITY
    issuer: str = ISSUER

    def signer(self, where: str, content: bytes, signature: bytes, certificate: bytes) -> str:
        """Who signed some content; raises `Tampered` when it is nobody who is believed."""
        plain = decoded(where, signature)
        for number, key in enumerate(self.keys, 1):
            if is_signed(key, content, plain):
                return f"pinned key {number}"
        if not self.authorities or not certificate:
            raise Tampered(f"{where}: is not signed by a pinned key")
        try:
            leaf, *others = certificates(where, certificate)
            self.check_certificate(where, leaf, others)
            key = leaf.public_key()
        except MALFORMED as error:
            raise Tampered(f"{where}: the certificate cannot be read: {error}") from None
        if not isinstance(key, EllipticCurvePublicKey) or not is_signed(key, content, plain):
            raise Tampered(f"{where}: the signature is not by the key of its certificate")
        return f"{self.identity} by a certificate of {self.issuer}"

    def check_certificate(
        self, where: str, leaf: x509.Certificate, others: list[x509.Certificate]
    ) -> None:
        """Raise unless a certificate is for signing, of the identity, from a pinned authority."""
        usage = extension(leaf, x509.ExtendedKeyUsage)
        if usage is None or ExtendedKeyUsageOID.CODE_SIGNING not in usage:
            raise Tampered(f"{where}: the certificate is not for signing code")
        found = identities(leaf)
        if not found:
            raise Tampered(f"{where}: the certificate names no signer, and not {self.identity}")
        if self.identity not in found:
            raise Tampered(f"{where}: was signed by {', '.join(found)}, not by {self.identity}")
        if oidc_issuer(leaf) != self.issuer:
            raise Tampered(
                f"{where}: the identity is confirmed by {oidc_issuer(leaf)}, not by {self.issuer}"
            )
        at, below = leaf, leaf
        for _ in range(MOST_ISSUERS):
            if any(issued(each, at, leaf) for each in self.authorities):
                return
            below = at
            at = next((each for each in others if issued(each, below, leaf)), at)
            if at is below:
                break
        raise Tampered(f"{where}: the certificate is of no pinned authority")


def pinned_keys(files: tuple[Path, ...], identity: str, issuer: str) -> PinnedKeys | None:
    """The keys and authorities in some files; None when there are no files."""
    keys: list[EllipticCurvePublicKey] = []
    authorities: list[x509.Certificate] = []
    for file in files:
        try:
            with file.open("rb") as opened:
                content = opened.read(MOST_BYTES)
            if b"BEGIN CERTIFICATE" in content:
                authorities += x509.load_pem_x509_certificates(content)
                continue
            key = load_pem_public_key(content)
        except OSError as error:
            raise NotAvailable(f"{file}: cannot be read: {error.strerror}") from error
        except MALFORMED as error:
            raise NotAvailable(
                f"{file}: has no public key or certificate in PEM format: {error}"
            ) from None
        if not isinstance(key, EllipticCurvePublicKey):
            raise NotAvailable(f"{file}: only ECDSA keys are supported, as cosign makes them")
        keys.append(key)
    return PinnedKeys(tuple(keys), tuple(authorities), identity, issuer) if files else None


def decoded(where: str, text: bytes) -> bytes:
    """What base64 text stands for, as cosign writes it."""
    try:
        return base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise Tampered(f"{where}: is no signature of cosign, which is written in base64") from None


def certificates(where: str, content: bytes) -> list[x509.Certificate]:
    """Certificates in PEM, or in PEM within base64, as older versions of cosign write them."""
    pem = content if b"-----BEGIN" in content else decoded(where, content)
    return x509.load_pem_x509_certificates(pem)


def is_signed(key: EllipticCurvePublicKey, content: bytes, signature: bytes) -> bool:
    """Whether a signature is one of a key over some content."""
    try:
        key.verify(signature, content, ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def issued(authority: x509.Certificate, below: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Whether an authority issued a certificate, and was valid when the leaf began to be."""
    limits = extension(authority, x509.BasicConstraints)
    usage = extension(authority, x509.KeyUsage)
    if limits is None or not limits.ca or (usage is not None and not usage.key_cert_sign):
        return False
    begin = leaf.not_valid_before_utc
    if not authority.not_valid_before_utc <= begin <= authority.not_valid_after_utc:
        return False
    try:
        below.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def extension(certificate: x509.Certificate, kind: type[Kind]) -> Kind | None:
    """An extension of a certificate, if it has it."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def identities(certificate: x509.Certificate) -> list[str]:
    """Whom a certificate is for: addresses of mail, and URIs."""
    names = extension(certificate, x509.SubjectAlternativeName)
    if names is None:
        return []
    return [
        *names.get_values_for_type(x509.RFC822Name),
        *names.get_values_for_type(x509.UniformResourceIdentifier),
    ]


def oidc_issuer(certificate: x509.Certificate) -> str:
    """Who confirmed the identity in a certificate of Sigstore."""
    for name, skipped in ((OIDC_ISSUER, 2), (OIDC_ISSUER_BEFORE, 0)):
        try:
            value = certificate.extensions.get_extension_for_oid(name).value
        except x509.ExtensionNotFound:
            continue
        if isinstance(value, x509.UnrecognizedExtension):
            # The newer one is a UTF8String, whose type and short length are two bytes.
            return value.value[skipped:].decode(errors="replace")
    return ""
