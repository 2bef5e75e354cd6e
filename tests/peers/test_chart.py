"""The Helm chart: the same objects as `knfleet manifests`, from the Knative Operator's values."""

import json
from pathlib import Path
from typing import Any

import pytest

from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import part
from knfleet.install.chart import DASHBOARD_KINDS, generated
from knfleet.install.chart_schema import SCHEMA
from knfleet.install.operator_manifests import everything
from knfleet.install.operator_options import BUILT_IN, OperatorInstall, PluginImage
from knfleet.kube.yaml import dump_all, load_all
from knfleet.web.server.authorization import SHOWN_KINDS
from tests.support.helm import CHART, Helm, helm, helm_binary

__all__ = ["helm", "helm_binary"]

PROVIDERS = {
    "providers": [
        {
            "name": "secretreader",
            "execConfig": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "/credential-plugin/plugin-binary",
                "provideClusterInfo": True,
            },
        }
    ]
}
PLUGIN = {
    "name": "secretreader",
    "image": "example/secretreader:v1",
    "mountPath": "/credential-plugin",
}
INTERVAL = "knative_operator.multicluster.remoteDeploymentsPollInterval"
KEEP = "helm.sh/resource-policy"


def written(folder: Path, operator: Any, **others: Any) -> str:
    """A values file."""
    path = folder / "values.yaml"
    path.write_text(dump_all([{"knative_operator": operator, **others}]))
    return str(path)


def compared(objects: list[Object]) -> dict[str, Object]:
    """Objects by kind and name, without what only Helm looks at."""
    found: dict[str, Object] = {}
    for each in objects:
        meta, data = each["metadata"], part(each, "data")
        part(meta, "annotations").pop(KEEP, None)
        if not part(meta, "annotations"):
            meta.pop("annotations", None)
        if "config.json" in data:
            data["config.json"] = json.loads(data["config.json"])
        found[f"{each['kind']} {meta.get('namespace', '')}/{meta['name']}"] = each
    return found


def test_the_generated_files_are_current() -> None:
    """`make chart` writes them."""
    there = {name: (CHART / name).read_text() for name in generated()}

    assert generated() == there


def test_the_chart_knows_our_own_plugins() -> None:
    """The list in the template is the one in the code."""
    quoted = " ".join(f'"{name}"' for name in BUILT_IN)

    assert f"list {quoted}" in (CHART / "templates" / "_helpers.tpl").read_text()


async def test_the_chart_without_values_is_what_the_command_prints(helm: Helm) -> None:
    """Object by object; only the namespace is made by Helm itself."""
    wanted = everything(OperatorInstall())[1:]

    assert compared(wanted) == compared(await helm.template("-n", "knative-operator"))


async def test_values_for_many_clusters_make_what_the_options_make(
    helm: Helm, tmp_path: Path
) -> None:
    """Providers, plugins, interval, version, image, narrow rights and credentials elsewhere."""
    values = {
        "multicluster": {
            "enabled": True, "accessProvidersConfig": PROVIDERS, "plugins": [PLUGIN],
            "remoteDeploymentsPollInterval": "30s", "secretNamespaces": ["fleet-system"],
            "checkProfileUse": True,
        },
        "local_installs": False,
        "kubernetes_min_version": "v1.30.0",
        "knative_operator": {"image": "example/knfleet", "tag": "v2"},
    }  # fmt: skip
    install = OperatorInstall(
        namespace="hub",
        image="example/knfleet:v2",
        local=False,
        multicluster=True,
        providers=json.dumps(PROVIDERS).encode(),
        plugins=(PluginImage(*PLUGIN.values()),),
        poll_interval="30s",
        minimum_kubernetes="v1.30.0",
        secret_namespaces=("fleet-system",),
        check_profile_use=True,
    )

    found = await helm.template("-n", "hub", "-f", written(tmp_path, values))

    assert compared(everything(install)[1:]) == compared(found)


