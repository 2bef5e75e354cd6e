"""What the tunnel allows, refuses and publishes: pure decisions."""

import base64
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.agent.tunnel.backoff import ReconnectPolicy
from knfleet.agent.tunnel.tunnel_targets import service_address, tunnel_targets
from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.cli.fleet.join import usual_urls
from knfleet.hub.profiles.cluster_profile import ClusterAccess
from knfleet.hub.profiles.tunnel_access import TunnelRoute, through_tunnel, tunnel_mode
from knfleet.hub.tunnel.agent_identity import (
    IdentityError,
    agent_identity,
    denial,
    is_issued_by,
)
from knfleet.hub.tunnel.front.connect_request import HEAD_LIMIT, Refusal, parse
from knfleet.hub.tunnel.front.routing_key import is_routing_key, key_namespace, routing_key
from knfleet.hub.tunnel.holder_lease import TunnelHolder, holder, holder_lease
from knfleet.hub.tunnel.key_secret import LIFETIME, key_secret, rotated, routing_secrets
from knfleet.hub.tunnel.tunnel_endpoint import balanced_endpoint, endpoint_problem, front_problem
from testbed.fakes.certificates import Authority

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
PREFIX = "system:open-cluster-management:"


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def secret(**parts: str) -> Object:
    data = {
        name.replace("_", "-"): base64.b64encode(text.encode()).decode()
        for name, text in parts.items()
    }
    return {"data": data}


def certificate(name: str, *groups: str) -> dict[str, Any]:
    subject = [(("organizationName", each),) for each in groups] + [(("commonName", name),)]
    return {"subject": tuple(subject), "notAfter": "Mar 31 12:00:00 2026 GMT"}


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        ("kubernetes.default.svc:443", "10.96.0.1:443"),
        ("KUBERNETES.default.svc:443", "10.96.0.1:443"),
        ("10.96.0.1:443", "10.96.0.1:443"),
        ("web.shop.svc:80", "web.shop.svc:80"),
        ("kubernetes.default.svc:6443", "None"),
        ("10.96.0.1:22", "None"),
        ("web.shop.svc:81", "None"),
        ("web.shop.svc.evil.example:80", "None"),
        ("127.0.0.1:443", "None"),
        ("", "None"),
    ],
)
def test_targets_are_listed_ones_or_the_api_server(target: str, reached: str):
    targets = tunnel_targets("https://10.96.0.1", ["shop/web:80"])

    assert str(targets.find(target)) == reached


@pytest.mark.parametrize("text", ["web:80", "shop/web", "shop/web:0", "shop/web:65536", "a/b:c"])
def test_a_service_is_written_completely(text: str):
    with pytest.raises(ValueError, match="namespace/name:port"):
        service_address(text)


def test_a_request_is_read():
    head = f"CONNECT a.b:443 HTTP/1.1\r\nHost: a.b\r\nProxy-Authorization: {basic('c1:x:y')}"

    found = parse(head.encode())

    assert (found.cluster, found.password, found.target) == ("c1", "x:y", "a.b:443")
    assert not found.is_forwarded
    assert "x:y" not in repr(found)


@given(st.binary(max_size=300))
def test_any_other_request_is_refused_with_an_answer(head: bytes):
    with pytest.raises(Refusal) as caught:
        parse(head)

    status, _, rest = caught.value.answer().partition(b"\r\n")
    assert status.startswith(b"HTTP/1.1 4")
    assert b'"kind":"Status"' in rest


def test_an_answer_is_one_line_of_printable_text():
    answer = Refusal(HTTPStatus.BAD_GATEWAY, "a\r\nSet-Cookie: b\u2026" + "c" * HEAD_LIMIT).answer()

    assert answer.split(b"\r\n")[0].startswith(b"HTTP/1.1 502 a??Set-Cookie: b?ccc")
    assert len(answer.split(b"\r\n")[0]) < 450


def test_a_routing_key_is_good_for_one_cluster_and_namespace():
    key = routing_key(b"s" * 32, "c1", "apps")

    assert is_routing_key(key)
    assert key_namespace([b"s" * 32], "c1", key) == "apps"
    assert key_namespace([b"n" * 32, b"s" * 32], "c1", key) == "apps"
    assert key_namespace([b"n" * 32], "c1", key) is None
    assert key_namespace([b"s" * 32], "c2", key) is None
    assert key_namespace([b"s" * 32], "c1", key.replace("apps", "other")) is None
    assert key_namespace([], "c1", key) is None
    assert not is_routing_key("eyJhbGciOi.payload.signature")


def test_secrets_of_routing_keys_change_and_the_last_one_is_accepted():
    first = rotated(None, NOW)
    assert routing_secrets(key_secret(first, "hub")) == first
    assert rotated(first, NOW + LIFETIME - timedelta(seconds=1)) == first

    second = rotated(first, NOW + LIFETIME)

    assert second.accepted == (second.current, first.current)
    assert second.current != first.current
    assert routing_secrets({"data": {"current": "!"}}) is None
    assert routing_secrets(None) is None
    assert first.current.hex() not in repr(first)


