"""Certificates of add-ons over gRPC: an agent gets those of its own cluster's add-ons alone."""

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from knfleet.api.addon.names import ADDON_LABEL, KUBE_CLIENT_SIGNER, addon_groups, addon_user
from knfleet.api.certificate_requests import CSR_USER
from knfleet.api.cluster.managedcluster import (
    CLUSTER_NAME_LABEL,
    GROUP_PREFIX,
    MANAGED_CLUSTERS,
    agent_user,
)
from knfleet.api.meta import Object
from knfleet.api.operator import GRPC_SERVER_USER
from knfleet.cloudevents.cloud_event import EventError
from knfleet.hub.addon.registration.certificate_rules import AddOnRequest, examine, is_agent
from knfleet.hub.grpc.calls.addon_requests import addon_request
from knfleet.hub.grpc.calls.caller import Caller

KEY = ec.generate_private_key(ec.SECP256R1())
AGENT = Caller(agent_user("c1", "a1"), (f"{GROUP_PREFIX}c1", MANAGED_CLUSTERS))
BOOTSTRAP = Caller("system:serviceaccount:open-cluster-management:agent-registration-bootstrap")
OWN_USER = addon_user("c1", "hello", "x")
OWN_GROUPS = tuple(addon_groups("c1", "hello"))


def pem(user: str, groups: tuple[str, ...]) -> bytes:
    """A request for a subject."""
    names = [x509.NameAttribute(NameOID.COMMON_NAME, user, _validate=False)]
    names += [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, each, _validate=False) for each in groups
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def asked(
    *,
    name: str = "addon-c1-hello-abcde",
    addon: str = "hello",
    signer: Any = KUBE_CLIENT_SIGNER,
    user: str = OWN_USER,
    groups: tuple[str, ...] = OWN_GROUPS,
) -> Object:
    """What an agent publishes, with much that it may not set."""
    return {
        "metadata": {
            "name": name,
            "labels": {CLUSTER_NAME_LABEL: "c2", ADDON_LABEL: addon, "other": "label"},
            "annotations": {CSR_USER: agent_user("c2", "a1")},
        },
        "spec": {
            "request": base64.b64encode(pem(user, groups)).decode(),
            "signerName": signer,
            "usages": ["digital signature", "key encipherment", "client auth"],
            "username": "system:admin",
        },
    }


@pytest.mark.filterwarnings("ignore:Attribute's length")
def test_the_server_names_the_cluster_and_the_user_itself():
    made = addon_request(asked(), "c1", AGENT)

    assert made["metadata"]["labels"] == {CLUSTER_NAME_LABEL: "c1", ADDON_LABEL: "hello"}
    assert made["metadata"]["annotations"] == {CSR_USER: AGENT.user}
    assert set(made["spec"]) == {"request", "signerName", "usages"}
    stored = {**made, "spec": {**made["spec"], "username": GRPC_SERVER_USER}}
    found = examine(stored)
    assert isinstance(found, AddOnRequest)
    assert is_agent(found, "c1")
    assert not is_agent(found, "c")
    forged = {**made, "spec": {**made["spec"], "username": "system:serviceaccount:default:me"}}
    found = examine(forged)
    assert isinstance(found, AddOnRequest)
    assert not is_agent(found, "c1")


@pytest.mark.filterwarnings("ignore:Attribute's length")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "addon-c10-hello-x"}, "are called addon-c1-hello-"),
        ({"name": "c1-abcde"}, "are called addon-c1-hello-"),
        ({"name": ""}, "no name"),
        ({"addon": "a/b"}, "not the name of an add-on"),
        ({"addon": "A" * 300}, "not the name of an add-on"),
        ({"user": addon_user("c2", "hello", "x")}, "its common name is"),
        ({"user": addon_user("c1", "other", "x")}, "its common name is"),
        ({"user": addon_user("c10", "hello", "x")}, "its common name is"),
        ({"user": OWN_USER + ":y"}, "its common name is"),
        ({"user": agent_user("c1", "a1")}, "its common name is"),
        ({"groups": (*OWN_GROUPS, "system:masters")}, "its organisations are not"),
        ({"groups": OWN_GROUPS[:1]}, "its organisations are not"),
        ({"groups": tuple(addon_groups("c2", "hello"))}, "its organisations are not"),
        ({"signer": "kubernetes.io/kube-apiserver-client-kubelet"}, "its signer is not"),
        ({"signer": ""}, "its signer is not"),
        ({"signer": 7}, "cannot be used|another type"),
        ({"signer": "example.com/x", "user": "system:node:n1"}, "it asks for system:node:n1"),
        ({"signer": "example.com/x", "groups": ("system:nodes",)}, "it asks for system:nodes"),
    ],
)
def test_what_could_be_the_identity_of_another_is_refused(given: dict[str, Any], words: str):
    with pytest.raises(EventError, match=words):
        addon_request(asked(**given), "c1", AGENT)


@pytest.mark.filterwarnings("ignore:Attribute's length")
def test_a_signer_of_an_add_on_may_be_asked_for_what_is_registered_there():
    made = addon_request(
        asked(signer="example.com/x", user="hello-client", groups=("hello",)), "c1", AGENT
    )

    assert made["spec"]["signerName"] == "example.com/x"


@pytest.mark.filterwarnings("ignore:Attribute's length")
@pytest.mark.parametrize(
    "caller", [BOOTSTRAP, Caller(agent_user("c2", "a1"), (f"{GROUP_PREFIX}c2", MANAGED_CLUSTERS))]
)
def test_only_an_agent_of_the_cluster_asks_for_its_add_ons(caller: Caller):
    with pytest.raises(EventError, match="only an agent of cluster c1"):
        addon_request(asked(), "c1", caller)