async def test_the_interval_may_be_left_out(helm: Helm) -> None:
    """An empty value makes no flag, and no list of flags either way breaks the pod."""
    found = await helm.template("--set", f"{INTERVAL}=")

    deployment = next(each for each in found if each["kind"] == "Deployment")
    assert not deployment["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("enabled", [True, False])
async def test_several_replicas_share_spokes_if_there_are_any(
    helm: Helm, tmp_path: Path, enabled: bool
) -> None:
    """Without spokes the others are ready to take over."""
    many = {"enabled": enabled, "accessProvidersConfig": PROVIDERS, "plugins": [PLUGIN]}
    found = await helm.template("-f", written(tmp_path, {"multicluster": {**many, "replicas": 3}}))

    deployment = next(each for each in found if each["kind"] == "Deployment")
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert deployment["spec"]["replicas"] == 3
    assert ("--share-spokes" in args) is enabled


UPSTREAM: Object = {
    "multicluster": {"enabled": False, "accessProvidersConfig": {}, "plugins": []},
    "knative_operator": {
        "image": "example/operator",
        "tag": "v1.22.1",
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "annotations": {"who": "me"},
        "podAnnotations": {"why": "so"},
        "securityContext": {"fsGroup": 7},
        "containerSecurityContext": {"readOnlyRootFilesystem": False},
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "2"}},
    },
    "operator_webhook": {"image": "example/webhook", "tag": "v1", "resources": {}},
    "kubernetes_min_version": "v1.31.0",
}


async def test_every_value_of_the_knative_operators_chart_is_taken(
    helm: Helm, tmp_path: Path
) -> None:
    """With its meaning there; of the webhook nothing is made."""
    extra = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}}

    found = await helm.template("-f", written(tmp_path, UPSTREAM, extraObjects=[extra]))

    kinds = [f"{each['kind']}/{each['metadata']['name']}" for each in found]
    assert "ConfigMap/operator-x" in kinds
    assert not [each for each in kinds if "webhook" in each]
    deployment = next(each for each in found if each["kind"] == "Deployment")
    meta, pod = (deployment["spec"]["template"][name] for name in ("metadata", "spec"))
    container = pod["containers"][0]
    assert deployment["metadata"]["annotations"] == {"who": "me"}
    assert meta["annotations"] == {"why": "so"}
    assert pod["affinity"] == {"nodeAffinity": {}}
    assert pod["tolerations"] == [{"key": "a", "operator": "Exists"}]
    assert pod["securityContext"] == {"fsGroup": 7, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["image"] == "example/operator:v1.22.1"
    assert container["securityContext"]["readOnlyRootFilesystem"] is False
    assert container["securityContext"]["runAsNonRoot"] is True
    assert container["resources"]["limits"]["cpu"] == "2"
    assert {"name": "KUBERNETES_MIN_VERSION", "value": "v1.31.0"} in container["env"]


def command(text: str) -> dict[str, Any]:
    """A provider file with one command."""
    return {"providers": [{"name": "p", "execConfig": {"command": text}}]}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"accessProvidersConfig": {}},
            "accessProvidersConfig is empty; list the",
        ),
        (
            {"accessProvidersConfig": PROVIDERS, "plugins": [PLUGIN | {"mountPath": "plugin"}]},
            'plugins[0].mountPath must be an absolute path, got "plugin"',
        ),
        (
            {"accessProvidersConfig": PROVIDERS},
            'provider "secretreader": command "/credential-plugin/plugin-binary" is not under any',
        ),
        (
            {"accessProvidersConfig": command("/credential-plugin"), "plugins": [PLUGIN]},
            "is not under any plugins[].mountPath [/credential-plugin]",
        ),
        (
            {"accessProvidersConfig": command("/credential-plugin/../x"), "plugins": [PLUGIN]},
            'command "/x" is not under any',
        ),
        (
            {"accessProvidersConfig": command("/credential-pluginx/x"), "plugins": [PLUGIN]},
            "is not under any",
        ),
    ],
)
async def test_values_that_make_no_sense_fail_with_a_reason(
    helm: Helm, tmp_path: Path, values: Any, words: str
) -> None:
    """Before anything is installed."""
    file = written(tmp_path, {"multicluster": {"enabled": True, **values}})

    answer = await helm.run("template", "operator", str(CHART), "-f", file)

    assert answer.code == 1
    assert words in answer.complaint


