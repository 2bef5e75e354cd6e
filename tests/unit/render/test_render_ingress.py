"""Istio's gateways, Kourier's gateway, and the Service of the local gateway."""

from typing import Any

import pytest

from knfleet.api.meta import Object
from knfleet.render.errors import RenderError
from tests.unit.render.samples import (
    OWNER,
    config_map,
    container,
    env,
    one,
    pod,
    rendered,
    serving,
    thing,
    workload,
)


def gateway(name: str, version: str = "v1beta1") -> Object:
    spec = {"selector": {"istio": "ingressgateway"}, "servers": [{"hosts": ["*"]}]}
    return thing(f"networking.istio.io/{version}", "Gateway", name, spec=spec)


def istio(**overrides: Any) -> Object:
    return {"ingress": {"istio": {"enabled": True, **overrides}}}


def kourier(**settings: Any) -> Object:
    return {"ingress": {"kourier": {"enabled": True, **settings}}}


def kourier_service() -> Object:
    ports = [{"name": "http2", "port": 80}, {"name": "https", "port": 443}]
    return thing("v1", "Service", "kourier", spec={"type": "LoadBalancer", "ports": ports})


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("knative-ingress-gateway", "knative-ingress-gateway"),
        ("knative-local-gateway", "knative-local-gateway"),
        ("cluster-local-gateway", "knative-local-gateway"),
    ],
)
def test_gateways_take_selector_and_servers(version: str, name: str, field: str):
    """What is given replaces what is there; the version of the object stays."""
    servers = [
        {
            "hosts": ["example.com"],
            "name": "main",
            "port": {"number": 443, "name": "https", "protocol": "HTTPS", "target_port": 8443},
            "tls": {
                "mode": "SIMPLE",
                "credentialName": "cert",
                "minProtocolVersion": 3,
                "httpsRedirect": True,
            },
        }
    ]

    result = one(
        gateway(name, version), istio(**{field: {"selector": {"a": "b"}, "servers": servers}})
    )

    assert f"networking.istio.io/{version}" == result["apiVersion"]
    assert result["spec"]["selector"] == {"a": "b"}
    assert result["spec"]["servers"] == [
        {
            "hosts": ["example.com"],
            "name": "main",
            "port": {"number": 443, "name": "https", "protocol": "HTTPS", "targetPort": 8443},
            "tls": {
                "mode": "SIMPLE",
                "credentialName": "cert",
                "minProtocolVersion": "TLSV1_2",
                "httpsRedirect": True,
            },
        }
    ]


@pytest.mark.parametrize("override", [{}, {"servers": []}, {"servers": None, "selector": None}])
def test_an_empty_override_changes_no_gateway(override: Object):
    """Nothing given is nothing to replace."""
    manifest = gateway("knative-ingress-gateway")

    result = one(manifest, istio(**{"knative-ingress-gateway": override}))

    assert manifest["spec"] == result["spec"]


def test_other_gateways_are_not_touched():
    """Neither those of other names nor those of the Gateway API."""
    override = {"knative-ingress-gateway": {"selector": {"a": "b"}}}
    stranger = gateway("stranger")
    other = thing("gateway.networking.k8s.io/v1", "Gateway", "knative-ingress-gateway", spec={})

    assert stranger["spec"] == one(stranger, istio(**override))["spec"]
    assert one(other, istio(**override))["spec"] == {}


def test_an_unknown_tls_mode_is_refused_with_upstreams_words():
    """The field is named down to the server."""
    servers = [{"hosts": ["*"]}, {"tls": {"mode": "NONE"}}]

    with pytest.raises(RenderError) as caught:
        one(
            gateway("knative-local-gateway"),
            istio(**{"knative-local-gateway": {"servers": servers}}),
        )

    assert caught.value.problem == (
        'failed to convert servers override for gateway "knative-local-gateway": unknown TLS mode '
        '"NONE": must be one of PASSTHROUGH, SIMPLE, MUTUAL, AUTO_PASSTHROUGH, ISTIO_MUTUAL'
    )
    assert caught.value.where == "spec.ingress.istio.knative-local-gateway.servers[1].tls.mode"


@pytest.mark.parametrize(
    "mode", ["PASSTHROUGH", "SIMPLE", "MUTUAL", "AUTO_PASSTHROUGH", "ISTIO_MUTUAL"]
)
def test_a_tls_mode_that_is_given_is_written(mode: str):
    """Also the one that Istio assumes."""
    override = {"knative-ingress-gateway": {"servers": [{"tls": {"mode": mode}}]}}

    result = one(gateway("knative-ingress-gateway"), istio(**override))

    assert result["spec"]["servers"] == [{"tls": {"mode": mode}}]


LISTED = "- name: knative-local-gateway\n  namespace: listed\n  service: x\n"
DOTTED = "local-gateway.knative-serving.knative-local-gateway"


@pytest.mark.parametrize(
    ("config", "namespace"),
    [
        ({}, "istio-system"),
        ({"istio": {"local-gateways": LISTED}}, "listed"),
        ({"config-istio": {"local-gateways": LISTED}}, "listed"),
        ({"istio": {DOTTED: "gateway.dotted.svc.cluster.local"}}, "dotted"),
        ({"istio": {DOTTED: "gateway.dotted.svc", "local-gateways": LISTED}}, "listed"),
        (
            {"istio": {"local-gateways": LISTED}, "config-istio": {DOTTED: "gateway.dotted"}},
            "dotted",
        ),
        ({"istio": {"local-gateways": "- name: other\n  namespace: x\n"}}, "istio-system"),
        ({"istio": {"local-gateways": "{unclosed: ["}}, "istio-system"),
        ({"istio": {"local-gateways": "text"}}, "istio-system"),
        ({"istio": {DOTTED: "gateway"}}, "istio-system"),
        ({"istio": {"local-gateway.other.knative-local-gateway": "a.b.c"}}, "istio-system"),
    ],
)
def test_the_local_gateways_service_is_where_istio_is(config: Object, namespace: str):
    """It has no owner there; the list beats the address, the full name the short one."""
    manifest = thing("v1", "Service", "knative-local-gateway", spec={})

    result = one(manifest, {"config": config}, owner=OWNER)

    assert namespace == result["metadata"]["namespace"]
    assert "ownerReferences" not in result["metadata"]


