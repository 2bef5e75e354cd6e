"""What both components have: replicas, images, configuration, Services, budgets."""

from typing import Any

from testbed.peers.samples import Sample, eventing, serving
from tests.peers.corpus_eventing import sources

ON = {"enabled": True}
KOURIER: dict[str, Any] = {"kourier": ON}
MIRROR = "registry.example.org/mirror/${NAME}:v1"

REPLICAS = (
    serving("highly-available", {"ingress": KOURIER, "high-availability": {"replicas": 3}}),
    serving(
        "highly-available-but",
        {
            "ingress": KOURIER,
            "high-availability": {"replicas": 4},
            "workloads": [
                {"name": "activator", "replicas": 2},
                {"name": "controller", "replicas": 1},
                {"name": "3scale-kourier-gateway", "replicas": 6},
            ],
            "deployments": [{"name": "autoscaler", "replicas": 2}],
        },
        quick=True,
    ),
    serving("without-pods", {"ingress": {}, "high-availability": {"replicas": 0}}),
    eventing("highly-available", {"high-availability": {"replicas": 2}}),
)

IMAGES = (
    serving(
        "images-from-mirror",
        {
            "ingress": {"istio": ON, "kourier": ON},
            "registry": {
                "default": MIRROR,
                "imagePullSecrets": [{"name": "first"}, {"name": "second"}],
            },
        },
    ),
    serving(
        "images-by-name",
        {
            "ingress": KOURIER,
            "registry": {
                "default": "registry.example.org/${NAME}/${NAME}",
                "override": {
                    "activator": "registry.example.org/my-activator:1",
                    "controller/controller": "registry.example.org/my-controller:1",
                    "net-kourier-controller/controller": "registry.example.org/my-kourier:1",
                    "queue-proxy": "registry.example.org/my-queue:1",
                    "storage-version-migration-serving-/migrate": "registry.example.org/migrate:1",
                    "cleanup": "registry.example.org/cleanup:1",
                    "nothing-like-it": "registry.example.org/nothing:1",
                    "CONFIG_LOGGING_NAME": "registry.example.org/not-an-image:1",
                    "POD_NAME": "registry.example.org/value-from:1",
                },
            },
        },
    ),
    eventing(
        "images-by-name",
        {
            "registry": {
                "override": {
                    "eventing-controller/eventing-controller": "registry.example.org/controller:1",
                    "dispatcher": "registry.example.org/dispatcher:1",
                    "imc-dispatcher/dispatcher": "registry.example.org/imc:1",
                    "DISPATCHER_IMAGE": "registry.example.org/imc:1",
                    "APISERVER_RA_IMAGE": "registry.example.org/adapter:1",
                    "migrate": "registry.example.org/migrate:1",
                },
            },
            "source": sources("kafka"),
        },
    ),
    eventing(
        "images-from-mirror",
        {
            "registry": {"default": MIRROR, "imagePullSecrets": [{"name": "mine"}]},
            "source": sources("github", "redis", "kafka"),
        },
    ),
    serving(
        "images-in-config-maps",
        {
            "ingress": {},
            "registry": {"override": {"queue-sidecar-image": "registry.example.org/queue:1"}},
        },
    ),
    eventing(
        "pull-secret-without-name",
        {"registry": {"imagePullSecrets": [{"name": ""}]}},
        again=True,
    ),
    eventing("images-all-the-same", {"registry": {"default": "registry.example.org/one:1"}}),
)

CONFIGURATION = (
    serving(
        "configuration",
        {
            "ingress": KOURIER,
            "config": {
                "defaults": {"revision-timeout-seconds": "301", "added": "multi\nline\n"},
                "config-logging": {"loglevel.controller": "debug"},
                "logging": {"loglevel.webhook": "passed over"},
                "network": {"ingress-class": "kourier.ingress.networking.knative.dev"},
                "kourier": {"enable-service-access-logging": "false"},
                "kourier-bootstrap": {"envoy-bootstrap.yaml": "of: knative-serving\n"},
                "deployment": {"queue-sidecar-image": "registry.example.org/queue:1"},
                "nothing-like-it": {"a": "b"},
                "gc": {},
            },
        },
        namespace="tenant",
    ),
    eventing(
        "configuration",
        {
            "config": {
                "default-ch-webhook": {"default-ch-config": "clusterDefault: {}\n"},
                "ping-defaults": {"data-max-size": "4096"},
                "config-features": {"new-apiserversource-filters": "enabled"},
                "features": {"delivery-retryafter": "enabled"},
                "br-default-channel": {"channel-template-spec": "kind: InMemoryChannel\n"},
            }
        },
    ),
    eventing(
        "configuration-by-a-cut-name", {"config": {"-ch-webhook": {"default-ch-config": "cut\n"}}}
    ),
)

OTHERS = (
    serving(
        "services-and-budgets",
        {
            "ingress": KOURIER,
            "services": [
                {
                    "name": "activator-service",
                    "labels": {"team": "a"},
                    "annotations": {"note": "b"},
                    "selector": {"more": "c"},
                },
                {"name": "kourier", "annotations": {"balancer": "internal"}},
                {"name": "nothing-like-it", "labels": {"team": "a"}},
            ],
            "podDisruptionBudgets": [
                {"name": "activator-pdb", "minAvailable": "50%"},
                {"name": "webhook-pdb", "maxUnavailable": 1},
                {
                    "name": "3scale-kourier-gateway-pdb",
                    "selector": {"matchLabels": {"a": "b"}},
                    "unhealthyPodEvictionPolicy": "AlwaysAllow",
                },
            ],
            "namespace": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        },
        quick=True,
    ),
    serving(
        "budget-with-both",
        {
            "ingress": {},
            "podDisruptionBudgets": [
                {"name": "activator-pdb", "minAvailable": 1, "maxUnavailable": 1}
            ],
        },
    ),
    eventing(
        "services-and-budgets",
        {
            "services": [{"name": "eventing-webhook", "labels": {"team": "a"}}],
            "podDisruptionBudgets": [{"name": "eventing-webhook", "maxUnavailable": "40%"}],
            "namespace": {"labels": {"istio-injection": "enabled"}},
        },
        namespace="tenant",
    ),
    serving(
        "namespace-configuration",
        {
            "ingress": {},
            "namespaceConfiguration": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        },
    ),
    serving("oldest-kubernetes", {"ingress": KOURIER}, minimum_kubernetes="v1.33.0"),
    eventing(
        "oldest-kubernetes",
        {"source": sources("kafka", "ceph")},
        minimum_kubernetes="v1.33.0",
    ),
)

COMMON: tuple[Sample, ...] = (*REPLICAS, *IMAGES, *CONFIGURATION, *OTHERS)
