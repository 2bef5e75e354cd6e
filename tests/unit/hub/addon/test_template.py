"""Templates of add-ons: variables, namespaces, and what is added to workloads."""

import base64
from typing import Any

import pytest

from knfleet.api.addon.addondeploymentconfig import AddOnDeploymentConfig, ImageMirror
from knfleet.api.addon.addontemplate import AddOnTemplate
from knfleet.api.addon.names import DEFAULT_NAMESPACE, IMAGE_REGISTRIES
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.hub.addon.delivery.decorators import mirrored
from knfleet.hub.addon.delivery.deployment_settings import SettingsError, settings_of
from knfleet.hub.addon.delivery.template import RenderedAddOn, TemplateError, render
from tests.support import addons


def template(*manifests: Object, **spec: Any) -> AddOnTemplate:
    """A template of add-on `hello`."""
    return decode(addons.template("hello", *manifests, **spec), AddOnTemplate)


def config(**spec: Any) -> AddOnDeploymentConfig:
    """A deployment configuration, as the API server stores it."""
    spec.setdefault("agentInstallNamespace", DEFAULT_NAMESPACE)
    return decode(addons.deployment_config("config", **spec), AddOnDeploymentConfig)


def rendered(
    made: AddOnTemplate, *configs: AddOnDeploymentConfig, **annotations: str
) -> RenderedAddOn:
    """The objects for cluster `c1`."""
    return render(made, settings_of(configs, annotations), "c1", "hello")


def pod(manifest: Object) -> Object:
    """The pod of a workload."""
    return manifest["spec"]["template"]["spec"]


def test_variables_are_replaced_in_names_and_values():
    manifest = addons.config_map("{{CLUSTER_NAME}}-a", **{"{{KEY}}": "{{VALUE}}{{VALUE}}"})
    variables = [{"name": "KEY", "value": "k"}, {"name": "VALUE", "value": 'quote " and \\'}]

    (made,) = rendered(template(manifest), config(customizedVariables=variables)).manifests

    assert made["metadata"]["name"] == "c1-a"
    assert made["data"] == {"k": 'quote " and \\quote " and \\'}


def test_a_later_configuration_wins_and_built_in_variables_cannot_be_set():
    manifest = addons.config_map("a", x="{{X}}", cluster="{{CLUSTER_NAME}}")
    first = config(customizedVariables=[{"name": "X", "value": "1"}])
    second = config(
        customizedVariables=[{"name": "X", "value": "2"}, {"name": "CLUSTER_NAME", "value": "no"}]
    )

    (made,) = rendered(template(manifest), first, second).manifests

    assert made["data"] == {"x": "2", "cluster": "c1"}


def test_an_unknown_variable_is_named_with_what_helps():
    with pytest.raises(TemplateError, match=r"AddOnTemplate hello: ConfigMap a uses \{\{NOPE\}\}"):
        rendered(template(addons.config_map("a", x="{{NOPE}}")))


def test_braces_of_other_programs_stay_as_they_are():
    text = "{{ $labels.instance }} {{- if .Values.x }} {{.Name}}"

    (made,) = rendered(template(addons.config_map("a", x=text))).manifests

    assert made["data"] == {"x": text}


BINDING: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "b"},
    "subjects": [
        {"kind": "ServiceAccount", "name": "a", "namespace": "own"},
        {"kind": "Group", "name": "g", "apiGroup": "rbac.authorization.k8s.io"},
    ],
}
NAMESPACE: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}}


@pytest.mark.parametrize(
    ("configs", "namespace", "missing"),
    [
        ([], "own", ()),
        ([config(agentInstallNamespace="")], "own", ()),
        ([config()], DEFAULT_NAMESPACE, ()),
        ([config(agentInstallNamespace="there")], "there", ()),
    ],
    ids=["no-config", "explicitly-empty", "default", "chosen"],
)
def test_the_install_namespace_replaces_those_of_the_template_unless_it_is_empty(
    configs: list[AddOnDeploymentConfig], namespace: str, missing: tuple[str, ...]
):
    made = rendered(template(addons.deployment("a", "own"), BINDING, NAMESPACE), *configs)

    deployment, binding, written = made.manifests
    assert made.namespace == deployment["metadata"]["namespace"] == namespace
    assert written["metadata"]["name"] == namespace
    assert [each.get("namespace") for each in binding["subjects"]] == [namespace, None]
    assert made.missing_namespaces == missing
    assert {"name": "INSTALL_NAMESPACE", "value": namespace} in (
        pod(deployment)["containers"][0]["env"]
    )


def test_objects_without_a_namespace_go_where_the_agent_runs_and_missing_ones_are_named():
    manifest = addons.config_map("a")
    del manifest["metadata"]["namespace"]
    custom: Object = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}

    made = rendered(template(addons.deployment("d", "own"), manifest, custom))

    assert [each["metadata"].get("namespace") for each in made.manifests] == ["own", "own", None]
    assert made.missing_namespaces == ("own",)


