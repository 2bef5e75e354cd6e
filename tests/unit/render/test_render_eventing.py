"""Default brokers, bindings, the ping source, and TLS."""

from typing import Any

import pytest

from knfleet.api.core import DEPLOYMENTS
from knfleet.api.meta import Key, Object
from knfleet.kube.yaml import load
from knfleet.render.errors import BadField, BadObject
from knfleet.render.pipeline import needs
from tests.unit.render.samples import (
    config_map,
    container,
    env,
    eventing,
    pod,
    rendered,
    serving,
    thing,
    workload,
)

DEFAULTS = """\
clusterDefault:
  brokerClass: MTChannelBasedBroker
  name: config-br-default-channel
  delivery:
    backoffDelay: PT0.2S
"""


def one(manifest: Object, spec: Object | None = None, **facts: Any) -> Object:
    [result] = rendered([manifest], eventing(spec), **facts).objects
    return result


def brokers(text: str = DEFAULTS) -> Object:
    return config_map("config-br-defaults", **{"default-br-config": text})


def broker_class(manifest: Object) -> str:
    return load(manifest["data"]["default-br-config"])["clusterDefault"]["brokerClass"]


@pytest.mark.parametrize(("given", "expected"), [("Kafka", "Kafka"), ("", "MTChannelBasedBroker")])
def test_the_default_broker_class_is_written(given: str, expected: str):
    """The rest of the configuration stays."""
    text = DEFAULTS.replace("MTChannelBasedBroker", "Other")

    result = one(brokers(text), {"defaultBrokerClass": given})

    assert expected == broker_class(result)
    config = load(result["data"]["default-br-config"])["clusterDefault"]
    assert config["delivery"] == {"backoffDelay": "PT0.2S"}


def test_a_class_that_is_there_already_leaves_the_text_alone():
    """Comments and order survive."""
    text = "# mine\n" + DEFAULTS

    assert text == one(brokers(text))["data"]["default-br-config"]


@pytest.mark.parametrize("name", ["br-defaults", "config-br-defaults"])
def test_configuration_that_names_a_class_wins_over_the_field(name: str):
    """By either name of the ConfigMap."""
    text = "clusterDefault:\n  brokerClass: Mine\n"
    spec = {"defaultBrokerClass": "Field", "config": {name: {"default-br-config": text}}}

    assert text == one(brokers(), spec)["data"]["default-br-config"]


def test_configuration_that_names_no_class_gets_the_one_of_the_field():
    """The field is the default, and so is upstream's."""
    config = {"br-defaults": {"default-br-config": "clusterDefault:\n  name: x\n"}}

    assert (
        broker_class(one(brokers(), {"defaultBrokerClass": "Field", "config": config})) == "Field"
    )


def test_configuration_without_a_cluster_default_gets_one():
    """Upstream's process ends there."""
    assert broker_class(one(brokers("namespaceDefaults: {}\n"))) == "MTChannelBasedBroker"


def test_configuration_that_cannot_be_read_is_named():
    """The user's as a field, the release's as an object."""
    config = {"br-defaults": {"default-br-config": "a: ["}}

    with pytest.raises(BadField, match=r"spec\.config\.config-br-defaults\.default-br-config"):
        one(brokers(), {"config": config})
    with pytest.raises(BadObject, match="ConfigMap config-br-defaults"):
        one(brokers("[]"))
    with pytest.raises(BadObject, match="has no default-br-config"):
        one(config_map("config-br-defaults"))


def bound(name: str, value: str, *, workload_name: str = "eventing-webhook") -> Object:
    variables = [{"name": "SINK_BINDING_SELECTION_MODE", "value": value}]
    return {"name": workload_name, "env": [{"container": name, "envVars": variables}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, "exclusion"),
        ({"sinkBindingSelectionMode": "inclusion"}, "inclusion"),
        ({"workloads": [bound("eventing-webhook", "inclusion")]}, "inclusion"),
        ({"deployments": [bound("eventing-webhook", "inclusion")]}, "inclusion"),
        (
            {
                "workloads": [bound("eventing-webhook", "first")],
                "deployments": [bound("eventing-webhook", "second")],
            },
            "first",
        ),
        (
            {
                "sinkBindingSelectionMode": "field",
                "workloads": [bound("eventing-webhook", "override")],
            },
            "field",
        ),
        ({"workloads": [bound("other", "inclusion")]}, "exclusion"),
        (
            {"workloads": [bound("eventing-webhook", "x", workload_name="other")]},
            "exclusion",
        ),
    ],
)
def test_bindings_work_where_they_should(spec: Object, expected: str):
    """The field, then the overrides of the webhook's own container, then the default."""
    old = {"name": "SINK_BINDING_SELECTION_MODE", "value": "old"}
    manifest = workload(
        "eventing-webhook", container("eventing-webhook", env=[old]), container("sidecar")
    )

    result = one(manifest, spec)

    assert [expected] == [variable["value"] for variable in env(result)]
    assert [expected] == [variable["value"] for variable in env(result, 1)]
    assert env(one(workload("other"), spec)) == []


