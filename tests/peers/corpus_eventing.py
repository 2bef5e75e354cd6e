"""Eventing: its sources, brokers, bindings and encryption, in several releases."""

from typing import Any

from knfleet.api.meta import Object
from testbed.peers.samples import Sample, eventing

ON = {"enabled": True}
OFF = {"enabled": False}
NAMES = ("ceph", "github", "gitlab", "kafka", "rabbitmq", "redis")


def sources(*on: str) -> dict[str, Any]:
    """All six sources, of which some are on: upstream's CRD wants them all to be named."""
    return {name: ON if name in on else OFF for name in NAMES}


def selection_mode(value: str, container: str = "eventing-webhook") -> Object:
    """A workload override with the selection mode of bindings."""
    variable = {"name": "SINK_BINDING_SELECTION_MODE", "value": value}
    env = {"container": container, "envVars": [variable]}
    return {"name": "eventing-webhook", "env": [env]}


BROKER_CONFIG = """clusterDefault:
  brokerClass: Kafka
  apiVersion: v1
  kind: ConfigMap
  name: my-broker
  namespace: my-brokers
"""
BROKER_CONFIG_WITHOUT_CLASS = """clusterDefault:
  apiVersion: v1
  kind: ConfigMap
  name: my-broker
  namespace: my-brokers
  delivery:
    retry: 3
    backoffPolicy: linear
    backoffDelay: PT1S
namespaceDefaults:
  mine:
    brokerClass_: none
    apiVersion: v1
    kind: ConfigMap
    name: mine
    namespace: mine
"""
RUNNING_PING_SOURCE: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "pingsource-mt-adapter", "namespace": "knative-eventing"},
    "spec": {
        "replicas": 2,
        "selector": {
            "matchLabels": {
                "eventing.knative.dev/source": "ping-source-controller",
                "sources.knative.dev/role": "adapter",
            }
        },
        "template": {
            "metadata": {
                "labels": {
                    "eventing.knative.dev/source": "ping-source-controller",
                    "sources.knative.dev/role": "adapter",
                }
            },
            "spec": {
                "containers": [
                    {
                        "name": "dispatcher",
                        "image": "registry.example.org/old",
                        "env": [
                            {"name": "K_LOGGING_CONFIG", "value": "{}"},
                            {"name": "K_SINK_TIMEOUT", "value": "7"},
                            {"name": "SYSTEM_NAMESPACE", "value": "knative-eventing"},
                        ],
                    }
                ]
            },
        },
    },
}

SOURCES = (
    eventing("defaults", {}, quick=True),
    eventing("elsewhere", {}, namespace="tenant"),
    eventing("all-sources", {"source": sources(*NAMES)}),
    eventing("kafka-elsewhere", {"source": sources("kafka")}, namespace="tenant"),
    eventing("some-sources", {"source": sources("github", "redis")}),
)

BROKERS = (
    eventing("broker-class", {"defaultBrokerClass": "Kafka"}),
    eventing(
        "broker-class-in-config",
        {
            "defaultBrokerClass": "Other",
            "config": {"br-defaults": {"default-br-config": BROKER_CONFIG}},
        },
    ),
    eventing(
        "broker-config-without-class",
        {
            "defaultBrokerClass": "Other",
            "config": {"config-br-defaults": {"default-br-config": BROKER_CONFIG_WITHOUT_CLASS}},
        },
    ),
    eventing(
        "broker-config-without-default",
        {"config": {"br-defaults": {"default-br-config": "namespaceDefaults: {}\n"}}},
    ),
)

BINDINGS = (
    eventing(
        "selection-mode",
        {
            "sinkBindingSelectionMode": "inclusion",
            "workloads": [selection_mode("exclusion")],
        },
    ),
    eventing(
        "selection-mode-of-workloads",
        {
            "workloads": [selection_mode("inclusion")],
            "deployments": [selection_mode("exclusion")],
        },
    ),
    eventing("selection-mode-of-deployments", {"deployments": [selection_mode("inclusion")]}),
    eventing(
        "selection-mode-of-another-container",
        {"workloads": [selection_mode("inclusion", "sidecar")]},
    ),
)

ENCRYPTION = (
    eventing("encrypted", {"config": {"features": {"transport-encryption": "Strict"}}}),
    eventing(
        "encrypted-elsewhere",
        {"config": {"config-features": {"transport-encryption": "permissive"}}},
        namespace="tenant",
    ),
    eventing(
        "encryption-said-twice",
        {
            "config": {
                "features": {"transport-encryption": "strict"},
                "config-features": {"transport-encryption": "disabled"},
            }
        },
    ),
    eventing("encryption-disabled", {"config": {"features": {"transport-encryption": "disabled"}}}),
)

REPLICAS = (
    eventing(
        "brokers-with-numbers-of-their-own",
        {
            "high-availability": {"replicas": 3},
            "workloads": [
                {"name": "mt-broker-ingress", "replicas": 2},
                {"name": "mt-broker-filter", "replicas": 5},
                {"name": "eventing-webhook", "replicas": 2},
                {"name": "eventing-controller", "replicas": 4},
                {"name": "request-reply", "replicas": 2},
                {"name": "pingsource-mt-adapter", "replicas": 1},
            ],
        },
    ),
    eventing(
        "highly-available-kafka",
        {
            "high-availability": {"replicas": 2},
            "source": sources("kafka", "rabbitmq", "gitlab"),
        },
    ),
)

RELEASES = (
    eventing("minor-1.22", {"version": "1.22", "source": sources("ceph")}),
    eventing("patch-1.21.0", {"version": "1.21.0", "source": sources("kafka")}),
    eventing("minor-1.20-elsewhere", {"version": "1.20"}, namespace="tenant"),
    eventing("release-of-tomorrow", {"version": "9.1.0"}),
    eventing("running-ping-source", {}, beforehand=(RUNNING_PING_SOURCE,)),
)

EVENTING: tuple[Sample, ...] = (
    *SOURCES,
    *BROKERS,
    *BINDINGS,
    *ENCRYPTION,
    *REPLICAS,
    *RELEASES,
)
