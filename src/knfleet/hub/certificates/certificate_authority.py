"""CAs for ports of the hub, and certificates by them. Pure.

A CA for servers has name constraints: it can sign for the names of its own port and for nothing
else. Clients that trust several CAs in one bundle, as consumers of ClusterProfiles do, are safe
from a key of ours that leaked: it vouches for no API server.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

EVERY_ADDRESS = ("0.0.0.0/0", "::/0")
COMMON_NAME_LIMIT = 64
SUBJECT = "knfleet"
"""Of serving certificates: no name of a server, which OpenSSL would hold against constraints."""


def authority(
    key: ec.EllipticCurvePrivateKey,
    subject: str,
    begin: datetime,
    end: datetime,
    names: Sequence[str] = (),
) -> x509.Certificate:
    """A CA that signs itself, limited to some names; its subject tells it from those before."""
    mark = f"-ca@{int(begin.timestamp())}"
    name = common_name(subject[: COMMON_NAME_LIMIT - len(mark)] + mark)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(authority_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names:
        made = made.add_extension(constraints(names), critical=True)
    return made.sign(key, hashes.SHA256())


def authority_usage() -> x509.KeyUsage:
    """What the key of a CA is for."""
    return x509.KeyUsage(
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


def constraints(names: Sequence[str]) -> x509.NameConstraints:
    """The names that a CA may sign for.

    A kind of names without any constraint would be free, so all addresses are excluded when none
    is permitted, and all DNS names likewise.
    """
    permitted = [subtree(name) for name in names]
    excluded: list[x509.GeneralName] = []
    if not any(isinstance(each, x509.IPAddress) for each in permitted):
        excluded += [x509.IPAddress(ipaddress.ip_network(each)) for each in EVERY_ADDRESS]
    if not any(isinstance(each, x509.DNSName) for each in permitted):
        excluded.append(x509.DNSName(""))
    return x509.NameConstraints(permitted, excluded or None)


def subtree(name: str) -> x509.GeneralName:
    """A name as constraints have it: of addresses, a network of one."""
    found = general_name(name)
    if isinstance(found, x509.IPAddress):
        return x509.IPAddress(ipaddress.ip_network(found.value))
    return found


def general_name(name: str) -> x509.GeneralName:
    """A DNS name or an address as certificates have it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def is_limited_to(ca: x509.Certificate, names: Sequence[str]) -> bool:
    """Whether a CA may sign for exactly these names."""
    try:
        found = ca.extensions.get_extension_for_class(x509.NameConstraints)
    except x509.ExtensionNotFound:
        return False
    return found.critical and found.value == constraints(names)


def serving_certificate(
    key: ec.EllipticCurvePublicKey,
    names: Sequence[str],
    begin: datetime,
    end: datetime,
    *,
    issuer: x509.Certificate,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """A certificate of a server with these names."""
    alternatives = x509.SubjectAlternativeName([general_name(name) for name in names])
    return (
        x509.CertificateBuilder()
        .subject_name(common_name(SUBJECT))
        .issuer_name(issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(min(end, issuer.not_valid_after_utc))
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )


def has_signed(ca: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Whether a CA signed a certificate."""
    try:
        leaf.verify_directly_issued_by(ca)
    except Exception:  # noqa: BLE001  whichever way it does not fit, the answer is no
        return False
    return True


def served_names(certificate: x509.Certificate) -> list[str]:
    """The DNS names and addresses of a certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return sorted([*found.get_values_for_type(x509.DNSName), *addresses])


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