def test_services_select_what_their_gateways_select():
    """Other Services do not."""
    overrides = {
        "knative-ingress-gateway": {"selector": {"a": "ingress"}},
        "knative-local-gateway": {"selector": {"a": "local"}},
    }
    selector = {"istio": "ingressgateway"}
    names = ("knative-local-gateway", "knative-ingress-gateway", "other")
    objects = [thing("v1", "Service", name, spec={"selector": selector}) for name in names]

    local, ingress, other = rendered(objects, serving(istio(**overrides))).objects

    assert local["spec"]["selector"] == {"a": "local"}
    assert ingress["spec"]["selector"] == {"a": "ingress"}
    assert "knative-serving" == ingress["metadata"]["namespace"] == other["metadata"]["namespace"]
    assert selector == other["spec"]["selector"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"type": "LoadBalancer"}),
        ({"service-type": "ClusterIP"}, {"type": "ClusterIP"}),
        (
            {"service-load-balancer-ip": "1.2.3.4"},
            {"type": "LoadBalancer", "loadBalancerIP": "1.2.3.4"},
        ),
        ({"service-type": "NodePort"}, {"type": "NodePort"}),
    ],
)
def test_kouriers_service_has_type_and_address(settings: Object, expected: Object):
    """The release's own type stays when none is given."""
    result = one(kourier_service(), kourier(**settings))

    assert expected == {k: v for k, v in result["spec"].items() if k != "ports"}
    assert kourier_service()["spec"]["ports"] == result["spec"]["ports"]


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ({"http-port": 30001}, [30001, None]),
        ({"https-port": 30002}, [None, 30002]),
        ({"http-port": 30001, "https-port": 30002}, [30001, 30002]),
    ],
)
def test_kouriers_service_has_node_ports(ports: Object, expected: list[int | None]):
    """Zero leaves the choice to the cluster."""
    result = one(kourier_service(), kourier(**{"service-type": "NodePort", **ports}))

    assert expected == [port.get("nodePort") for port in result["spec"]["ports"]]


@pytest.mark.parametrize(
    ("settings", "field", "problem"),
    [
        (
            {"service-type": "ExternalName"},
            "service-type",
            'unsupported service type "ExternalName"',
        ),
        ({"service-type": "Foo"}, "service-type", 'unknown service type "Foo"'),
        (
            {"service-type": "ClusterIP", "service-load-balancer-ip": "1.2.3.4"},
            "service-load-balancer-ip",
            'cannot configure LoadBalancerIP for service type "ClusterIP"',
        ),
        (
            {"http-port": 1},
            "http-port",
            'cannot configure HTTP(S)Port for service type "LoadBalancer"',
        ),
        (
            {"service-type": "ClusterIP", "https-port": 1},
            "https-port",
            'cannot configure HTTP(S)Port for service type "ClusterIP"',
        ),
    ],
)
def test_what_kouriers_service_cannot_be_is_refused(settings: Object, field: str, problem: str):
    """With upstream's words."""
    with pytest.raises(RenderError) as caught:
        one(kourier_service(), kourier(**settings))

    assert problem == caught.value.problem
    assert f"spec.ingress.kourier.{field}" == caught.value.where


def test_kouriers_parts_find_one_another_in_the_new_namespace():
    """Controller, gateway and Envoy's bootstrap."""
    variable = {"name": "KOURIER_GATEWAY_NAMESPACE", "value": "kourier-system"}
    controller = workload("net-kourier-controller", container("controller", env=[variable]))
    text = 'address: "net-kourier-controller.knative-serving"'
    bootstrap = config_map("kourier-bootstrap", **{"envoy-bootstrap.yaml": text})
    cr = serving(kourier(), namespace="other")

    deployment, envoy = rendered([controller, bootstrap], cr).objects

    assert env(deployment) == [{"name": "KOURIER_GATEWAY_NAMESPACE", "value": "other"}]
    assert envoy["data"]["envoy-bootstrap.yaml"] == 'address: "net-kourier-controller.other"'


def test_kouriers_gateway_starts_with_another_bootstrap():
    """Volumes of other kinds, at which upstream's process ends, are passed over."""
    volumes: list[Object] = [
        {"name": "empty", "emptyDir": {}},
        {"name": "other", "configMap": {"name": "other"}},
        {"name": "config", "configMap": {"name": "kourier-bootstrap"}},
    ]
    manifest = workload("3scale-kourier-gateway", volumes=volumes)

    result = one(manifest, kourier(**{"bootstrap-configmap": "mine"}))

    assert pod(result)["volumes"] == [
        {"name": "empty", "emptyDir": {}},
        {"name": "other", "configMap": {"name": "other"}},
        {"name": "config", "configMap": {"name": "mine"}},
    ]


def test_kouriers_settings_do_nothing_while_it_is_off():
    """A plugin that is off may keep its settings."""
    settings = {"ingress": {"kourier": {"enabled": False, "service-type": "Foo"}}}

    assert kourier_service()["spec"] == one(kourier_service(), settings)["spec"]
