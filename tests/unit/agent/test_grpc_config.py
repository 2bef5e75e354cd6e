"""The configuration of a gRPC client, as other agents write and read it."""

import base64

import pytest

from knfleet.agent.grpc.grpc_config import GrpcConfig, read_config, target_of
from knfleet.agent.hub_session import CertificateHolder
from knfleet.agent.registration.drivers.grpc import GrpcDriver
from knfleet.agent.registration.identity import HUB, Bootstrap, HubAddress, HubCredentials
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.cache.informer import Informer
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import ConfigError

CA = b"-----BEGIN CERTIFICATE-----\n"


def test_a_configuration_with_a_token_is_read_again():
    config = GrpcConfig("hub.example.com:443", CA, "secret")

    assert read_config(config.with_token(), "x") == config
    assert "secret" not in repr(config)


def test_the_configuration_beside_a_certificate_has_no_token():
    written = GrpcConfig("hub.example.com:443", CA, "secret").written("/hub")

    assert b"secret" not in written
    assert b"clientCertFile: /hub/tls.crt" in written
    assert read_config(written, "x").ca == CA


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("hub.example.com", "hub.example.com:443"),
        ("hub.example.com:8090", "hub.example.com:8090"),
        ("https://hub.example.com", "hub.example.com:443"),
        ("https://hub.example.com:6443/", "hub.example.com:6443"),
        ("[::1]:8090", "[::1]:8090"),
    ],
)
def test_an_address_may_lack_a_port_and_may_be_a_url(url: str, target: str):
    assert target_of(url, "x") == target


@pytest.mark.parametrize("url", ["", "http://hub", "https://hub/path", "hub:port", "https://"])
def test_another_address_is_refused(url: str):
    with pytest.raises(ConfigError):
        target_of(url, "--grpc-server")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"url: [1]",
        b"caData: x",
        b"url: a:1\ncaData: '!'",
        b"url: a:1\ncaFile: /x\n",
        b"url: a:1\ntokenFile: /x\n",
    ],
)
def test_a_file_of_another_form_is_refused(text: bytes):
    with pytest.raises(ConfigError):
        read_config(text, "config.yaml")


def test_what_others_write_is_read():
    text = f"url: hub:8090\ncaData: {base64.b64encode(CA).decode()}\nkeepAliveConfig: {{}}\n"

    assert read_config(text.encode(), "x") == GrpcConfig("hub:8090", CA)


def test_agents_try_again_soon_after_their_server_is_back():
    """However long it was away; a server that is restarted has all of them within seconds."""
    bootstrap = Bootstrap(
        HubAddress("hub", Endpoint("https://hub.example.com")),
        Connection(HUB, Endpoint("https://hub.example.com"), StaticCredential(Credential())),
        GrpcConfig("hub.example.com:443", b""),
    )
    client = GrpcDriver().session_client(bootstrap, "c1", CertificateHolder(HubCredentials("c1")))
    informer = Informer(client, CLUSTERS)

    waits = [informer.next_backoff() for _ in range(200)]

    assert 2.5 < max(waits) <= 5.0
    assert len(set(waits)) > 190