def test_a_certificate_names_cluster_and_agent_by_user_and_group():
    found = agent_identity(certificate(f"{PREFIX}c1:a", f"{PREFIX}c1", f"{PREFIX}managed-clusters"))

    assert (found.cluster, found.agent) == ("c1", "a")
    assert found.expires == datetime(2026, 3, 31, 12, tzinfo=UTC)
    for name, groups in (
        (f"{PREFIX}c1:a", [f"{PREFIX}c2"]),
        (f"{PREFIX}c1", [f"{PREFIX}c1"]),
        (f"{PREFIX}managed-clusters:a", [f"{PREFIX}managed-clusters"]),
        ("admin", ["system:masters"]),
    ):
        with pytest.raises(IdentityError):
            agent_identity(certificate(name, *groups))
    with pytest.raises(IdentityError):
        agent_identity({})


def test_why_a_cluster_may_have_no_tunnel():
    identity = agent_identity(certificate(f"{PREFIX}c1:a", f"{PREFIX}c1"))

    def cluster(*, accepted: bool = True, **meta: str) -> ManagedCluster:
        manifest = {"metadata": {"name": "c1", **meta}, "spec": {"hubAcceptsClient": accepted}}
        return decode(manifest, ManagedCluster)

    assert denial(identity, cluster(), NOW) == ""
    assert "does not exist" in denial(identity, None, NOW)
    assert "not accepted" in denial(identity, cluster(accepted=False), NOW)
    deleting = cluster(deletionTimestamp="2026-03-01T00:00:00Z")
    assert "being deleted" in denial(identity, deleting, NOW)
    assert "expired" in denial(identity, cluster(), NOW + timedelta(days=60))


def test_a_certificate_is_known_by_the_ca_that_signed_it():
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    ours, other = Authority("same name"), Authority("same name")
    made = x509.load_pem_x509_certificate(ours.client("u").certificate).public_bytes(Encoding.DER)

    assert is_issued_by(made, other.pem + ours.pem)
    assert not is_issued_by(made, other.pem)
    assert not is_issued_by(made, b"")
    assert not is_issued_by(b"garbage", ours.pem)


def test_a_profile_through_the_tunnel_trusts_both_and_names_the_server_by_its_certificate():
    handed = secret(tunnel="always", tunnel_server="https://kubernetes.default.svc")
    direct = ClusterAccess(
        "https://10.0.0.1", base64.b64encode(b"SPOKE").decode(), "http://p", "n", token="dA=="
    )
    route = TunnelRoute("https://front.svc:8444", "c1", "k1.apps.00", b"TUNNEL")

    made = through_tunnel(direct, handed, route)

    assert made.server == "https://kubernetes.default.svc"
    assert made.proxy_url == "https://c1:k1.apps.00@front.svc:8444"
    assert base64.b64decode(made.authorities) == b"SPOKE\nTUNNEL"
    assert (made.tls_server_name, made.token) == ("", "dA==")
    assert "k1.apps" not in repr(route)
    assert tunnel_mode(handed) == "always"
    assert tunnel_mode(secret(tunnel="always")) == "never"
    assert tunnel_mode(secret(tunnel="x", tunnel_server="https://a")) == "never"
    assert tunnel_mode(None) == "never"


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:0", "a:65536", "https://a:1", "a b:1"])
def test_an_endpoint_is_host_and_port(text: str):
    assert "host:port" in endpoint_problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "front:1",
        "http://front:1",
        "https://front",
        "https://front:0",
        "https://user@front:1",
        "https://front:1/path",
        "https://front:1?a=b",
    ],
)
def test_a_front_is_an_https_url_of_host_and_port_alone(text: str):
    """It becomes a part of every profile, where a user or a path would be in the way."""
    assert front_problem(text) == "write https://host:port"
    assert front_problem("https://front.example.com:8444") == ""
    assert front_problem("https://[::1]:8444/") == ""


def test_a_cluster_that_is_always_reached_through_the_tunnel_gives_no_other_address():
    assert usual_urls("https://10.0.0.1:6443", "always") == ()
    assert usual_urls("https://10.0.0.1:6443", "auto") == ("https://10.0.0.1:6443",)


def test_an_endpoint_may_come_from_a_load_balancer():
    def service(*ingress: Object) -> Object:
        return {"status": {"loadBalancer": {"ingress": list(ingress)}}}

    assert endpoint_problem("hub.example:8443") == endpoint_problem("[::1]:8443") == ""
    assert endpoint_problem("LoadBalancer") == ""
    assert balanced_endpoint(service({"ip": "10.1.1.1"})) == "10.1.1.1:8443"
    assert balanced_endpoint(service({"hostname": "lb.example"})) == "lb.example:8443"
    assert balanced_endpoint(service({"ip": "fd00::1"})) == "[fd00::1]:8443"
    assert balanced_endpoint(service()) == balanced_endpoint({}) == ""


def test_the_holder_of_a_tunnel_is_read_as_it_was_written():
    held = TunnelHolder("10.0.0.7:8444", NOW, 12)

    assert holder(holder_lease("c1", held)) == held
    assert holder({"spec": {"holderIdentity": "", "acquireTime": None}}) is None
    assert holder(None) is None


def test_agents_come_back_at_random_soon_and_never_later_than_the_limit():
    policy = ReconnectPolicy()
    delays = [policy.delay(failures, 1.0) for failures in range(20)]

    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (policy.first_seconds, policy.limit_seconds)
    assert policy.delay(5, 0.0) == 0.0
    assert policy.limit_seconds <= 15
