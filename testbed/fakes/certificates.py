"""Certificates for servers on this machine, made when they are needed."""

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

DAY = timedelta(days=1)


class Pair(Struct, frozen=True):
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority of its own."""

    def __init__(self, name: str = "test") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        self.certificate = (
            builder(self.name, self.name, self.key.public_key(), days=3650)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """The authority's own certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pair(self) -> Pair:
        """The authority's certificate and key."""
        return Pair(self.pem, key_pem(self.key))

    def server(self, *names: str, days: int = 30) -> Pair:
        """A server certificate for loopback and some names; with negative days an expired one."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        extension = x509.SubjectAlternativeName(alternatives)
        return self.issue("server", extension, ExtendedKeyUsageOID.SERVER_AUTH, days=days)

    def client(self, user: str, group: str = "", *, days: int = 30) -> Pair:
        """A client certificate for a user."""
        name = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            name.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        return self.issue(x509.Name(name), None, ExtendedKeyUsageOID.CLIENT_AUTH, days=days)

    def issue(
        self,
        name: str | x509.Name,
        extension: x509.SubjectAlternativeName | None,
        usage: x509.ObjectIdentifier,
        *,
        days: int,
    ) -> Pair:
        """A certificate that this authority signed."""
        if isinstance(name, str):
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        key = ec.generate_private_key(ec.SECP256R1())
        request = builder(name, self.name, key.public_key(), days=days)
        request = request.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        request = request.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
            critical=False,
        )
        if extension is not None:
            request = request.add_extension(extension, critical=False)
        certificate = request.sign(self.key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))


def builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    """A certificate that is valid until some days from now."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 60 * DAY)
        .not_valid_after(now + days * DAY)
    )


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
