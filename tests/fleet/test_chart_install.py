"""Our operator as users install it: a pod with the chart's own rights, run as a real process."""

import base64
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from knfleet.api.core import CRDS, DEPLOYMENTS, NAMESPACES
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.install.operator_manifests import everything
from knfleet.install.operator_options import OperatorInstall
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, NotFound, ServerError
from knfleet.kube.yaml import dump_all
from knfleet.release.source.sources import MODULE_FOLDER, GoModuleSource
from testbed.clusters import Lend, Lent
from testbed.operators import HOME, Hub
from testbed.peers.ocm_grpc import grpc_files
from testbed.waiting import until
from tests.support.helm import CHART, Helm, helm_binary

__all__ = ["helm_binary"]

pytestmark = pytest.mark.full
NAMESPACE = "knative-operator"
WAIT = ("--wait", "--timeout", "60s")
REAL = {SERVINGS: "1.22.1", EVENTINGS: "1.22.2"}
SMALL: Object = {"version": "1.23.0", "ingress": {}}


@pytest.fixture
async def bare(lent: Lent) -> AsyncIterator[Hub]:
    """A clean cluster with namespaces for Knative, and nothing of ours."""
    async with Client(lent.connection) as client:
        for name in HOME.values():
            namespace: Object = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name},
            }
            await client.create(NAMESPACES, namespace)
        yield Hub(lent, client)


def values(folder: Path, releases: Path, **operator: Any) -> str:
    """A values file, with the release files that our image would have."""
    variable = {"name": "KO_DATA_PATH", "value": str(releases)}
    path = folder / "values.yaml"
    content = {"knative_operator": {"knative_operator": {"env": [variable]}, **operator}}
    path.write_text(dump_all([content]))
    return str(path)


async def is_created(hub: Hub) -> bool:
    """Create a small Serving; while CRDs are taken up, the API server turns some requests away."""
    try:
        await hub.create(SERVINGS, **SMALL)
    except (NotFound, ServerError):
        return False
    except AlreadyExists:
        return True
    return True


async def logs(hub: Hub) -> str:
    """What the operator said."""
    return await hub.kubectl("-n", NAMESPACE, "logs", "deployment/knative-operator")


async def test_the_chart_installs_upgrades_and_leaves(
    bare: Hub, helm_binary: Path, small_root: Path, tmp_path: Path
) -> None:
    """With exactly the chart's rights; what it leaves is found again by the next install."""
    helm = Helm(helm_binary, tmp_path, bare.lent.kubeconfig)
    release = ("operator", str(CHART), "-n", NAMESPACE, *WAIT)
    file = values(tmp_path, small_root)

    await helm.done("install", *release, "--create-namespace", "-f", file)
    await bare.create(SERVINGS, **SMALL)
    await bare.ready(SERVINGS, "1.23.0")
    assert "is forbidden" not in await logs(bare)

    provider = {"name": "p", "execConfig": {"command": "/credential-plugin/plugin-binary"}}
    plugin = {"name": "secretreader", "image": "example/secretreader:v0.1.0"}
    multicluster = {
        "enabled": True,
        "accessProvidersConfig": {"providers": [provider]},
        "plugins": [plugin | {"mountPath": "/credential-plugin"}],
    }
    file = values(tmp_path, small_root, multicluster=multicluster, kubernetes_min_version="v1.30.0")
    await helm.done("upgrade", *release, "-f", file)
    await bare.change(SERVINGS, config={"network": {"changed": "yes"}})
    await bare.ready(SERVINGS, "1.23.0")
    assert "is forbidden" not in await logs(bare)

    await helm.done("uninstall", "operator", "-n", NAMESPACE, *WAIT)
    assert await bare.get(SERVINGS)
    assert await bare.exists(CRDS, "knativeservings.operator.knative.dev")
    assert not await bare.exists(DEPLOYMENTS, "knative-operator", NAMESPACE)

    await helm.done("install", *release, "-f", file)
    await bare.delete(SERVINGS)
    await bare.gone(SERVINGS)
    assert not await bare.exists(DEPLOYMENTS, "controller")
    await helm.done("uninstall", "operator", "-n", NAMESPACE, *WAIT)


