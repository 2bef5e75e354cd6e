"""Certificate requests: what is well-formed, and what the hub does about it."""

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from knfleet.api.cluster.managedcluster import (
    AGENT_NAME,
    ALLOW_REREGISTRATION,
    AUTO_ACCEPTED,
    CLUSTER_NAME_LABEL,
    GROUP_PREFIX,
    MANAGED_CLUSTERS,
    MAPPED_PREFIX,
    ManagedCluster,
)
from knfleet.api.meta import Object
from knfleet.hub.registration.drivers.csr import latest_agent
from knfleet.hub.registration.drivers.csr_rules import (
    AgentCertificateRequest,
    RequestProblem,
    decide,
    examine,
)
from tests.support.registration import csr, request_pem
from tests.unit.hub.samples import cluster

KEY = ec.generate_private_key(ec.SECP256R1())
OWN = f"{GROUP_PREFIX}c1"
NAME = f"{OWN}:a1"
BOOTSTRAP = "system:serviceaccount:open-cluster-management:agent-registration-bootstrap"


def asked(name: str = NAME, *groups: str, user: str = BOOTSTRAP, names: bool = False) -> Object:
    """A request as the API server has it."""
    pem = request_pem(KEY, name, list(groups) or [OWN, MANAGED_CLUSTERS], names=names)
    return csr("c1", pem, username=user, groups=["system:authenticated"])


def test_a_request_of_an_agent_is_understood():
    found = examine(asked())

    assert found == AgentCertificateRequest("c1", "a1", BOOTSTRAP, ("system:authenticated",))


def test_both_organisations_are_needed_in_any_order():
    """Without that of all agents, a certificate would be one of nobody's rules."""
    assert isinstance(examine(asked(NAME, OWN)), RequestProblem)
    assert isinstance(examine(asked(NAME, MANAGED_CLUSTERS, OWN)), AgentCertificateRequest)


@pytest.mark.filterwarnings("ignore:Attribute's length")
def test_a_name_longer_than_certificates_like_is_understood():
    """A cluster's name may have 63 characters, and the common name has more besides."""
    cluster_name = "c" * 63
    own = f"{GROUP_PREFIX}{cluster_name}"
    attributes = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, own, _validate=False),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, MANAGED_CLUSTERS, _validate=False),
        x509.NameAttribute(NameOID.COMMON_NAME, f"{own}:a1", _validate=False),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    pem = builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    found = examine(csr(cluster_name, pem, username=BOOTSTRAP))

    assert isinstance(found, AgentCertificateRequest)
    assert found.agent == "a1"


FORGED: dict[str, tuple[Object, str]] = {
    "no organisation": (asked(NAME, MANAGED_CLUSTERS), "lack"),
    "third organisation": (asked(NAME, OWN, MANAGED_CLUSTERS, "system:nodes"), "beside"),
    "another cluster's group": (
        asked(NAME, OWN, MANAGED_CLUSTERS, f"{GROUP_PREFIX}c2"),
        "beside",
    ),
    "another cluster's name": (asked(f"{GROUP_PREFIX}c2:a1"), "that of cluster c2"),
    "a name like the cluster's": (asked(f"{GROUP_PREFIX}c11:a1"), "that of cluster c11"),
    "no agent": (asked(OWN), "<cluster>:<agent>"),
    "empty agent": (asked(f"{OWN}:"), "<cluster>:<agent>"),
    "too many parts": (asked(f"{NAME}:x"), "<cluster>:<agent>"),
    "prefix in the middle": (asked(f"x{NAME}"), "<cluster>:<agent>"),
    "other names": (asked(names=True), "other names"),
}


@pytest.mark.parametrize(("manifest", "words"), FORGED.values(), ids=FORGED)
def test_a_forged_subject_is_refused(manifest: Object, words: str):
    found = examine(manifest)

    assert isinstance(found, RequestProblem)
    assert words in found.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"signerName": "kubernetes.io/kubelet-serving"}, "signer"),
        ({"usages": ["server auth", "client auth"]}, "usages"),
        ({"usages": ["digital signature"]}, "usages"),
        ({"request": "not base64"}, "PEM"),
        ({"request": base64.b64encode(b"hello").decode()}, "PEM"),
        ({"request": ""}, "PEM"),
    ],
)
def test_a_request_for_something_else_is_refused(change: dict[str, Any], words: str):
    manifest = asked()
    manifest["spec"] |= change
    found = examine(manifest)

    assert isinstance(found, RequestProblem)
    assert words in found.reason


def test_two_requests_in_one_are_refused():
    manifest = asked()
    pem = base64.b64decode(manifest["spec"]["request"])
    manifest["spec"]["request"] = base64.b64encode(pem + pem).decode()

    assert isinstance(examine(manifest), RequestProblem)


