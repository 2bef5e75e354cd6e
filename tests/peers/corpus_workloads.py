"""Overrides of single workloads."""

from typing import Any

from testbed.peers.samples import Sample, eventing, serving
from tests.peers.corpus_eventing import sources

KOURIER: dict[str, Any] = {"kourier": {"enabled": True}}
PLACEMENT: dict[str, Any] = {
    "labels": {"team": "a", "app.kubernetes.io/component": "mine"},
    "annotations": {"note": "b", "sidecar.istio.io/inject": "true"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
    ],
    "tolerations": [{"key": "special", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 5,
                    "preference": {
                        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]
                    },
                }
            ]
        }
    },
    "hostNetwork": True,
}
TIMING = {
    "initialDelaySeconds": 3,
    "timeoutSeconds": 4,
    "periodSeconds": 5,
    "successThreshold": 1,
    "failureThreshold": 6,
}
GRACE = {"terminationGracePeriodSeconds": 70}


def variables(container: str, **values: str) -> dict[str, Any]:
    """Environment variables of a container."""
    listed = [{"name": name, "value": value} for name, value in values.items()]
    return {"container": container, "envVars": listed}


WORKLOADS: tuple[Sample, ...] = (
    serving(
        "placement",
        {
            "ingress": KOURIER,
            "workloads": [
                {"name": "activator", **PLACEMENT},
                {"name": "webhook", "hostNetwork": False, "labels": {"team": "b"}},
                {"name": "3scale-kourier-gateway", "affinity": {}, "labels": {"team": "c"}},
                {"name": "storage-version-migration-serving-", **PLACEMENT},
                {"name": "nothing-like-it", **PLACEMENT},
            ],
        },
        quick=True,
    ),
    serving(
        "environment",
        {
            "ingress": {},
            "deployments": [
                {"name": "activator", "env": [variables("activator", A="1", B="2")]},
                {"name": "controller", "labels": {"team": "old", "kept": "yes"}},
            ],
            "workloads": [
                {"name": "activator", "env": [variables("activator", B="3", GOGC="200", C="4")]},
                {"name": "controller", "labels": {"team": "new"}, "version": "1.0"},
                {
                    "name": "webhook",
                    "env": [
                        {
                            "container": "webhook",
                            "envVars": [
                                {"name": "POD_NAME", "value": "fixed"},
                                {
                                    "name": "FROM",
                                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                                },
                                {"name": "TWICE", "value": "1"},
                                {"name": "TWICE", "value": "2"},
                            ],
                        },
                        variables("nothing-like-it", A="1"),
                    ],
                    "volumeMounts": [],
                },
                {"name": "cleanup-serving-", "env": [variables("cleanup", A="1")]},
            ],
        },
    ),
    serving(
        "resources",
        {
            "ingress": KOURIER,
            "resources": [
                {
                    "container": "activator",
                    "limits": {"cpu": "3000m", "memory": "1Gi"},
                    "requests": {"cpu": "1"},
                    "claims": [{"name": "device"}],
                },
                {"container": "controller", "limits": {"ephemeral-storage": "1Gi"}},
                {"container": "kourier-gateway", "limits": {"cpu": 2}},
                {"container": "activator", "limits": {"cpu": "7"}},
            ],
            "workloads": [
                {
                    "name": "controller",
                    "resources": [
                        {
                            "container": "controller",
                            "limits": {"cpu": 2},
                            "requests": {"memory": "200Mi"},
                            "claims": [],
                        },
                        {"container": "controller", "limits": {"cpu": "9"}},
                    ],
                },
                {
                    "name": "cleanup-serving-",
                    "resources": [{"container": "cleanup", "limits": {"cpu": "1"}}],
                },
            ],
        },
    ),
    serving(
        "probes",
        {
            "ingress": KOURIER,
            "workloads": [
                {
                    "name": "activator",
                    "readinessProbes": [
                        {
                            "container": "activator",
                            "initialDelaySeconds": 3,
                            "timeoutSeconds": 4,
                            "periodSeconds": 5,
                            "successThreshold": 2,
                            "failureThreshold": 6,
                        }
                    ],
                    "livenessProbes": [
                        {
                            "container": "activator",
                            "timeoutSeconds": 7,
                            "terminationGracePeriodSeconds": 70,
                        }
                    ],
                },
                {
                    "name": "webhook",
                    "readinessProbes": [{"container": "webhook"}],
                    "livenessProbes": [{"container": "nothing-like-it"}],
                },
                {
                    "name": "controller",
                    "livenessProbes": [{"container": "controller", "initialDelaySeconds": 0}],
                },
            ],
        },
    ),
    serving(
        "probe-without-handler",
        {
            "ingress": KOURIER,
            "workloads": [
                {
                    "name": "3scale-kourier-gateway",
                    "livenessProbes": [{"container": "kourier-gateway", "timeoutSeconds": 5}],
                    "readinessProbes": [{"container": "kourier-gateway", "timeoutSeconds": 5}],
                },
                {
                    "name": "cleanup-serving-",
                    "livenessProbes": [{"container": "cleanup", "timeoutSeconds": 5}],
                },
            ],
        },
    ),
    serving(
        "probe-that-the-server-refuses",
        {
            "ingress": {},
            "deployments": [
                {
                    "name": "controller",
                    "readinessProbes": [{"container": "controller", **GRACE}],
                }
            ],
            "workloads": [
                {
                    "name": "controller",
                    "readinessProbes": [{"container": "controller", **GRACE}],
                }
            ],
        },
    ),
    serving(
        "deprecated-deployments",
        {
            "ingress": {},
            "deployments": [
                {
                    "name": "autoscaler",
                    **PLACEMENT,
                    "replicas": 2,
                    "version": "1.0",
                    "volumeMounts": [],
                    "env": [variables("autoscaler", A="1")],
                    "resources": [
                        {
                            "container": "autoscaler",
                            "limits": {"cpu": "2"},
                            "requests": {"cpu": "500m"},
                            "claims": [],
                        }
                    ],
                    "readinessProbes": [{"container": "autoscaler", **TIMING}],
                    "livenessProbes": [{"container": "autoscaler", **TIMING, **GRACE}],
                }
            ],
        },
    ),
    eventing(
        "workloads",
        {
            "workloads": [
                {"name": "request-reply", **PLACEMENT, "replicas": 2},
                {"name": "imc-controller", **PLACEMENT},
                {"name": "storage-version-migration-eventing-", "labels": {"team": "a"}},
                {
                    "name": "mt-broker-filter",
                    "resources": [{"container": "filter", "limits": {"cpu": "2"}}],
                    "env": [variables("filter", A="1")],
                    "livenessProbes": [{"container": "filter", **TIMING, **GRACE}],
                },
                {"name": "kafka-controller-post-install", "labels": {"team": "a"}},
            ],
            "source": sources("kafka"),
        },
    ),
)