def test_tolerations_count_without_a_node_selector():
    tolerations = [{"key": "k", "operator": "Exists"}]

    (made,) = rendered(
        template(addons.deployment("a")), config(nodePlacement={"tolerations": tolerations})
    ).manifests

    assert pod(made)["tolerations"] == tolerations
    assert "nodeSelector" not in pod(made)


@pytest.mark.parametrize(
    ("source", "mirror", "image"),
    [
        ("quay.io/example", "mirror.local/x", "mirror.local/x/agent:v1"),
        ("quay.io/example/", "mirror.local/x/", "mirror.local/x/agent:v1"),
        ("", "mirror.local", "mirror.local/agent:v1"),
        ("docker.io", "mirror.local", "quay.io/example/agent:v1"),
    ],
)
def test_images_come_from_mirrors(source: str, mirror: str, image: str):
    found = mirrored("quay.io/example/agent:v1", (ImageMirror(source=source, mirror=mirror),))

    assert found == image


def test_mirrors_of_a_configuration_win_over_those_of_the_cluster():
    made = template(addons.deployment("a", initContainers=[{"name": "i", "image": "quay.io/i:1"}]))
    annotation = '{"registries":[{"source":"quay.io","mirror":"by-cluster"}]}'
    registries = [{"source": "quay.io", "mirror": "by-config"}]

    (by_cluster,) = rendered(made, **{IMAGE_REGISTRIES: annotation}).manifests
    (by_config,) = rendered(
        made, config(registries=registries), **{IMAGE_REGISTRIES: annotation}
    ).manifests

    assert pod(by_cluster)["containers"][0]["image"] == "by-cluster/example/agent:v1"
    assert pod(by_config)["containers"][0]["image"] == "by-config/example/agent:v1"
    assert pod(by_config)["initContainers"][0]["image"] == "by-config/i:1"


def test_a_proxy_is_given_by_variables_and_a_bundle_of_certificates():
    bundle = base64.b64encode(b"PEM").decode()
    proxy = {"httpsProxy": "https://p", "noProxy": "local", "caBundle": bundle}

    deployment, ca = rendered(
        template(addons.deployment("a", "own")),
        config(proxyConfig=proxy, agentInstallNamespace=""),
    ).manifests

    environment = {each["name"]: each["value"] for each in pod(deployment)["containers"][0]["env"]}
    assert environment["HTTPS_PROXY"] == environment["https_proxy"] == "https://p"
    assert environment["CA_BUNDLE_FILE_PATH"] == "/managed/proxy-ca/ca-bundle.crt"
    assert ca["metadata"] == {"name": "hello-proxy-ca", "namespace": "own"}
    assert ca["data"] == {"ca-bundle.crt": "PEM"}


def test_the_last_resource_requirement_for_a_container_counts():
    requirements = [
        {"containerID": "*:*:*", "resources": {"limits": {"memory": "1Gi"}}},
        {"containerID": "deployments:a:agent", "resources": {"limits": {"memory": "2Gi"}}},
        {"containerID": "daemonsets:a:agent", "resources": {"limits": {"memory": "3Gi"}}},
    ]

    first, second = rendered(
        template(addons.deployment("a"), addons.deployment("b")),
        config(resourceRequirements=requirements),
    ).manifests

    assert pod(first)["containers"][0]["resources"] == {"limits": {"memory": "2Gi"}}
    assert pod(second)["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}


def test_registrations_are_mounted_into_workloads():
    registration = [
        {"type": "KubeClient"},
        {
            "type": "CustomSigner",
            "customSigner": {"signerName": "example.com/signer", "signingCA": {"name": "ca"}},
        },
    ]

    (made,) = rendered(template(addons.deployment("a"), registration=registration)).manifests

    assert pod(made)["volumes"] == [
        {"name": "hub-kubeconfig", "secret": {"secretName": "hello-hub-kubeconfig"}},
        {
            "name": "cert-example-com-signer",
            "secret": {"secretName": "hello-example.com-signer-client-cert"},
        },
    ]
    container = pod(made)["containers"][0]
    assert container["volumeMounts"] == [
        {"name": "hub-kubeconfig", "mountPath": "/managed/hub-kubeconfig"},
        {"name": "cert-example-com-signer", "mountPath": "/managed/example.com-signer"},
    ]
    assert container["env"][0] == {
        "name": "HUB_KUBECONFIG",
        "value": "/managed/hub-kubeconfig/kubeconfig",
    }


def test_what_cannot_be_read_is_named():
    with pytest.raises(SettingsError, match="image-registries of the ManagedCluster"):
        settings_of([], {IMAGE_REGISTRIES: "no json"})
    with pytest.raises(SettingsError, match=r"default/config: spec\.proxyConfig\.caBundle"):
        settings_of([config(proxyConfig={"caBundle": "%"})], {})