def test_another_type_of_block_is_refused():
    manifest = asked()
    pem = base64.b64decode(manifest["spec"]["request"])
    renamed = pem.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST")
    manifest["spec"]["request"] = base64.b64encode(renamed).decode()

    assert isinstance(examine(manifest), RequestProblem)


def test_a_request_without_the_label_is_not_ours():
    manifest = asked()
    del manifest["metadata"]["labels"][CLUSTER_NAME_LABEL]

    assert isinstance(examine(manifest), RequestProblem)


RENEWAL = AgentCertificateRequest("c1", "a1", NAME, (MANAGED_CLUSTERS,))
FIRST = AgentCertificateRequest("c1", "a1", BOOTSTRAP)
LISTED = frozenset({BOOTSTRAP})


def verdict(
    request: AgentCertificateRequest,
    about: ManagedCluster | None,
    *,
    alive: bool = False,
    may_renew: bool = True,
    listed: frozenset[str] = LISTED,
) -> str:
    """What is decided, in short."""
    found = decide(request, about, alive=alive, may_renew=may_renew, auto_approved=listed)
    return f"{found.action}+accept" if found.accepts else found.action


def test_an_agent_renews_its_own_certificate_while_it_is_accepted():
    assert verdict(RENEWAL, cluster()) == "approve"
    assert verdict(RENEWAL, cluster(), alive=True) == "approve"
    assert verdict(RENEWAL, cluster(), may_renew=False) == "wait"
    assert verdict(RENEWAL, cluster(accepted=False)) == "wait"
    assert verdict(RENEWAL, None) == "wait"
    assert verdict(RENEWAL, cluster(annotations={AGENT_NAME: "a1"})) == "approve"
    assert verdict(RENEWAL, cluster(annotations={AGENT_NAME: "a2"})) == "wait"


@pytest.mark.parametrize("user", [f"{GROUP_PREFIX}c2:a1", f"{OWN}:a2", "mapped-by-a-cloud"])
def test_another_agent_gets_nothing_even_if_it_is_listed(user: str):
    request = replace(FIRST, user=user, groups=(MANAGED_CLUSTERS,))

    assert verdict(request, cluster(), listed=frozenset({user})) == "wait"


def test_the_role_of_a_cluster_gets_a_certificate_for_its_agent():
    """So that a cluster that registered by a role changes to certificates without a person."""
    request = replace(FIRST, user=FIRST.cluster, groups=(f"{MAPPED_PREFIX}{FIRST.cluster}",))
    assert request.renews
    assert verdict(request, cluster()) == "approve"
    assert verdict(request, cluster(), may_renew=False) == "wait"

    for user, groups in (
        (FIRST.cluster, ()),
        ("c9", (f"{MAPPED_PREFIX}c9",)),
        ("c9", (f"{MAPPED_PREFIX}{FIRST.cluster}",)),
        (FIRST.cluster, (f"{MAPPED_PREFIX}c9",)),
    ):
        assert not replace(FIRST, user=user, groups=groups).renews


def test_only_listed_users_need_no_person():
    assert verdict(FIRST, cluster(accepted=False)) == "approve+accept"
    assert verdict(FIRST, cluster()) == "approve"
    assert verdict(FIRST, cluster(accepted=False), listed=frozenset()) == "wait"
    assert verdict(FIRST, None) == "wait"
    leaving = {"deletionTimestamp": "2026-03-01T12:00:00Z"}
    assert verdict(FIRST, cluster(accepted=False, meta=leaving)) == "wait"


def test_a_denial_is_not_undone():
    denied = cluster(accepted=False, annotations={AUTO_ACCEPTED: "2026-03-01T11:00:00Z"})

    assert verdict(FIRST, denied) == "wait"


def test_the_place_of_a_living_agent_is_taken_only_when_that_is_allowed():
    other = replace(FIRST, agent="a2")
    owned = {AGENT_NAME: "a1"}

    assert verdict(other, cluster(annotations=owned), alive=True) == "deny"
    assert verdict(FIRST, cluster(annotations=owned), alive=True) == "wait"
    assert verdict(other, cluster(), alive=True) == "wait"
    allowed = {**owned, ALLOW_REREGISTRATION: "true"}
    assert verdict(other, cluster(annotations=allowed), alive=True) == "approve"
    assert verdict(other, cluster(annotations=owned)) == "approve"


def test_the_agent_of_the_newest_approved_request_counts():
    def made(agent: str, at: str, *types: str) -> Object:
        manifest = asked(f"{OWN}:{agent}")
        manifest["metadata"]["creationTimestamp"] = at
        manifest["status"] = {"conditions": [{"type": each} for each in types]}
        return manifest

    found = latest_agent(
        [
            made("old", "2026-03-01T10:00:00Z", "Approved"),
            made("new", "2026-03-01T11:00:00Z", "Approved"),
            made("thief", "2026-03-01T12:00:00Z", "Denied"),
            made("waits", "2026-03-01T13:00:00Z"),
        ]
    )

    assert found == "new"
