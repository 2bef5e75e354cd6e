"""Which certificate requests of add-ons' agents are approved."""

import base64
import warnings
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

from knfleet.agent.addon.addon_credentials import request_manifest, request_pem, wanted_credentials
from knfleet.agent.registration import client_certificate
from knfleet.agent.registration.drivers import csr
from knfleet.api.addon.managedclusteraddon import ManagedClusterAddOn
from knfleet.api.addon.names import KUBE_CLIENT_SIGNER
from knfleet.api.certificate_requests import USAGES
from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.hub.addon.registration.certificate_rules import AddOnRequest, decide, examine
from knfleet.hub.registration.drivers.csr_rules import RequestProblem
from tests.support import addons

GROUP = "system:open-cluster-management:cluster:c1:addon:hello"
ALL = "system:open-cluster-management:addon:hello"
USER = f"{GROUP}:agent:hello-agent"
SIGNER = "example.com/signer"
AGENT = {
    "username": "system:open-cluster-management:c1:a1",
    "groups": [
        "system:open-cluster-management:c1",
        "system:open-cluster-management:managed-clusters",
        "system:authenticated",
    ],
}
CLUSTER = decode({"metadata": {"name": "c1"}, "spec": {"hubAcceptsClient": True}}, ManagedCluster)


def addon(**subject: Any) -> ManagedClusterAddOn:
    """Add-on `hello` on `c1`, with a registration of either kind."""
    manifest = addons.addon("hello", "c1")
    manifest["status"] = {
        "registrations": [
            {
                "signerName": KUBE_CLIENT_SIGNER,
                "subject": {"user": USER, "groups": [GROUP, ALL, "system:authenticated"]},
            },
            {"signerName": SIGNER, "subject": subject or {"user": "u", "groups": ["g"]}},
        ]
    }
    return decode(manifest, ManagedClusterAddOn)


def pem(
    name: str,
    organisations: list[str],
    *names: str,
    units: tuple[str, ...] = (),
    raw_names: bytes = b"",
) -> bytes:
    """A PKCS #10 request; its alternative names may be encoded already."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [
        *(csr.attribute(NameOID.ORGANIZATION_NAME, each) for each in organisations),
        *(csr.attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, each) for each in units),
        csr.attribute(NameOID.COMMON_NAME, name),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    if names:
        found = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
        builder = builder.add_extension(found, critical=False)
    if raw_names:
        oid = ExtensionOID.SUBJECT_ALTERNATIVE_NAME
        unread = x509.UnrecognizedExtension(oid, raw_names)
        builder = builder.add_extension(unread, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def request(body: bytes, **spec: Any) -> Object:
    """A CertificateSigningRequest for add-on `hello` of `c1`."""
    return {
        "metadata": {
            "name": "r",
            "labels": {
                "open-cluster-management.io/cluster-name": spec.pop("cluster", "c1"),
                "open-cluster-management.io/addon-name": spec.pop("addon", "hello"),
            },
        },
        "spec": {
            "request": base64.b64encode(body).decode(),
            "signerName": KUBE_CLIENT_SIGNER,
            "usages": [*USAGES],
            **AGENT,
            **spec,
        },
    }


def outcome(manifest: Object, found: ManagedClusterAddOn | None = None) -> str:
    """`approve`, or why not."""
    examined = examine(manifest)
    if isinstance(examined, RequestProblem):
        return examined.reason
    assert isinstance(examined, AddOnRequest)
    given = found or addon()
    verdict = decide(examined, CLUSTER, given, given.status.registrations)
    return verdict.action if verdict.action == "approve" else verdict.message


def test_what_our_own_agent_asks_for_is_approved():
    for wanted in wanted_credentials(addon(), "a1", tokens=False):
        manifest = request_manifest(request_pem(client_certificate.new_key(), wanted), wanted)
        manifest["metadata"]["name"] = "r"
        manifest["spec"] |= AGENT

        assert outcome(manifest) == "approve"


@pytest.mark.parametrize(
    "groups", [[GROUP, ALL], [GROUP, ALL, "system:authenticated"]], ids=["two", "three"]
)
def test_the_two_groups_of_the_add_on_are_needed_and_a_third_is_tolerated(groups: list[str]):
    assert outcome(request(pem(USER, groups))) == "approve"


DEFAULT = [GROUP, ALL]
OTHER_ADDON = "system:open-cluster-management:addon:other"
REFUSED: list[tuple[str, Object, str]] = [
    ("stranger", request(pem(USER, DEFAULT), username="mallory"), "mallory is not an agent"),
    (
        "other-cluster",
        request(pem(USER, DEFAULT), username="system:open-cluster-management:c2:a1"),
        "is not an agent of cluster c1",
    ),
    (
        "prefix-of-name",
        request(pem(USER, DEFAULT), username="system:open-cluster-management:c10:a1"),
        "is not an agent of cluster c1",
    ),
    (
        "prefix-without-separator",
        request(pem(USER, DEFAULT), username="system:open-cluster-management:c1"),
        "is not an agent of cluster c1",
    ),
    (
        "right-name-wrong-groups",
        request(pem(USER, DEFAULT), groups=["system:authenticated"]),
        "is not an agent of cluster c1",
    ),
    ("other-addon", request(pem(USER, [GROUP, OTHER_ADDON])), "its organisations are not"),
    ("more-groups", request(pem(USER, [*DEFAULT, "system:masters"])), "its organisations are not"),
    ("fewer-groups", request(pem(USER, [GROUP])), "its organisations are not"),
    (
        "user-of-other-cluster",
        request(pem(USER.replace("c1", "c2"), DEFAULT)),
        "its common name is",
    ),
    ("other-user", request(pem("system:admin", DEFAULT)), "its common name is system:admin"),
    ("units", request(pem(USER, DEFAULT, units=("o",))), "organizational units"),
    (
        "more-names",
        request(pem(USER, DEFAULT, "kubernetes.default.svc")),
        "it asks for the names kubernetes.default.svc",
    ),
    (
        "x400-address",
        request(pem(USER, DEFAULT, raw_names=b"\x30\x02\xa3\x00")),
        "its extensions cannot be read",
    ),
    (
        "edi-party-name",
        request(pem(USER, DEFAULT, raw_names=b"\x30\x02\xa5\x00")),
        "its extensions cannot be read",
    ),
    ("usage", request(pem(USER, DEFAULT), usages=["server auth"]), "its usages"),
    ("garbage", request(b"no request"), "CERTIFICATE REQUEST"),
    ("custom-subject", request(pem("v", ["g"]), signerName=SIGNER), "its common name is v, not u"),
    ("custom-groups", request(pem("u", ["h"]), signerName=SIGNER), "its organisations are not g"),
    (
        "unknown-signer",
        request(pem("u", ["g"]), signerName="example.com/other"),
        "no registration with signer",
    ),
]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [pytest.param(manifest, words, id=name) for name, manifest, words in REFUSED],
)
def test_anything_else_is_left_pending(manifest: Object, words: str):
    assert words in outcome(manifest)


def test_a_request_for_an_add_on_that_is_not_there_is_left_pending():
    examined = examine(request(pem(USER, DEFAULT)))
    assert isinstance(examined, AddOnRequest)

    assert decide(examined, CLUSTER, None, []).action == "wait"
    assert decide(examined, None, addon(), addon().status.registrations).action == "wait"


def test_a_custom_signer_gets_the_registered_subject():
    assert outcome(request(pem("u", ["g"]), signerName=SIGNER)) == "approve"
