"""Certificates that OpenSSL and API servers accept, and kubeconfigs that carry them."""

import base64
import stat
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from knfleet.dev import pki


def test_a_server_certificate_is_trusted_for_its_names() -> None:
    """A client that knows the authority accepts the server."""
    authority = pki.CertificateAuthority.create("test")
    pair = authority.server("server", "localhost", "127.0.0.1")

    verifier = (
        PolicyBuilder()
        .store(Store([authority.certificate]))
        .build_server_verifier(x509.DNSName("localhost"))
    )

    leaf = x509.load_pem_x509_certificate(pair.certificate)
    assert verifier.verify(leaf, []) == [leaf, authority.certificate]


def test_a_client_certificate_carries_user_and_groups() -> None:
    """The common name is the user, organizations are groups."""
    pair = pki.CertificateAuthority.create("test").client("jane", "dev", "ops")

    name = x509.load_pem_x509_certificate(pair.certificate).subject

    assert [each.value for each in name.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["jane"]
    organizations = name.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [each.value for each in organizations] == ["dev", "ops"]


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Nobody else on the machine can read a key."""
    pki.CertificateAuthority.create("test").pair.write(tmp_path, "ca")

    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600
    assert (
        pki.CertificateAuthority.load(tmp_path, "ca").client("jane").key.startswith(b"-----BEGIN")
    )


def test_a_kubeconfig_has_a_context_for_each_cluster() -> None:
    """The first cluster is the current one."""
    authority = pki.CertificateAuthority.create("test")
    pair = authority.client("admin")
    accesses = [
        pki.KubeconfigAccess(name, f"https://127.0.0.1:{port}", authority.pair.certificate, pair)
        for name, port in (("hub", 20000), ("spoke1", 20001))
    ]

    document = msgspec.json.decode(pki.kubeconfig(accesses))

    assert document["current-context"] == "hub"
    assert [each["name"] for each in document["contexts"]] == ["hub", "spoke1"]
    ca = document["clusters"][1]["cluster"]["certificate-authority-data"]
    assert base64.b64decode(ca) == authority.pair.certificate