async def test_a_crd_of_somebody_else_is_left_to_them(
    bare: Hub, helm_binary: Path, small_root: Path, tmp_path: Path
) -> None:
    """Such as the ClusterProfile's, which people install before the operator."""
    name = "clusterprofiles.multicluster.x-k8s.io"
    [crd] = [each for each in everything(OperatorInstall()) if each["metadata"]["name"] == name]
    await bare.client.create(CRDS, crd)
    helm = Helm(helm_binary, tmp_path, bare.lent.kubeconfig)

    await helm.done(
        *("install", "operator", str(CHART), "-n", NAMESPACE, "--create-namespace"),
        *("-f", values(tmp_path, small_root), *WAIT),
    )

    found = await bare.client.get(CRDS, name)
    assert "meta.helm.sh/release-name" not in (found["metadata"].get("annotations") or {})
    await helm.done("uninstall", "operator", "-n", NAMESPACE, *WAIT)


MONITORING = GoModuleSource("github.com/prometheus-operator/prometheus-operator", "v0.94.1")
CONTENTS = """{{range .items}}{{.kind}}/{{.metadata.name}} {{end}}"""


async def test_everything_that_values_can_add_is_installed(
    bare: Hub, helm_binary: Path, small_root: Path, tmp_path: Path
) -> None:
    """The kinds of Prometheus are checked by its operator's own CRDs; the dashboard is ready."""
    module = await MONITORING.download()
    assert module.error == ""
    folder = Path(module.directory) / "example/prometheus-operator-crd"
    for kind in ("podmonitors", "prometheusrules"):
        file = folder / f"monitoring.coreos.com_{kind}.yaml"
        await bare.kubectl("apply", "--server-side", "-f", str(file))
    await bare.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    await bare.kubectl("create", "namespace", NAMESPACE)
    files = grpc_files(tmp_path / "tls")
    pair = (f"--cert={files.folder}/tls.crt", f"--key={files.folder}/tls.key")
    await bare.kubectl("create", "secret", "tls", "web", "-n", NAMESPACE, *pair)
    file = values(
        tmp_path,
        small_root,
        dashboard={"enabled": True, "tlsSecret": "web", "names": ["localhost"]},
        podDisruptionBudget={"enabled": True},
        podMonitor={"enabled": True, "labels": {"release": "prometheus"}},
        prometheusRule={"enabled": True},
        networkPolicy={"from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
    )
    helm = Helm(helm_binary, tmp_path, bare.lent.kubeconfig)

    await helm.done("install", "operator", str(CHART), "-n", NAMESPACE, "-f", file, *WAIT)

    kinds = "podmonitors,prometheusrules,poddisruptionbudgets,networkpolicies"
    found = await bare.kubectl("get", kinds, "-n", NAMESPACE, f"-ogo-template={CONTENTS}")
    assert sorted(found.split()) == [
        "NetworkPolicy/knative-operator",
        "NetworkPolicy/knfleet-dashboard",
        "PodDisruptionBudget/knative-operator",
        "PodMonitor/knative-operator",
        "PrometheusRule/knative-operator",
    ]
    said = await bare.kubectl("-n", NAMESPACE, "logs", "deployment/knfleet-dashboard")
    assert said.startswith("https://")
    assert "is forbidden" not in said
    await helm.done("uninstall", "operator", "-n", NAMESPACE, *WAIT)


@pytest.fixture
def theirs(bundle_root: Path, tmp_path: Path) -> Path:
    """The Knative Operator's chart, with the versions that its release process fills in."""
    module = Path(str(bundle_root).removesuffix(MODULE_FOLDER))
    chart = tmp_path / "theirs"
    shutil.copytree(module / "config" / "charts" / "knative-operator", chart)
    for name in ("Chart.yaml", "values.yaml"):
        file = chart / name
        text = re.sub(r"\{\{ *(tag|version) *\}\}", "1.22.0", file.read_text())
        file.chmod(0o644)
        file.write_text(text)
    return chart


async def test_a_release_of_the_knative_operators_chart_is_upgraded(
    bare: Hub, helm_binary: Path, small_root: Path, theirs: Path, tmp_path: Path
) -> None:
    """Same release, same values file, another image: the custom resources go on."""
    helm = Helm(helm_binary, tmp_path, bare.lent.kubeconfig)
    await helm.done("install", "operator", str(theirs), "-n", NAMESPACE, "--create-namespace")
    await until(lambda: is_created(bare), "the kind is served, and stays so")
    file = values(tmp_path, small_root, operator_webhook={"image": "example/webhook", "tag": "v1"})

    await helm.done("upgrade", "operator", str(CHART), "-n", NAMESPACE, "-f", file, *WAIT)

    await bare.ready(SERVINGS, "1.23.0")
    assert not await bare.exists(DEPLOYMENTS, "operator-webhook", NAMESPACE)
    crd = await bare.client.get(CRDS, "knativeservings.operator.knative.dev")
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    await bare.delete(SERVINGS)
    await bare.gone(SERVINGS)
    await helm.done("uninstall", "operator", "-n", NAMESPACE, *WAIT)


PATCH = """
spec:
  template:
    spec:
      containers:
      - name: knative-operator
        args:
        - --clusterprofile-provider-file=/etc/cluster-inventory/config.json
        volumeMounts:
        - name: credential-plugin
          mountPath: /credential-plugin
      volumes:
      - name: credential-plugin
        image:
          reference: example/knfleet-plugins:v1
          pullPolicy: IfNotPresent
"""


async def test_plain_manifests_and_the_documents_patch_work(
    bare: Hub, bundle_root: Path, tmp_path: Path
) -> None:
    """Apply, make the provider file, patch the Deployment: as the documents write it.

    The rights of the role are enough for whole releases of Knative, in and out.
    """
    (tmp_path / "all.yaml").write_text(dump_all(everything(OperatorInstall())))
    (tmp_path / "operator-patch.yaml").write_text(PATCH)
    provider = {"name": "p", "execConfig": {"command": "/credential-plugin/plugin-binary"}}
    (tmp_path / "access-providers.json").write_text(json.dumps({"providers": [provider]}))
    deployment = ("deployment/knative-operator", "-n", NAMESPACE)

    await bare.kubectl("apply", "--server-side", "-f", str(tmp_path / "all.yaml"))
    await bare.kubectl("set", "env", *deployment, f"KO_DATA_PATH={bundle_root}")
    await bare.kubectl(
        *("create", "configmap", "clusterprofile-provider-file", "-n", NAMESPACE),
        f"--from-file=config.json={tmp_path}/access-providers.json",
    )
    file = tmp_path / "operator-patch.yaml"
    await bare.kubectl("patch", *deployment, "--type=strategic", f"--patch-file={file}")
    interval = {"op": "add", "path": "/spec/template/spec/containers/0/args/-"}
    added = [interval | {"value": "--remote-deployments-poll-interval=30s"}]
    await bare.kubectl("patch", *deployment, "--type=json", f"--patch={json.dumps(added)}")
    await bare.kubectl("rollout", "status", *deployment, "--timeout=60s")

    await bare.create(SERVINGS, version=REAL[SERVINGS], ingress={"kourier": {"enabled": True}})
    await bare.create(EVENTINGS, version=REAL[EVENTINGS])
    for kind, version in REAL.items():
        await bare.ready(kind, version)
    assert "is forbidden" not in await logs(bare)
    for kind in REAL:
        await bare.delete(kind)
    for kind in REAL:
        await bare.gone(kind)
    assert "is forbidden" not in await logs(bare)


async def test_a_hub_without_rights_on_itself_installs_on_a_spoke(
    lend: Lend, helm_binary: Path, small_root: Path, tmp_path: Path
) -> None:
    """By the documents' steps: an image volume, a Secret beside the profile, no configuration."""
    hub_lent, spoke_lent = await lend(2)
    helm = Helm(helm_binary, tmp_path, hub_lent.kubeconfig)
    multicluster: Object = {
        "enabled": True,
        "accessProvidersConfig": {"providers": [SECRETREADER]},
        "plugins": [
            {
                "name": "secretreader",
                "image": "example/cluster-inventory-api/secretreader:v0.1.0",
                "mountPath": "/credential-plugin",
            }
        ],
        "secretNamespaces": ["fleet-system"],
    }
    async with Client(hub_lent.connection) as client, Client(spoke_lent.connection) as spoke:
        hub = Hub(hub_lent, client)
        for name in ("fleet-system", "knative-serving"):
            await hub.kubectl("create", "namespace", name)
        await helm.done(
            *("install", "operator", str(CHART), "-n", NAMESPACE, "--create-namespace", *WAIT),
            *("-f", values(tmp_path, small_root, multicluster=multicluster, local_installs=False)),
        )
        token = await administrator(Hub(spoke_lent, spoke))
        await hub.kubectl(
            *("create", "secret", "generic", "spoke-cluster-1-credentials"),
            *("-n", "fleet-system", f"--from-literal=token={token}"),
        )
        await offer(client, spoke_lent)

        reference = {"name": "spoke-cluster-1", "namespace": "fleet-system"}
        await hub.create(SERVINGS, clusterProfileRef=reference, **SMALL)
        await hub.ready(SERVINGS, "1.23.0")

        assert await spoke.get(DEPLOYMENTS, "controller", "knative-serving")
        assert not await hub.exists(DEPLOYMENTS, "controller")
        assert "is forbidden" not in await logs(hub)
        await hub.delete(SERVINGS)
        await hub.gone(SERVINGS)
        await helm.done("uninstall", "operator", "-n", NAMESPACE, *WAIT)


SECRETREADER: Object = {
    "name": "secretreader",
    "execConfig": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/credential-plugin/plugin-binary",
        "provideClusterInfo": True,
    },
}


