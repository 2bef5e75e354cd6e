"""Manifests that custom resources name, of every kind that the steps know."""

from typing import Any

from knfleet.api.meta import Object
from testbed.peers.samples import Sample, eventing, serving


def thing(api_version: str, kind: str, name: str, **fields: Any) -> Object:
    """An object without a namespace of its own."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def workload(api_version: str, kind: str, name: str, **spec: Any) -> Object:
    """A workload with a container and an init container."""
    image = "registry.example.org/more/thing@sha256:" + "0" * 64
    pod: Object = {
        "containers": [{"name": "main", "image": image, "env": [{"name": "IMAGE", "value": "a"}]}],
        "initContainers": [{"name": "first", "image": image}],
        "imagePullSecrets": [{"name": "mine"}],
    }
    labels = {"app": name}
    template: Object = {"metadata": {"labels": labels}, "spec": pod}
    if kind == "Job":
        pod["restartPolicy"] = "Never"
        return thing(api_version, kind, name, spec={"template": template, **spec})
    selector = {"selector": {"matchLabels": labels}}
    return thing(api_version, kind, name, spec={**selector, "template": template, **spec})


WORKLOADS = [
    workload("apps/v1", "Deployment", "more-deployment"),
    workload("apps/v1", "DaemonSet", "more-daemons"),
    workload("apps/v1", "StatefulSet", "more-stateful", serviceName="more"),
    workload("batch/v1", "Job", "more-job"),
    workload("apps/v1", "Deployment", "scaled"),
    thing(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "scaler",
        spec={
            "minReplicas": 1,
            "maxReplicas": 4,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"},
        },
    ),
    thing(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "scaler-without-least",
        spec={
            "maxReplicas": 4,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nobody"},
        },
    ),
]
OTHERS = [
    thing("v1", "ConfigMap", "config-more", data={"a": "1"}),
    thing("v1", "Service", "more", spec={"selector": {"app": "more"}, "ports": [{"port": 80}]}),
    thing("networking.k8s.io/v1", "IngressClass", "more", spec={"controller": "example.org/x"}),
    thing(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "more-binding",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        subjects=[
            {"kind": "ServiceAccount", "name": "controller", "namespace": "somewhere"},
            {"kind": "User", "name": "somebody", "apiGroup": "rbac.authorization.k8s.io"},
        ],
    ),
]
WITHOUT_RULES = thing(
    "rbac.authorization.k8s.io/v1",
    "ClusterRole",
    "more-rules",
    aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"more": "rules"}}]},
    rules=[],
)
UNBOUND = thing(
    "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding",
    "unbound",
    roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
)
KNATIVE_SERVICE = thing(
    "serving.knative.dev/v1",
    "Service",
    "activator-service",
    spec={"template": {"spec": {"containers": [{"image": "registry.example.org/hello:1"}]}}},
)
OF_ANOTHER_VERSION = {
    **thing("v1", "ConfigMap", "config-old", data={}),
    "metadata": {"name": "config-old", "labels": {"app.kubernetes.io/version": "1.19.0"}},
}
MORE: Object = {"additionalManifests": [{"URL": "${FILES}/more.yaml"}]}

MANIFESTS: tuple[Sample, ...] = (
    serving(
        "own-manifests",
        {
            "version": "1.22.1",
            "manifests": [
                {"URL": "${KODATA}/knative-serving/${VERSION}/1-serving-crds.yaml"},
                {"URL": "${KODATA}/knative-serving/${VERSION}/2-serving-core.yaml"},
            ],
            "ingress": {"kourier": {"enabled": True}},
        },
    ),
    serving(
        "own-manifests-without-version",
        {"manifests": [{"URL": "${KODATA}/knative-serving/1.22.1"}], "ingress": {}},
    ),
    serving(
        "own-manifests-of-another-version",
        {
            "version": "1.23.0",
            "manifests": [{"URL": "${KODATA}/knative-serving/1.22.1"}],
            "ingress": {},
        },
    ),
    serving(
        "own-manifests-of-eventing",
        {
            "version": "1.23.0",
            "manifests": [{"URL": "${KODATA}/knative-eventing/1.23.0"}],
            "ingress": {},
        },
    ),
    eventing(
        "own-manifests",
        {
            "version": "1.23",
            "manifests": [{"URL": "${KODATA}/knative-eventing/${VERSION}.0"}],
            "additionalManifests": [{"URL": "${KODATA}/eventing-source/1.23/redis"}],
        },
    ),
    serving(
        "more-workloads",
        {
            **MORE,
            "ingress": {},
            "high-availability": {"replicas": 2},
            "registry": {
                "default": "registry.example.org/mirror/${NAME}:v1",
                "override": {"IMAGE": "registry.example.org/of-variable:1"},
                "imagePullSecrets": [{"name": "mine"}, {"name": "more"}],
            },
            "workloads": [
                {"name": name, "labels": {"team": "a"}, "replicas": 3}
                for name in ("more-daemons", "more-stateful", "more-job")
            ],
        },
        files={"more.yaml": WORKLOADS},
        minimum_kubernetes="v1.33.0",
    ),
    eventing(
        "more-objects",
        {**MORE, "config": {"more": {"b": "2"}}},
        files={"more.yaml": OTHERS},
        namespace="tenant",
    ),
    serving(
        "more-of-another-version",
        {**MORE, "ingress": {}},
        files={"more.yaml": [OF_ANOTHER_VERSION]},
    ),
    serving("more-that-is-not-there", {**MORE, "ingress": {}}),
    serving("binding-of-nobody", {**MORE, "ingress": {}}, files={"more.yaml": [UNBOUND]}),
    serving(
        "config-map-with-a-short-name",
        {**MORE, "ingress": {}},
        files={"more.yaml": [thing("v1", "ConfigMap", "x", data={"a": "1"})]},
    ),
    eventing("role-without-rules", MORE, files={"more.yaml": [WITHOUT_RULES]}, again=True),
    eventing(
        "list-of-objects",
        MORE,
        files={"more.yaml": [{"apiVersion": "v1", "kind": "List", "items": OTHERS[:1]}]},
    ),
    serving(
        "knative-service",
        {
            **MORE,
            "ingress": {},
            "services": [{"name": "activator-service", "labels": {"team": "a"}}],
        },
        files={"more.yaml": [KNATIVE_SERVICE]},
    ),
    serving(
        "another-cluster",
        {"ingress": {}, "clusterProfileRef": {"name": "far", "namespace": "fleet"}},
    ),
)
