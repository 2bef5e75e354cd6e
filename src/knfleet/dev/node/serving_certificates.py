"""Certificates for the servers inside this process, signed by the cluster's development CA.

They are made by a process of their own (`python -m knfleet.dev.node.serving_certificates`): the
library for it takes a sixth of the node's memory, and is needed for a moment.
"""

import asyncio
import base64
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from knfleet.api.meta import Key
from knfleet.kube.auth.tls import readable

if TYPE_CHECKING:
    from cryptography import x509

LIFE = timedelta(days=365)
ISSUE_SECONDS = 60.0


class ServingCertificates:
    """The development CA; keeps one TLS context for each set of names."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate = certificate
        self.key = key
        self.contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self.making = asyncio.Lock()

    def bundle(self) -> str:
        """The CA as webhook configurations carry it."""
        return base64.b64encode(self.certificate.read_bytes()).decode("ascii")

    async def context(self, names: tuple[str, ...]) -> ssl.SSLContext:
        """A server's TLS context with a certificate for these names."""
        async with self.making:
            if names not in self.contexts:
                self.contexts[names] = server_context(await self.issued(names))
            return self.contexts[names]

    async def service_context(self, service: Key) -> ssl.SSLContext:
        """A TLS context with a certificate for a Service's names."""
        base = f"{service.name}.{service.namespace}.svc"
        return await self.context((base, f"{base}.cluster.local"))

    async def issued(self, names: tuple[str, ...]) -> bytes:
        """A fresh certificate for the names, and its key."""
        line = (
            "-m",
            "knfleet.dev.node.serving_certificates",
            str(self.certificate),
            str(self.key),
            *names,
        )
        child = await asyncio.create_subprocess_exec(
            sys.executable, *line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        async with asyncio.timeout(ISSUE_SECONDS):
            pair, _ = await child.communicate()
        if child.returncode:
            raise OSError(f"no certificate could be made, exit code {child.returncode}")
        return pair


def server_context(pair: bytes) -> ssl.SSLContext:
    """A TLS context that shows a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    with readable(pair) as path:
        context.load_cert_chain(path)
    return context


def issue(ca_certificate: bytes, ca_key: bytes, names: tuple[str, ...]) -> bytes:
    """A certificate for host names and addresses, and its key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    authority = x509.load_pem_x509_certificate(ca_certificate)
    signer = serialization.load_pem_private_key(ca_key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the webhook CA has no elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "knfleet dev node")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(min(now + LIFE, authority.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName(list(map(general_name, names))), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def general_name(name: str) -> "x509.GeneralName":
    """A name as a certificate carries it."""
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def main(certificate: str, key: str, *names: str) -> None:
    """Write a certificate for the names, and its key, to standard output."""
    ca = Path(certificate).read_bytes(), Path(key).read_bytes()
    sys.stdout.buffer.write(issue(*ca, names))


if __name__ == "__main__":
    main(*sys.argv[1:])