async def administrator(spoke: Hub) -> str:
    """A token with all rights on a spoke."""
    account = "knative-operator-spoke"
    await spoke.kubectl("create", "serviceaccount", account, "-n", "kube-system")
    await spoke.kubectl(
        *("create", "clusterrolebinding", account, "--clusterrole=cluster-admin"),
        f"--serviceaccount=kube-system:{account}",
    )
    return (await spoke.kubectl("create", "token", account, "-n", "kube-system")).strip()


async def offer(hub: Client, spoke: Lent) -> None:
    """Register a spoke by hand, in the documents' spelling."""
    key = Key("fleet-system", "spoke-cluster-1")
    manifest: Object = {
        "apiVersion": PROFILES.api_version,
        "kind": PROFILES.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"displayName": "Spoke 1", "clusterManager": {"name": "knative-operator"}},
    }
    await hub.create(PROFILES, manifest)
    endpoint = spoke.connection.endpoint
    authority = base64.b64encode(endpoint.ca or b"").decode()
    cluster = {"server": endpoint.server, "certificateAuthorityData": authority}
    healthy = {
        "type": "ControlPlaneHealthy",
        "status": "True",
        "reason": "Manual",
        "message": "Status set manually",
        "lastTransitionTime": "2026-04-22T00:00:00Z",
    }
    providers = [{"name": "secretreader", "cluster": cluster}]
    status = {"conditions": [healthy], "accessProviders": providers}
    await hub.patch(PROFILES, key, {"status": status}, subresource="status")
