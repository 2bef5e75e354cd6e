"""Serving: its ingresses, certificates and guard, in several releases."""

from typing import Any

from testbed.peers.samples import Sample, serving

ON = {"enabled": True}
OFF = {"enabled": False}
KOURIER: dict[str, Any] = {"kourier": ON}


def kourier(**settings: Any) -> dict[str, Any]:
    """A spec with Kourier, and settings of it."""
    fields = {name.replace("_", "-"): value for name, value in settings.items()}
    return {"ingress": {"kourier": {**ON, **fields}}}


PLAIN_SERVER = {
    "hosts": ["*.example.org", "example.net"],
    "name": "plain",
    "port": {"name": "http", "number": 8081, "protocol": "HTTP", "target_port": 8082},
    "bind": "127.0.0.1",
    "defaultEndpoint": "127.0.0.1:8083",
}
TLS_SERVER = {
    "hosts": ["*"],
    "port": {"name": "https", "number": 8443, "protocol": "HTTPS"},
    "tls": {
        "httpsRedirect": True,
        "mode": "MUTUAL",
        "serverCertificate": "/certs/server.pem",
        "privateKey": "/certs/server.key",
        "caCertificates": "/certs/ca.pem",
        "credentialName": "gateway",
        "subjectAltNames": ["client.example.org"],
        "verifyCertificateSpki": ["spki"],
        "verifyCertificateHash": ["hash"],
        "minProtocolVersion": 3,
        "maxProtocolVersion": 4,
        "cipherSuites": ["ECDHE-ECDSA-AES128-GCM-SHA256"],
    },
}
PASSED_SERVER = {
    "hosts": ["passed.example.org"],
    "port": {"name": "tls", "number": 8444, "protocol": "TLS"},
    "tls": {"mode": "PASSTHROUGH"},
}
LOCAL_GATEWAYS = """
- name: other
  namespace: nowhere
  service: other.nowhere.svc.cluster.local
- name: knative-local-gateway
  namespace: istio-elsewhere
  service: knative-local-gateway.istio-elsewhere.svc.cluster.local
"""

INGRESSES = (
    serving("istio-is-assumed", {}),
    serving("no-ingress", {"ingress": {}}),
    serving("kourier", {"ingress": KOURIER}),
    serving(
        "all-ingresses",
        {"ingress": {"istio": ON, "contour": ON, "kourier": ON, "gateway-api": ON}},
    ),
    serving("contour-alone", {"ingress": {"istio": OFF, "contour": ON}}),
    serving("gateway-api-alone", {"ingress": {"gateway-api": ON, "kourier": OFF}}),
)

KOURIERS = (
    serving(
        "kourier-elsewhere",
        {
            "ingress": {
                "kourier": {
                    **ON,
                    "service-type": "LoadBalancer",
                    "service-load-balancer-ip": "127.0.0.9",
                    "bootstrap-configmap": "my-bootstrap",
                }
            }
        },
        namespace="tenant",
        quick=True,
    ),
    serving(
        "kourier-node-ports", kourier(service_type="NodePort", http_port=30680, https_port=30643)
    ),
    serving("kourier-one-node-port", kourier(service_type="NodePort", https_port=30644)),
    serving(
        "kourier-inside",
        {
            **kourier(service_type="ClusterIP"),
            "workloads": [
                {
                    "name": "net-kourier-controller",
                    "env": [
                        {
                            "container": "controller",
                            "envVars": [{"name": "KOURIER_GATEWAY_NAMESPACE", "value": "lost"}],
                        }
                    ],
                }
            ],
        },
    ),
    serving("kourier-external-name", kourier(service_type="ExternalName"), quick=True),
    serving("kourier-unknown-type", kourier(service_type="Portal")),
    serving(
        "kourier-address-inside",
        kourier(service_type="ClusterIP", service_load_balancer_ip="127.0.0.9"),
    ),
    serving("kourier-port-of-balancer", kourier(http_port=30680)),
)