def settings(where: str, value: Any) -> Any:
    """Values with one setting below `knative_operator`."""
    for name in reversed(where.split(".")):
        value = {name: value}
    return value


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        ("multiclustr.enabled", True, "additional properties 'multiclustr' not allowed"),
        ("multicluster.replicas", "two", "got string, want integer"),
        ("multicluster.replicas", 0, "minimum: got 0, want 1"),
        ("multicluster.remoteDeploymentsPollInterval", "soon", "'soon' does not match pattern"),
        ("multicluster.plugins", [{"image": "a"}], "missing property 'name'"),
        ("knative_operator.tolerations", {}, "got object, want null or array"),
        ("podDisruptionBudget.maxUnavailable", "some", "'some' does not match pattern"),
        ("dashboard.enabled", "yes", "got string, want boolean"),
    ],
)
async def test_values_of_another_shape_are_refused_by_the_schema(
    helm: Helm, tmp_path: Path, where: str, value: Any, words: str
) -> None:
    """With the path of the value."""
    answer = await helm.run(
        "template", "operator", str(CHART), "-f", written(tmp_path, settings(where, value))
    )

    assert answer.code == 1
    assert words in answer.complaint
    assert where.split(".", maxsplit=1)[0] in answer.complaint


def test_the_schema_knows_every_value_and_no_others() -> None:
    """What it describes below `knative_operator` is what the file of values lists there."""
    (values,) = load_all((CHART / "values.yaml").read_text())
    optional = {"extraObjects"}

    def compare(found: Any, schema: Any, at: str) -> None:
        known = schema["properties"]
        assert found.keys() == known.keys() - optional, at
        for name, value in found.items():
            if isinstance(value, dict) and "properties" in known[name] and value:
                compare(value, known[name], f"{at}.{name}")

    compare(values["knative_operator"], SCHEMA["properties"]["knative_operator"], "")


def test_the_dashboard_may_read_what_it_shows() -> None:
    """The chart cannot import it, so the lists are compared here."""
    assert set(DASHBOARD_KINDS) == set(SHOWN_KINDS)


async def test_a_dashboard_needs_a_certificate_or_a_proxy(helm: Helm, tmp_path: Path) -> None:
    """One of them, not both."""
    for more in ({}, {"tlsSecret": "web", "insecureHttp": True}):
        values = {"dashboard": {"enabled": True, **more}}
        answer = await helm.run("template", "operator", str(CHART), "-f", written(tmp_path, values))

        assert answer.code == 1
        assert "name the Secret with its certificate in tlsSecret" in answer.complaint


async def test_the_dashboard_has_variables_of_its_own(helm: Helm, tmp_path: Path) -> None:
    """Those of the operator may hold credentials of other clusters."""
    values = {
        "knative_operator": {"env": [{"name": "TOKEN", "value": "of-the-operator"}]},
        "dashboard": {
            "enabled": True,
            "insecureHttp": True,
            "env": [{"name": "KO_DATA_PATH", "value": "/releases"}],
        },
    }

    made = compared(await helm.template("-f", written(tmp_path, values)))

    deployment = made["Deployment default/knfleet-dashboard"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each.get("value") for each in container["env"]} == {
        "POD_IP": None,
        "XDG_CACHE_HOME": "/var/cache/knfleet",
        "KO_DATA_PATH": "/releases",
    }


async def test_a_plugin_of_our_own_needs_no_volume(helm: Helm, tmp_path: Path) -> None:
    """It is in the image."""
    values = {"enabled": True, "accessProvidersConfig": command("secretreader-plugin")}

    assert await helm.template("-f", written(tmp_path, {"multicluster": values}))


async def test_helm_has_nothing_to_say_about_the_chart(helm: Helm) -> None:
    """Not even a warning."""
    said = await helm.done("lint", "--strict", str(CHART))

    assert "[WARNING]" not in said
    assert "[ERROR]" not in said
