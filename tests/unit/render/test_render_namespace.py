"""Everything moves into the namespace of the custom resource."""

from typing import Any

import pytest

from knfleet.api.meta import Object, Resource
from knfleet.render.scopes import from_discovery
from tests.unit.render.samples import (
    config_map,
    container,
    env,
    eventing,
    one,
    rendered,
    serving,
    thing,
    workload,
)

WEBHOOKS = "admissionregistration.k8s.io/v1"


def moved(manifest: Object, **facts: Any) -> Object:
    [result] = rendered([manifest], serving(namespace="other"), **facts).objects
    return result


def test_a_namespaced_object_goes_to_the_namespace_of_the_custom_resource():
    """Whatever namespace it had, or had not."""
    homeless = config_map("b")
    del homeless["metadata"]["namespace"]

    assert moved(config_map("a"))["metadata"]["namespace"] == "other"
    assert moved(homeless)["metadata"]["namespace"] == "other"


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("scheduling.k8s.io/v1", "PriorityClass"),
        ("v1", "PersistentVolume"),
        ("cert-manager.io/v1", "ClusterIssuer"),
        ("gateway.networking.k8s.io/v1", "GatewayClass"),
        ("networking.k8s.io/v1", "IngressClass"),
    ],
)
def test_a_cluster_scoped_object_gets_no_namespace(api_version: str, kind: str):
    """Upstream gives one to kinds that are not in its list, and then counts them as namespaced."""
    assert "namespace" not in moved(thing(api_version, kind, "x"))["metadata"]


def test_discovery_says_the_scope_of_kinds_that_nobody_knows():
    """Its word counts before any table."""
    widget = thing("example.com/v1", "Widget", "x")
    scopes = from_discovery([Resource("example.com", "v1", "Widget", "widgets", namespaced=False)])

    assert moved(widget)["metadata"]["namespace"] == "other"
    assert "namespace" not in moved(widget, scopes=scopes)["metadata"]


def test_a_definition_among_the_objects_says_the_scope_of_its_kind():
    """On the first install the target does not know the kind yet."""
    crd = thing(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "widgets.example.com",
        spec={"group": "example.com", "scope": "Cluster", "names": {"kind": "Widget"}},
    )
    widget = thing("example.com/v1", "Widget", "x")

    _, result = rendered([crd, widget], serving(namespace="other")).objects

    assert "namespace" not in result["metadata"]


def test_all_namespaces_of_a_release_become_one():
    """kourier-system and the like collapse into it."""
    namespaces = [thing("v1", "Namespace", name) for name in ("knative-serving", "kourier-system")]

    result = rendered(namespaces, serving(namespace="other")).objects

    assert [found["metadata"]["name"] for found in result] == ["other"]


@pytest.mark.parametrize("kind", ["RoleBinding", "ClusterRoleBinding"])
def test_subjects_that_have_a_namespace_get_the_new_one(kind: str):
    """Users and groups have none, and keep none."""
    subjects = [
        {"kind": "ServiceAccount", "name": "a", "namespace": "knative-serving"},
        {"kind": "Group", "name": "b"},
    ]
    result = moved(thing("rbac.authorization.k8s.io/v1", kind, "x", subjects=subjects))

    assert result["subjects"][0]["namespace"] == "other"
    assert "namespace" not in result["subjects"][1]


