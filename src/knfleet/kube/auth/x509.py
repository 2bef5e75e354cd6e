"""What can be said about certificates before a server sees them.

TLS libraries report a bad file as a number and a name; here the same faults become sentences.
"""

import hashlib
import re
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

KNOWN_BUNDLES = 2048
"""Looking at one costs as much as two requests, and each is looked at again and again."""
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


@lru_cache(maxsize=KNOWN_BUNDLES)
def authorities(bundle: bytes) -> bytes:
    """The PEM certificates of a bundle, without the remarks between; empty when one is broken."""
    pem = b"\n".join(CERTIFICATE.findall(bundle))
    if not pem:
        return b""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, ValueError):
        return b""
    return pem + b"\n"


def fingerprint(key: "PublicKeyTypes") -> str:
    """The digest of a public key, as kubeadm writes it."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def check_key_pair(certificate: bytes, key: bytes) -> str:
    """What is wrong with a certificate and its private key; empty when nothing is."""
    # Imported when first needed: most clusters are reached with a token.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        leaf = x509.load_pem_x509_certificate(certificate)
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        return "the certificate is not a PEM certificate"
    try:
        private = load_pem_private_key(key, None)
    except TypeError:
        return "the key is encrypted; store it without a passphrase"
    except (ValueError, UnsupportedAlgorithm):
        return "the key is not a PEM private key"
    if leaf.public_key() != private.public_key():
        return "the key does not belong to the certificate"
    return ""
