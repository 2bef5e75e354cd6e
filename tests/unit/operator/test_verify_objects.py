"""What a verification makes of the words of a target."""

import pytest

from knfleet.api.knative.verification import BadVerifyRequest, VerifyRequest, parse_request
from knfleet.api.meta import Key, Object
from knfleet.operator.verification.verify_images import expected_text
from knfleet.operator.verification.verify_objects import (
    ServiceRoute,
    UnusableAnswer,
    broker_route,
    ingress_route,
    pod_readiness,
    readiness,
    service_manifest,
    subscriber_manifests,
)

META = {"name": "verify-1", "namespace": "knfleet-verify-serving", "generation": 2}
KOURIER = "kourier.knative-serving.svc.cluster.local"
INTERNAL = "kourier-internal.knative-serving.svc.cluster.local"


def service(url: str, address: str = "") -> Object:
    """A Knative Service with its addresses."""
    return {"metadata": META, "status": {"url": url, "address": {"url": address}}}


def ingress(public: str = KOURIER, private: str = INTERNAL) -> Object:
    """An Ingress with its load balancers."""
    status = {
        "publicLoadBalancer": {"ingress": [{"domainInternal": public}]},
        "privateLoadBalancer": {"ingress": [{"domainInternal": private}]},
    }
    return {"metadata": META, "status": status}


def test_a_route_goes_through_the_service_that_the_ingress_names() -> None:
    found = ingress_route(service("http://verify-1.example.com"), ingress())

    assert found == ServiceRoute("verify-1.example.com", Key("knative-serving", "kourier"))
    assert found.proxy_path == ("/api/v1/namespaces/knative-serving/services/kourier:80/proxy/")


def test_a_route_with_tls_is_asked_for_inside_the_cluster() -> None:
    """The proxy of an API server cannot send the name that chooses a certificate."""
    inside = "verify-1.knfleet-verify-serving.svc.cluster.local"

    found = ingress_route(service("https://verify-1.example.com", f"http://{inside}"), ingress())

    assert found == ServiceRoute(inside, Key("knative-serving", "kourier-internal"))


@pytest.mark.parametrize(
    ("url", "balancer"),
    [
        ("http://a\r\nX-Remote-User: admin", KOURIER),
        ("http://user:secret@host", KOURIER),
        ("http://verify-1.example.com", "../../secrets.kube-system.svc"),
        ("http://verify-1.example.com", "kourier.knative-serving.elsewhere.example.com"),
        ("https://verify-1.example.com", KOURIER),
        ("http://[", KOURIER),
        ("", KOURIER),
    ],
)
def test_a_target_cannot_choose_another_path_or_header(url: str, balancer: str) -> None:
    with pytest.raises(UnusableAnswer, match="Ingress knfleet-verify-serving/verify-1"):
        ingress_route(service(url), ingress(balancer))


@pytest.mark.parametrize(
    "url",
    [
        "https://broker-ingress.knative-eventing.svc/space/b",
        "http://broker-ingress.knative-eventing.svc/space/../../../secrets?x=1",
        "http://broker-ingress.knative-eventing.svc/space/%2e%2e/b",
        "http://broker-ingress.knative-eventing.svc:99999/space/b",
        "http://broker.example.com/space/b",
        "",
    ],
)
def test_a_broker_is_asked_at_a_service_of_its_cluster_alone(url: str) -> None:
    broker: Object = {"metadata": META, "status": {"address": {"url": url}}}

    with pytest.raises(UnusableAnswer, match="Broker knfleet-verify-serving/verify-1"):
        broker_route(broker)


@pytest.mark.parametrize(
    ("image", "arguments", "port", "answer"),
    [
        ("hashicorp/http-echo:1.0", ["-text=verify-1 Hello"], 5678, "verify-1 Hello"),
        (
            "r.example.com:5000/x/http-echo@sha256:1",
            ["-text=verify-1 Hello"],
            5678,
            "verify-1 Hello",
        ),
        ("knfleet", ["verify-server", "--text=verify-1 Hello"], 8080, "verify-1 Hello"),
        ("example.com/knfleet/hello:2", None, 8080, "Hello"),
    ],
)
def test_copies_of_known_images_are_started_with_a_text(
    image: str, arguments: list[str] | None, port: int, answer: str
) -> None:
    """In a Knative Service, and as the subscriber of a Trigger."""
    request = VerifyRequest(request="a", text="Hello")
    service = service_manifest("verify-1", image, request)
    (container,) = service["spec"]["template"]["spec"]["containers"]
    pod, exposed = subscriber_manifests("verify-1", image, request)
    (subscriber,) = pod["spec"]["containers"]

    assert container.get("args") == subscriber.get("args") == arguments
    assert container.get("ports", [{"containerPort": 8080}]) == [{"containerPort": port}]
    assert subscriber["env"] == [{"name": "PORT", "value": str(port)}]
    assert exposed["spec"]["ports"] == [{"port": 80, "targetPort": port}]
    assert expected_text("verify-1", image, request) == answer


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({}, "no kubelet has reported it yet"),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}]},
            "no node",
        ),
        (
            {
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ErrImagePull", "message": "x"}}}
                ]
            },
            "ErrImagePull: x",
        ),
        ({"containerStatuses": ["odd", {"state": None}], "conditions": "odd"}, "no kubelet"),
    ],
)
def test_a_pod_that_is_not_ready_says_what_it_waits_for(status: Object, text: str) -> None:
    is_ready, said = pod_readiness({"metadata": META, "status": status})

    assert not is_ready
    assert text in said


def test_an_object_whose_controller_has_not_looked_is_not_ready() -> None:
    """A condition of an older generation says nothing."""
    ready = [{"type": "Ready", "status": "True"}]

    assert not readiness({"metadata": META, "status": {"conditions": ready}})[0]
    odd: Object = {"observedGeneration": 2, "conditions": ["Ready", None]}
    assert not readiness({"metadata": META, "status": odd})[0]
    status = {"observedGeneration": 2, "conditions": ready}
    assert readiness({"metadata": META, "status": status}) == (True, "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no name!", "identifier"),
        ("{", "JSON"),
        ('{"request": "a", "image": "x y"}', "image"),
        ('{"request": "a", "timeout": "2h"}', "timeout"),
        ('{"request": "a", "text": "' + "x" * 300 + '"}', "256"),
        ("x" * 3000, "2048"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadVerifyRequest, match=words):
        parse_request(text)


def test_a_request_survives_the_annotation() -> None:
    request = VerifyRequest(request="a", image="example.com/mine:1", text="Hello", timeout="1m")

    assert parse_request(request.encoded()) == request
    assert parse_request("a") == VerifyRequest(request="a")