ISTIOS = (
    serving(
        "istio-gateways",
        {
            "ingress": {
                "istio": {
                    **ON,
                    "knative-ingress-gateway": {
                        "selector": {"istio": "my-ingress", "zone": "a"},
                        "servers": [PLAIN_SERVER, TLS_SERVER, PASSED_SERVER],
                    },
                    "knative-local-gateway": {
                        "selector": {"istio": "my-local"},
                        "servers": [PLAIN_SERVER],
                    },
                }
            },
            "config": {"istio": {"local-gateways": LOCAL_GATEWAYS}},
        },
        quick=True,
    ),
    serving(
        "istio-gateways-in-part",
        {
            "ingress": {
                "istio": {
                    **ON,
                    "knative-ingress-gateway": {"servers": [{**TLS_SERVER, "tls": {}}]},
                    "knative-local-gateway": {"servers": [TLS_SERVER]},
                }
            },
            "config": {
                "istio": {
                    "local-gateway.tenant.knative-local-gateway": "knative.istio-system.svc",
                },
                "config-istio": {
                    "local-gateway.tenant.knative-local-gateway": (
                        "knative-local-gateway.istio-elsewhere.svc.cluster.local"
                    ),
                },
            },
        },
        namespace="tenant",
    ),
    serving(
        "istio-unreadable-gateways",
        {"config": {"istio": {"local-gateways": "- ]", "gateway.x.y": "z.istio-system.svc"}}},
    ),
)

SECURITY = (
    serving(
        "certificates-in-config-map",
        {
            "ingress": {},
            "controller-custom-certs": {"type": "ConfigMap", "name": "my-certs"},
            "security": {"securityGuard": OFF},
        },
    ),
    serving(
        "certificates-in-secret",
        {
            "ingress": {},
            "controller-custom-certs": {"type": "Secret", "name": "my-certs"},
            "workloads": [
                {
                    "name": "controller",
                    "env": [
                        {
                            "container": "controller",
                            "envVars": [{"name": "SSL_CERT_DIR", "value": "/mine"}],
                        }
                    ],
                }
            ],
        },
    ),
    serving(
        "certificates-empty", {"ingress": {}, "controller-custom-certs": {"type": "", "name": ""}}
    ),
    serving(
        "certificates-of-no-type",
        {"ingress": {}, "controller-custom-certs": {"type": "Volume", "name": "my-certs"}},
    ),
    serving(
        "certificates-without-name",
        {"ingress": {}, "controller-custom-certs": {"type": "Secret", "name": ""}},
    ),
    serving("guard", {"ingress": {}, "security": {"securityGuard": ON}}),
    serving(
        "guard-elsewhere",
        {
            "ingress": KOURIER,
            "security": {"securityGuard": ON},
            "config": {"features": {"queueproxy.mount-podinfo": "disabled"}},
        },
        namespace="tenant",
    ),
)

RELEASES = (
    serving("latest", {"ingress": {}, "version": "latest"}),
    serving("minor-1.22", {"version": "1.22", "ingress": KOURIER}),
    serving("patch-1.21.1", {"version": "1.21.1"}),
    serving(
        "minor-1.20-elsewhere",
        {"version": "1.20", "ingress": {"kourier": ON, "contour": ON, "gateway-api": ON}},
        namespace="tenant",
    ),
    serving("guard-1.21", {"version": "1.21", "ingress": {}, "security": {"securityGuard": ON}}),
    serving("release-of-old", {"version": "0.9.0", "ingress": {}}, quick=True),
    serving("release-with-v", {"version": "v1.23.0", "ingress": {}}),
    serving("release-of-words", {"version": "newest", "ingress": {}}),
    serving("release-without-minor", {"version": "1", "ingress": {}}),
)

SERVING: tuple[Sample, ...] = (*INGRESSES, *KOURIERS, *ISTIOS, *SECURITY, *RELEASES)
