"""Custom resources as users write them."""

import msgspec
import pytest

from knfleet.api.knative.ingress import Ingress
from knfleet.api.knative.resources import KnativeEventing, KnativeServing
from knfleet.api.meta import Key, Object
from knfleet.api.schema import DecodeError, decode


def serving(spec: Object) -> Object:
    return {
        "apiVersion": "operator.knative.dev/v1beta1",
        "kind": "KnativeServing",
        "metadata": {"name": "knative", "namespace": "knative-serving", "generation": 3},
        "spec": spec,
    }


def test_every_field_is_read_by_its_json_name():
    """The names are upstream's, dashes, capitals and underscores included."""
    cr = decode(
        serving(
            {
                "version": "1.23",
                "manifests": [{"URL": "a/${VERSION}"}],
                "additionalManifests": [{"URL": "b"}],
                "config": {"network": {"ingress-class": "x"}},
                "registry": {
                    "default": "r/${NAME}",
                    "override": {"activator": "i"},
                    "imagePullSecrets": [{"name": "s"}, {}],
                },
                "high-availability": {"replicas": 2},
                "controller-custom-certs": {"type": "Secret", "name": "c"},
                "ingress": {
                    "istio": {
                        "enabled": True,
                        "knative-ingress-gateway": {
                            "selector": {"a": "b"},
                            "servers": [{"port": {"number": 80, "target_port": 81}}],
                        },
                        "knative-local-gateway": {"selector": {"c": "d"}},
                    },
                    "kourier": {
                        "enabled": True,
                        "service-type": "NodePort",
                        "service-load-balancer-ip": "1.2.3.4",
                        "http-port": 1,
                        "https-port": 2,
                        "bootstrap-configmap": "boot",
                    },
                    "gateway-api": {"enabled": True},
                },
                "security": {"securityGuard": {"enabled": True}},
                "podDisruptionBudgets": [{"name": "p", "minAvailable": "80%"}],
                "workloads": [
                    {
                        "name": "w",
                        "hostNetwork": True,
                        "env": [{"container": "c", "envVars": [{"name": "A", "value": "1"}]}],
                        "readinessProbes": [{"container": "c", "periodSeconds": 3}],
                        "resources": [{"container": "c", "limits": {"cpu": 1, "memory": "1Gi"}}],
                    }
                ],
                "clusterProfileRef": {"name": "s1", "namespace": "fleet"},
            }
        ),
        KnativeServing,
    )

    spec = cr.spec
    assert Key("knative-serving", "knative") == cr.key
    assert [spec.manifests[0].url, spec.additional_manifests[0].url] == ["a/${VERSION}", "b"]
    assert spec.high_availability is not None
    assert spec.high_availability.replicas == 2
    assert spec.controller_custom_certs is not None
    assert spec.controller_custom_certs.type == "Secret"
    assert spec.ingress_plugins.enabled() == ["istio", "kourier", "gateway-api"]
    istio = spec.ingress_plugins.istio
    assert istio.ingress_gateway is not None
    assert istio.ingress_gateway.servers[0].port is not None
    assert istio.ingress_gateway.servers[0].port.target_port == 81
    assert istio.local_gateway is not None
    kourier = spec.ingress_plugins.kourier
    assert (kourier.http_port, kourier.https_port, kourier.bootstrap_configmap) == (1, 2, "boot")
    assert spec.guarded
    assert spec.pod_disruption_budgets[0].min_available == "80%"
    assert spec.workloads[0].resources[0].limits == {"cpu": 1, "memory": "1Gi"}
    assert [secret.name for secret in spec.registry.image_pull_secrets] == ["s", ""]


def test_an_absent_ingress_means_istio_and_an_empty_one_means_none():
    """Upstream's default."""
    absent = decode(serving({}), KnativeServing)
    empty = decode(serving({"ingress": {}}), KnativeServing)
    null = decode(serving({"ingress": None}), KnativeServing)

    assert absent.spec.ingress_plugins.enabled() == ["istio"]
    assert null.spec.ingress_plugins.enabled() == ["istio"]
    assert Ingress() == empty.spec.ingress_plugins


