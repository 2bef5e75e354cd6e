"""Our operator as users install it: a pod with the chart's own rights, run as a real process."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from knfleet.api.core import CRDS, DEPLOYMENTS, NAMESPACES
from knfleet.api.knative import EVENTINGS, SERVINGS
from knfleet.api.meta import Object
from knfleet.kube.client import Client
from knfleet.kube.yaml import dump_all
from knfleet.packaging.install import Install
from knfleet.packaging.objects import everything
from tests.fleet.operators import HOME, Hub
from tests.ground import Lent
from tests.helm import CHART, Helm, helm_binary

__all__ = ["helm_binary"]

NAMESPACE = "knative-operator"
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


async def logs(hub: Hub) -> str:
    """What the operator said."""
    return await hub.kubectl("-n", NAMESPACE, "logs", "deployment/knative-operator")


async def test_the_chart_installs_upgrades_and_leaves(
    bare: Hub, helm_binary: Path, small_root: Path, tmp_path: Path
) -> None:
    """With exactly the chart's rights; what it leaves is found again by the next install."""
    helm = Helm(helm_binary, tmp_path, bare.lent.kubeconfig)
    release = ("operator", str(CHART), "-n", NAMESPACE, "--wait", "--timeout", "60s")
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

    await helm.done("uninstall", "operator", "-n", NAMESPACE, "--wait", "--timeout", "60s")
    assert await bare.get(SERVINGS)
    assert await bare.exists(CRDS, "knativeservings.operator.knative.dev")
    assert not await bare.exists(DEPLOYMENTS, "knative-operator", NAMESPACE)

    await helm.done("install", *release, "-f", file)
    await bare.delete(SERVINGS)
    await bare.gone(SERVINGS)
    assert not await bare.exists(DEPLOYMENTS, "controller")
    await helm.done("uninstall", "operator", "-n", NAMESPACE, "--wait", "--timeout", "60s")


async def test_a_crd_of_somebody_else_is_left_to_them(
    bare: Hub, helm_binary: Path, small_root: Path, tmp_path: Path
) -> None:
    """Such as the ClusterProfile's, which people install before the operator."""
    name = "clusterprofiles.multicluster.x-k8s.io"
    [crd] = [each for each in everything(Install()) if each["metadata"]["name"] == name]
    await bare.client.create(CRDS, crd)
    helm = Helm(helm_binary, tmp_path, bare.lent.kubeconfig)

    await helm.done(
        *("install", "operator", str(CHART), "-n", NAMESPACE, "--create-namespace"),
        *("-f", values(tmp_path, small_root), "--wait", "--timeout", "60s"),
    )

    found = await bare.client.get(CRDS, name)
    assert "meta.helm.sh/release-name" not in (found["metadata"].get("annotations") or {})
    await helm.done("uninstall", "operator", "-n", NAMESPACE, "--wait", "--timeout", "60s")


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
    (tmp_path / "all.yaml").write_text(dump_all(everything(Install())))
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
