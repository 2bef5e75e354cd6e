"""Who an agent is: names, requests, certificates, and what it keeps."""

import base64
import warnings
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from knfleet.agent.registration.client_certificate import ClientCertificate, new_key
from knfleet.agent.registration.cluster_names import AgentNames, name_problem, random_agent
from knfleet.agent.registration.drivers import csr
from knfleet.agent.registration.drivers.csr import CSRDriver, decision_on
from knfleet.agent.registration.drivers.driver import RequestRefused
from knfleet.agent.registration.identity import (
    HubAddress,
    HubCredentials,
    choose_names,
    hub_kubeconfig,
    is_moved,
    read_bootstrap,
    stored_hub_address,
)
from knfleet.kube.auth.kubeconfig_entries import EntryOrigin
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import ConfigError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = AgentNames("c1", "a1b2c")
LONG = AgentNames("c" * 63, "agent")


def issued(names: AgentNames, *, ends: datetime = NOW + timedelta(days=1)) -> HubCredentials:
    """What an agent holds after it was let in."""
    key = new_key()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request = x509.load_pem_x509_csr(csr.request_pem(key, names))
        signer = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(request.subject)
            .public_key(request.public_key())
            .serial_number(1)
            .not_valid_before(ends - timedelta(days=10))
            .not_valid_after(ends)
            .sign(signer, hashes.SHA256())
        )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    address = HubAddress("hub", Endpoint("https://hub:6443"))
    return HubCredentials(names.cluster, names.agent, hub_kubeconfig(address), key, pem)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("c1", ""),
        ("a" * 63, ""),
        ("a" * 64, "at most 63"),
        ("Cluster1", "a-z, 0-9 and -"),
        ("a.b", "a-z, 0-9 and -"),
        ("-a", "begins and ends"),
        ("a\n", "a-z, 0-9 and -"),
        ("kube-system", "system namespace"),
        ("default", "system namespace"),
        ("open-cluster-management-hub", "system namespace"),
    ],
)
def test_a_name_that_no_cluster_can_have_is_told_from_one_that_can(name: str, words: str):
    problem = name_problem(name)

    assert bool(problem) == bool(words)
    assert words in problem


@pytest.mark.parametrize("names", [NAMES, LONG])
def test_a_request_names_the_agent_however_long_its_name_is(names: AgentNames):
    pem = csr.request_pem(new_key(), names)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request = x509.load_pem_x509_csr(pem)
        subject = [(part.oid.dotted_string, part.value) for part in request.subject]
    assert subject == [
        ("2.5.4.10", f"system:open-cluster-management:{names.cluster}"),
        ("2.5.4.10", "system:open-cluster-management:managed-clusters"),
        ("2.5.4.3", f"system:open-cluster-management:{names.cluster}:{names.agent}"),
    ]
    assert list(request.extensions) == []
    manifest = csr.request_manifest(pem, names, 7200)
    assert manifest["metadata"]["generateName"] == f"{names.cluster}-"
    assert manifest["spec"]["expirationSeconds"] == 7200
    assert base64.b64decode(manifest["spec"]["request"]) == pem


def test_a_request_is_pending_until_it_is_signed_or_refused():
    denied = {"type": "Denied", "reason": "ClusterNameTaken", "message": "choose another"}

    assert decision_on({"status": {}}) is None
    assert decision_on({"status": {"conditions": [{"type": "Approved"}]}}) is None
    assert decision_on({"status": {"certificate": "cGVt"}}) == b"pem"
    assert decision_on({"status": {"conditions": [denied]}}) == RequestRefused(
        "denied: choose another"
    )


def test_a_certificate_is_renewed_when_20_to_25_percent_of_its_life_are_left():
    certificate = ClientCertificate("x", NOW, NOW + timedelta(hours=100))

    assert certificate.renew_at(0) == NOW + timedelta(hours=80)
    assert certificate.renew_at(1) == NOW + timedelta(hours=75)


@pytest.mark.parametrize("names", [NAMES, LONG])
def test_a_certificate_is_of_use_while_it_is_ours_and_lasts(names: AgentNames):
    credentials = issued(names)
    problem = CSRDriver().problem

    assert problem(credentials, names, NOW) == ""
    assert "ended" in problem(credentials, names, NOW + timedelta(days=2))
    assert "not for" in problem(credentials, AgentNames(names.cluster, "other"), NOW)
    assert "no certificate" in problem(HubCredentials("c1", "a1"), names, NOW)
    foreign = HubCredentials("", "", b"", new_key(), credentials.certificate)
    assert "does not belong" in problem(foreign, names, NOW)
    broken = HubCredentials("", "", b"", credentials.key, b"nonsense")
    assert "cannot be read" in problem(broken, names, NOW)


def test_what_is_kept_is_read_back_the_same_and_never_printed():
    credentials = issued(NAMES)

    assert HubCredentials.of(credentials.files) == credentials
    assert set(credentials.files) == {
        "cluster-name",
        "agent-name",
        "kubeconfig",
        "tls.key",
        "tls.crt",
    }
    assert "PRIVATE" not in repr(credentials)
    assert set(HubCredentials("c1", "a1").files) == {"cluster-name", "agent-name"}


def test_names_are_asked_for_kept_or_made_up():
    kept = HubCredentials("kept", "keeper")

    assert choose_names(AgentNames("asked", ""), kept, NAMES) == AgentNames("asked", "keeper")
    assert choose_names(AgentNames("", ""), HubCredentials(), NAMES) == NAMES
    assert len(random_agent()) == 5


def test_the_hub_kubeconfig_carries_place_and_proxy_and_relative_files():
    bootstrap = read_bootstrap(
        b"""
        {apiVersion: v1, kind: Config, current-context: b,
         clusters: [{name: our-hub, cluster: {server: 'https://hub:6443', proxy-url: 'http://p:1'}}],
         users: [{name: u, user: {token: abc}}],
         contexts: [{name: b, context: {cluster: our-hub, user: u}}]}
        """,
        EntryOrigin("the bootstrap Secret"),
    )

    text = hub_kubeconfig(bootstrap.address).decode()

    assert "client-certificate: tls.crt" in text
    assert "default-context" in text
    assert "abc" not in text
    credentials = HubCredentials(kubeconfig=text.encode())
    assert stored_hub_address(credentials) == bootstrap.address
    assert not is_moved(credentials, bootstrap.address)
    assert is_moved(
        credentials, HubAddress("our-hub", Endpoint("https://hub:6444", proxy_url="http://p:1"))
    )
    assert is_moved(HubCredentials(), bootstrap.address)


def test_a_bootstrap_secret_must_not_name_files_of_this_machine():
    text = b"""
        {apiVersion: v1, kind: Config, current-context: b,
         clusters: [{name: h, cluster: {server: 'https://hub:6443'}}],
         users: [{name: u, user: {tokenFile: /etc/shadow}}],
         contexts: [{name: b, context: {cluster: h, user: u}}]}
        """

    with pytest.raises(ConfigError, match="must not be named here"):
        read_bootstrap(text, EntryOrigin("Secret a/b"))
