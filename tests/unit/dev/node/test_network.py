"""What is behind the addresses of a cluster."""

from typing import Any

import pytest

from knfleet.api.meta import Key, Object
from knfleet.dev.node.containers.own_images import is_real, repository_name
from knfleet.dev.node.service_network import Kubelet, Network, NoEndpoint, PodPort

READY = {"type": "Ready", "status": "True"}


def pod(name: str, *, ready: bool = True, **status: Any) -> Object:
    """A pod behind the Service."""
    ports = [{"name": "https", "containerPort": 8443}]
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "hook"}},
        "spec": {"containers": [{"name": "main", "ports": ports}]},
        "status": {"conditions": [READY] if ready else [], **status},
    }


def network(*pods: Object, target: int | str = "https", **spec: Any) -> Network:
    """A network with one Service."""
    service: Object = {
        "metadata": {"name": "hook", "namespace": "shop"},
        "spec": {
            "clusterIP": "198.18.0.9",
            "selector": {"app": "hook"},
            "ports": [{"port": 443, "targetPort": target}],
            **spec,
        },
    }
    held = list(pods)
    return Network(lambda: [service], lambda _: held, lambda: held)


@pytest.mark.parametrize(
    "host", ["198.18.0.9", "hook.shop.svc", "hook.shop.svc.cluster.local", "hook.shop"]
)
def test_a_service_is_found_by_address_and_by_name(host: str) -> None:
    """API servers use either."""
    found = network(pod("a", ready=False), pod("b")).find(host, 443)

    assert isinstance(found, PodPort)
    assert found.pod["metadata"]["name"] == "b"
    assert found.port == 8443
    assert found.service == Key("shop", "hook")


def test_a_port_number_needs_no_name() -> None:
    """Target ports are numbers more often than names."""
    found = network(pod("a"), target=9443).find("hook.shop.svc", 443)

    assert isinstance(found, PodPort)
    assert found.port == 9443


@pytest.mark.parametrize(
    ("held", "host", "port", "why"),
    [
        ([], "hook.shop.svc", 443, "no ready pod behind the Service shop/hook"),
        ([pod("a", ready=False)], "hook.shop.svc", 443, "no ready pod"),
        ([pod("a", phase="Succeeded")], "hook.shop.svc", 443, "no ready pod"),
        ([pod("a")], "hook.shop.svc", 80, "has no port 80"),
        ([pod("a")], "8.8.8.8", 443, "neither a Service, a pod nor the node"),
        ([pod("a")], "None", 443, "neither"),
    ],
)
def test_where_nobody_is_the_reason_is_told(
    held: list[Object], host: str, port: int, why: str
) -> None:
    """The API server's error carries it."""
    found = network(*held, clusterIPs=["None"]).find(host, port)

    assert isinstance(found, NoEndpoint)
    assert why in found.why


def test_pods_and_the_kubelet_have_addresses_too() -> None:
    """Logs are asked for at the node's address."""
    with_address = network(pod("a", podIP="198.19.1.7"))

    assert with_address.find("198.19.255.254", 10250) == Kubelet()
    assert isinstance(with_address.find("198.19.1.7", 80), PodPort)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("knfleet", "knfleet"),
        ("knfleet:v1", "knfleet"),
        ("localhost:5000/knfleet", "knfleet"),
        ("ghcr.example/team/knfleet@sha256:0123", "knfleet"),
        ("registry:5000/a/b/knfleet:1.0@sha256:0123", "knfleet"),
        ("knfleet/other:v1", "other"),
    ],
)
def test_the_repository_of_an_image(image: str, name: str) -> None:
    """Of any registry, tag or digest."""
    assert repository_name(image) == name


def test_a_pod_is_real_only_if_all_its_containers_are() -> None:
    """A foreign sidecar could not run here."""
    ours, other = {"image": "x/knfleet:v1"}, {"image": "nginx"}

    assert is_real({"spec": {"containers": [ours]}}, ["knfleet"])
    assert not is_real({"spec": {"containers": [ours, other]}}, ["knfleet"])
    assert not is_real({"spec": {"containers": [ours], "initContainers": [other]}}, ["knfleet"])