def adapter(*containers: Object, **spec: Any) -> Object:
    manifest = workload("pingsource-mt-adapter", *containers)
    manifest["spec"].update(spec)
    return manifest


def var(name: str, value: str) -> Object:
    return {"name": name, "value": value}


def field(name: str, **reference: str) -> Object:
    path = {"fieldPath": "metadata.namespace", **reference}
    return {"name": name, "valueFrom": {"fieldRef": path}}


def kept(wanted: Object, live: Object) -> Object:
    need = (DEPLOYMENTS, Key("knative-eventing", "pingsource-mt-adapter"))
    return one(wanted, live={need: live})


def test_only_a_release_with_a_ping_source_needs_to_look_at_the_target():
    """Everything else is rendered without a single read."""
    need = (DEPLOYMENTS, Key("here", "pingsource-mt-adapter"))

    assert [need] == needs([adapter()], eventing(namespace="here"))
    assert needs([workload("other")], eventing()) == []
    assert needs([adapter()], serving()) == []


def test_the_ping_source_keeps_its_number_of_pods():
    """Eventing's controller starts it."""
    assert kept(adapter(replicas=0), adapter(replicas=1))["spec"]["replicas"] == 1
    assert one(adapter(replicas=0))["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("wanted", "live", "expected"),
    [
        (
            [var("K_LOGGING_CONFIG", ""), var("POD", "new")],
            [var("POD", "old"), var("K_LOGGING_CONFIG", "live")],
            [var("K_LOGGING_CONFIG", "live"), var("POD", "new")],
        ),
        ([var("A", "1")], [], [var("A", "1")]),
        ([], [var("NAMESPACE", "x"), var("GONE", "y")], [var("NAMESPACE", "x")]),
        (
            [var("K_OBSERVABILITY_CONFIG", "{}")],
            [var("K_OBSERVABILITY_CONFIG", "live")],
            [var("K_OBSERVABILITY_CONFIG", "live")],
        ),
        (
            [var("K_LOGGING_CONFIG", ""), field("NAMESPACE")],
            [{"name": "K_LOGGING_CONFIG"}, field("NAMESPACE", apiVersion="v1")],
            [var("K_LOGGING_CONFIG", ""), field("NAMESPACE")],
        ),
        (
            [var("K_SINK_TIMEOUT", ""), field("NAMESPACE", fieldPath="spec.nodeName")],
            [field("K_SINK_TIMEOUT"), field("NAMESPACE", apiVersion="v1")],
            [field("K_SINK_TIMEOUT"), field("NAMESPACE", apiVersion="v1")],
        ),
    ],
)
def test_the_ping_source_keeps_what_the_controller_wrote(
    wanted: list[Object], live: list[Object], expected: list[Object]
):
    """Live values of known variables first, in the release's words where it says the same."""
    result = kept(adapter(container("d", env=wanted)), adapter(container("d", env=live)))

    assert expected == env(result)


def test_only_containers_that_are_on_both_sides_are_matched():
    """Fewer or more on either side are no problem."""
    secret = [var("NAMESPACE", "live")]
    wanted = adapter(container("new", env=[var("A", "1")]), container("both", env=[]))
    live = adapter(container("both", env=secret), container("gone", env=secret))

    result = kept(wanted, live)

    assert [found["name"] for found in pod(result)["containers"]] == ["new", "both"]
    assert [var("A", "1")] == env(result)
    assert secret == env(result, 1)


@pytest.mark.parametrize(
    ("config", "installed"),
    [
        ({}, False),
        ({"features": {"transport-encryption": "disabled"}}, False),
        ({"features": {"transport-encryption": "Permissive"}}, True),
        ({"features": {"transport-encryption": "strict"}}, True),
        ({"config-features": {"transport-encryption": "STRICT"}}, True),
        ({"features": {"other": "strict"}}, False),
        ({"features": {"transport-encryption": "strict"}, "config-features": {}}, False),
    ],
)
def test_certificates_are_installed_only_with_encryption(config: Object, installed: bool):
    """Without it there need be no cert-manager on the cluster."""
    objects = [
        thing("cert-manager.io/v1", "Certificate", "a", spec={}),
        thing("trust.cert-manager.io/v1alpha1", "Bundle", "b", spec={}),
        config_map("c"),
    ]

    result = rendered(objects, eventing({"config": config})).objects

    assert (["a", "b", "c"] if installed else ["c"]) == [o["metadata"]["name"] for o in result]


def test_an_internal_certificate_of_eventing_is_installed():
    """It needs no cert-manager; the Knative Operator leaves it out."""
    objects = [thing("networking.internal.knative.dev/v1alpha1", "Certificate", "a", spec={})]

    result = rendered(objects, eventing()).objects

    assert [found["metadata"]["name"] for found in result] == ["a"]


def test_serving_keeps_its_certificates():
    """Encryption of Eventing's transport is Eventing's."""
    objects = [thing("cert-manager.io/v1", "Certificate", "a", spec={})]

    assert len(rendered(objects, serving()).objects) == 1
