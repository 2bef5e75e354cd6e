"""Who may speak for a cluster, what is reviewed, and whose annotation is believed. Pure."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from knfleet.api.certificate_requests import CSR_USER, CSRS, GRPC_SIGNER
from knfleet.api.cluster.managedcluster import (
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    GROUP_PREFIX,
    LEASE_NAME,
    MANAGED_CLUSTERS,
    agent_user,
)
from knfleet.api.core import LEASES
from knfleet.api.meta import Object
from knfleet.api.operator import GRPC_SERVER_USER, ClusterManager
from knfleet.api.schema import decode
from knfleet.cloudevents.cloud_event import EventError
from knfleet.cloudevents.event_types import (
    ACCESS_TOKENS,
    BUNDLES,
    CREATE,
    DELETE,
    SPEC,
    STATUS,
    UPDATE,
    EventType,
    data_type,
)
from knfleet.hub.grpc.calls.access_rules import publication_access, subscription_access
from knfleet.hub.grpc.calls.caller import Caller, PeerCertificate, certified
from knfleet.hub.grpc.exposure import exposure, is_enabled, serving_names
from knfleet.hub.registration.drivers.csr_rules import AgentCertificateRequest, examine
from tests.support.registration import request_pem

AGENT = Caller(agent_user("c1", "a1"), (f"{GROUP_PREFIX}c1", MANAGED_CLUSTERS))


def test_an_agent_speaks_for_its_own_cluster_alone():
    assert AGENT.problem("c1") == ""
    assert "not an agent of cluster c2" in AGENT.problem("c2")
    assert Caller("admin", ("system:masters",)).problem("c2") == ""


@pytest.mark.parametrize(
    "caller",
    [
        Caller(f"{GROUP_PREFIX}c1", (f"{GROUP_PREFIX}c1",)),
        Caller(f"{GROUP_PREFIX}c1:a:b", (f"{GROUP_PREFIX}c1",)),
        Caller(f"x{GROUP_PREFIX}c1:a", (MANAGED_CLUSTERS, f"{GROUP_PREFIX}c1")),
        Caller(agent_user("c1", "a1"), (f"{GROUP_PREFIX}c2",)),
        Caller("c1", (MANAGED_CLUSTERS,)),
    ],
)
def test_a_caller_that_is_half_an_agent_speaks_for_nobody(caller: Caller):
    assert caller.problem("c1")


def test_a_certificate_names_user_and_groups():
    subject = ((("organizationName", "g1"), ("organizationName", "g2")), (("commonName", "me"),))

    assert certified(PeerCertificate(subject)) == Caller("me", ("g1", "g2", "system:authenticated"))
    assert certified(PeerCertificate()) is None
    assert certified(PeerCertificate(((("commonName", "a"),), (("commonName", "b"),)))) is None


def test_each_event_is_reviewed_as_the_same_request_to_the_api_server():
    lease = publication_access(EventType(data_type(LEASES), SPEC, UPDATE), "c1", LEASE_NAME)
    assert str(lease) == f"update leases {LEASE_NAME} in namespace c1"
    status = publication_access(EventType(data_type(CLUSTERS), STATUS, UPDATE), "c1", "")
    assert str(status) == "update managedclusters/status c1"
    request = publication_access(EventType(data_type(CSRS), SPEC, CREATE), "c1", "c1-x")
    assert str(request) == "create certificatesigningrequests"
    work = publication_access(EventType(BUNDLES, STATUS, UPDATE), "c1", "")
    assert str(work) == "update manifestworks/status in namespace c1"
    token = publication_access(EventType(data_type(ACCESS_TOKENS), SPEC, UPDATE), "c1", "x")
    assert str(token) == "patch secrets knfleet-spoke-access in namespace c1"
    with pytest.raises(EventError):
        publication_access(EventType(BUNDLES, STATUS, DELETE), "c1", "")


def test_following_needs_list_and_watch():
    found = [str(each) for each in subscription_access(BUNDLES, "c1")]

    assert found == [
        "list manifestworks in namespace c1",
        "watch manifestworks in namespace c1",
    ]


def request(username: str, annotated: str = "") -> Object:
    """A request for a certificate of the agent of c1."""
    groups = [f"{GROUP_PREFIX}c1", MANAGED_CLUSTERS]
    pem = request_pem(ec.generate_private_key(ec.SECP256R1()), agent_user("c1", "a1"), groups)
    meta: Object = {"name": "c1-x", "labels": {CLUSTER_NAME_LABEL: "c1"}}
    if annotated:
        meta["annotations"] = {CSR_USER: annotated}
    return {
        "metadata": meta,
        "spec": {
            "signerName": GRPC_SIGNER,
            "usages": ["client auth"],
            "request": base64.b64encode(pem).decode(),
            "username": username,
            "groups": ["system:authenticated"],
        },
    }


def test_the_annotation_is_believed_of_the_server_alone():
    by_server = examine(request(GRPC_SERVER_USER, agent_user("c1", "a1")))
    by_other = examine(request("somebody", agent_user("c1", "a1")))
    without = examine(request(GRPC_SERVER_USER))

    assert isinstance(by_server, AgentCertificateRequest)
    assert by_server.renews
    assert isinstance(by_other, AgentCertificateRequest)
    assert not by_other.renews
    assert by_other.user == "somebody"
    assert isinstance(without, AgentCertificateRequest)
    assert without.user == ""


def manager(*endpoints: Any, drivers: tuple[str, ...] = ("csr", "grpc")) -> ClusterManager:
    """A ClusterManager with endpoints."""
    return decode(
        {
            "metadata": {"name": "cluster-manager"},
            "spec": {
                "registrationConfiguration": {
                    "registrationDrivers": [{"authType": each} for each in drivers]
                },
                "serverConfiguration": {"endpointsExposure": list(endpoints)},
            },
        },
        ClusterManager,
    )


def test_the_typical_mistakes_of_a_configuration_are_named():
    host = {"type": "hostname", "hostname": {"host": "h.example.com"}}
    good = exposure(manager({"protocol": "grpc", "usage": "agentToHub", "grpc": host}))

    assert (good.problem, good.hosts) == ("", ("h.example.com",))
    assert "no entry of protocol grpc" in exposure(manager()).problem
    assert "no entry" in exposure(manager({"protocol": "https", "grpc": host})).problem
    no_host = exposure(manager({"protocol": "grpc", "grpc": {"type": "route"}}))
    assert "needs a host" in no_host.problem
    unknown = exposure(manager({"protocol": "grpc", "grpc": {"type": "pigeon"}}))
    assert "unknown type pigeon" in unknown.problem
    assert not is_enabled(manager(drivers=("csr",)))


def test_the_certificate_has_all_names_by_which_agents_call():
    host = {"type": "hostname", "hostname": {"host": "h.example.com"}}
    found = exposure(manager({"protocol": "grpc", "grpc": host}))
    service: Object = {"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}}

    names = serving_names(found, service)

    assert names[0] == "cluster-manager-grpc-server.open-cluster-management-hub.svc"
    assert {"h.example.com", "10.0.0.1"} <= set(names)