def test_nulls_and_fields_of_newer_versions_are_passed_over():
    """An API server prunes them; a file on disk may hold them."""
    cr = decode(
        serving({"services": None, "workloads": None, "tomorrow": {"x": 1}, "registry": None}),
        KnativeServing,
    )

    assert cr.spec == KnativeServing().spec


def test_a_source_need_not_name_all_six():
    """Upstream's CRD demands all of them."""
    cr = decode(
        {"metadata": {"name": "e"}, "spec": {"source": {"kafka": {"enabled": True}}}},
        KnativeEventing,
    )

    assert cr.spec.source.enabled() == ["kafka"]


def test_namespace_configuration_is_accepted_beside_namespace():
    """Documents say the one, upstream's code the other."""
    cr = decode(
        serving(
            {
                "namespaceConfiguration": {"labels": {"a": "1", "b": "1"}},
                "namespace": {"labels": {"b": "2"}, "annotations": {"c": "3"}},
            }
        ),
        KnativeServing,
    )

    assert cr.spec.namespace_settings.labels == {"a": "1", "b": "2"}
    assert cr.spec.namespace_settings.annotations == {"c": "3"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"high-availability": {"replicas": 100000000000}}, "spec.high-availability.replicas"),
        ({"workloads": [{"name": "a"}, {"replicas": 1}]}, "spec.workloads[1]"),
        ({"config": {"network": {"a": 1}}}, "spec.config"),
        (
            {
                "workloads": [
                    {"name": "a", "livenessProbes": [{"container": "b", "periodSeconds": -1}]}
                ]
            },
            "spec.workloads[0].livenessProbes[0].periodSeconds",
        ),
        ({"ingress": {"kourier": {"http-port": 70000}}}, "spec.ingress.kourier.http-port"),
    ],
)
def test_what_cannot_be_read_is_named_with_object_and_field(spec: Object, field: str):
    """The message can stand in a condition as it is."""
    with pytest.raises(DecodeError) as caught:
        decode(serving(spec), KnativeServing)

    assert str(caught.value).startswith(f"KnativeServing knative-serving/knative: {field}")


def test_a_manifest_without_metadata_still_gives_a_message():
    """Reading never fails with another error than ours."""
    with pytest.raises(DecodeError, match="KnativeServing"):
        decode({"metadata": "x"}, KnativeServing)


def test_config_is_found_by_full_name_first_and_never_by_cutting_other_prefixes():
    """Upstream cuts seven characters off any name, and crashes on shorter ones."""
    cr = decode(
        serving({"config": {"config-a": {"k": "full"}, "a": {"k": "short"}, "": {"k": "none"}}}),
        KnativeServing,
    )

    assert cr.spec.config_map("config-a") == {"k": "full"}
    assert cr.spec.config_map("a") == {"k": "short"}
    assert cr.spec.config_map("kourier") == {}


def test_both_kinds_have_a_schema():
    """CRDs are generated from the types."""
    _, components = msgspec.json.schema_components([KnativeServing, KnativeEventing])

    properties = components["ServingSpec"]["properties"]
    assert {"high-availability", "controller-custom-certs", "podDisruptionBudgets"} <= set(
        properties
    )
    assert all("description" in schema for schema in properties.values())


def test_parts_of_pods_are_handed_on_as_they_are():
    """The API server checks them; a CRD of a newer version may let more through than ours."""
    affinity = {"nodeAffinity": {}, "moonAffinity": {"phase": "full"}}
    tolerations = [{"key": "a", "newer": {"b": 1}}]
    override = {"name": "activator", "affinity": affinity, "tolerations": tolerations}
    manifest = {"metadata": {"name": "a"}, "spec": {"workloads": [override]}}

    (read,) = decode(manifest, KnativeServing).spec.workloads

    assert read.affinity == affinity
    assert read.tolerations == tolerations