def test_a_binding_without_subjects_is_no_problem():
    """Upstream's process ends there."""
    manifest = thing("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "x")

    assert "subjects" not in moved(manifest)


def test_webhooks_conversions_and_apis_are_answered_in_the_new_namespace():
    """Services are named with their namespace in four places."""
    client = {"service": {"name": "webhook", "namespace": "knative-serving"}}
    url = {"url": "https://example.com"}
    webhooks = [{"name": "a", "clientConfig": client}, {"name": "b", "clientConfig": url}]
    validating = moved(thing(WEBHOOKS, "ValidatingWebhookConfiguration", "x", webhooks=webhooks))
    mutating = moved(thing(WEBHOOKS, "MutatingWebhookConfiguration", "x", webhooks=webhooks))
    crds = "apiextensions.k8s.io/v1"
    kind = "CustomResourceDefinition"
    new = moved(thing(crds, kind, "x", spec={"conversion": {"webhook": {"clientConfig": client}}}))
    old = moved(thing(crds, kind, "x", spec={"conversion": {"webhookClientConfig": client}}))
    api = moved(thing("apiregistration.k8s.io/v1", "APIService", "x", spec=client))

    for configuration in (validating, mutating):
        first, second = configuration["webhooks"]
        assert first["clientConfig"]["service"]["namespace"] == "other"
        assert url == second["clientConfig"]
    assert new["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"] == "other"
    assert old["spec"]["conversion"]["webhookClientConfig"]["service"]["namespace"] == "other"
    assert api["spec"]["service"]["namespace"] == "other"


def test_a_definition_without_conversion_stays_as_it_is():
    """Most have none."""
    spec = {"group": "example.com", "versions": [{"name": "v1"}]}

    result = moved(thing("apiextensions.k8s.io/v1", "CustomResourceDefinition", "x", spec=spec))

    assert spec == result["spec"]


def test_labels_and_annotations_are_merged_into_the_namespace_alone():
    """What is given wins over what is there."""
    manifest = thing("v1", "Namespace", "knative-serving")
    manifest["metadata"]["labels"] = {"a": "release", "b": "release"}
    settings = {"labels": {"b": "user", "c": "user"}, "annotations": {"d": "user"}}

    result = one(manifest, {"namespace": settings})
    other = one(config_map("x"), {"namespace": settings})

    labels = {"a": "release", "b": "user", "c": "user", "app.kubernetes.io/name": "knative-serving"}
    assert labels == result["metadata"]["labels"]
    assert result["metadata"]["annotations"] == {"d": "user"}
    assert "c" not in other["metadata"]["labels"]


def test_words_that_mean_the_old_namespace_follow():
    """Upstream leaves them, so that parts of Eventing do not find one another elsewhere."""
    certificate = thing(
        "cert-manager.io/v1",
        "Certificate",
        "job-sink-server-tls",
        spec={"dnsNames": ["job-sink.knative-eventing.svc", "knative-eventing.example.com"]},
    )
    variables = [
        {"name": "BROKER_DATA_PLANE_CONFIG_MAP_NAMESPACE", "value": "knative-eventing"},
        {"name": "OTHER_NAMESPACE", "value": "kube-system"},
        {"name": "TEXT", "value": "knative-eventing"},
    ]
    controller = workload("kafka-controller", container("controller", env=variables))
    by_label = {"matchLabels": {"kubernetes.io/metadata.name": "knative-eventing"}}
    values = ["knative-eventing", "kube-system"]
    by_expression = {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": values},
            {"key": "app", "operator": "In", "values": values},
        ]
    }
    webhook = thing(
        WEBHOOKS,
        "MutatingWebhookConfiguration",
        "pods",
        webhooks=[{"namespaceSelector": by_label}, {"namespaceSelector": by_expression}],
    )
    cr = eventing({"config": {"features": {"transport-encryption": "Strict"}}}, namespace="other")

    tls, kafka, selecting = rendered([certificate, controller, webhook], cr).objects

    assert tls["spec"]["dnsNames"] == ["job-sink.other.svc", "knative-eventing.example.com"]
    assert [v["value"] for v in env(kafka)] == ["other", "kube-system", "knative-eventing"]
    first, second = (found["namespaceSelector"] for found in selecting["webhooks"])
    assert first["matchLabels"] == {"kubernetes.io/metadata.name": "other"}
    by_name, by_app = second["matchExpressions"]
    assert by_name["values"] == ["other", "kube-system"]
    assert values == by_app["values"]


def test_the_default_broker_finds_its_configuration_in_the_new_namespace():
    """The release's own text is changed; a user's is not."""
    text = "clusterDefault:\n  brokerClass: MTChannelBasedBroker\n  namespace: knative-eventing\n"
    manifest = config_map("config-br-defaults", **{"default-br-config": text})
    mine = {"config": {"br-defaults": {"default-br-config": text}}}

    [moved_along] = rendered([manifest], eventing(namespace="other")).objects
    [kept] = rendered([manifest], eventing(mine, namespace="other")).objects

    assert "namespace: other\n" in moved_along["data"]["default-br-config"]
    assert text == kept["data"]["default-br-config"]
