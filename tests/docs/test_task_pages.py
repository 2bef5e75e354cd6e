"""The pages by task, followed on a hub and a spoke that they share.

Each page leaves its clusters as it found them, or as the next one wants them.
"""

import re
import shutil
from pathlib import Path

import pytest

from knfleet.api.knative.resources import SERVINGS
from knfleet.dev.dev_folder import DevFolder
from knfleet.kube.auth.kubeconfig import load
from knfleet.kube.client.verbs import Client
from testbed.clusters import Lent
from testbed.operators import Hub
from testbed.peers.goproject import go_project
from testbed.peers.operator import running, silenced
from testbed.peers.samples import serving
from testbed.peers.surroundings import prepare
from testbed.printed import Printed
from tests.docs.pages import DOCS, ROOT
from tests.support.documents import Reader

pytestmark = [pytest.mark.xdist_group("docs"), pytest.mark.full]

FLEET = """
knfleet init --wait --context hub --image "$IMAGE:$TAG" --releases "$RELEASES" > joined.txt
$(sed -n 's/<cluster_name>/cluster1/; s/^ *knfleet join/knfleet join/p' joined.txt) \\
  --context spoke1 --image "$IMAGE:$TAG"
knfleet accept --clusters cluster1 --wait --context hub
"""
"""What the page about fleets does, in short."""
SMOKE_TEST = """
CTX_HUB_CLUSTER=hub CTX_MANAGED_CLUSTER=spoke1 MANAGED_CLUSTER_NAME=cluster1
cat > manifest-work.yaml <<EOF
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata:
  name: mw-01
  namespace: ${MANAGED_CLUSTER_NAME}
spec:
  workload:
    manifests:
      - apiVersion: v1
        kind: Pod
        metadata:
          name: hello
          namespace: default
        spec:
          containers:
            - name: hello
              image: busybox
              command: ["sh", "-c", 'echo "Hello, Kubernetes!" && sleep 3600']
          restartPolicy: OnFailure
EOF
kubectl apply -f manifest-work.yaml --context ${CTX_HUB_CLUSTER}
kubectl -n ${MANAGED_CLUSTER_NAME} wait manifestwork/mw-01 --for=condition=Applied --timeout=60s \\
  --context ${CTX_HUB_CLUSTER}
kubectl -n ${MANAGED_CLUSTER_NAME} get manifestwork/mw-01 --context ${CTX_HUB_CLUSTER} -o yaml
kubectl -n default wait pod/hello --for=condition=Ready --timeout=60s \\
  --context ${CTX_MANAGED_CLUSTER}
kubectl -n default get pod --context ${CTX_MANAGED_CLUSTER} > pods.txt
kubectl -n ${MANAGED_CLUSTER_NAME} delete manifestwork/mw-01 --context ${CTX_HUB_CLUSTER}
"""
"""How the guide of Open Cluster Management tries out a cluster that has joined."""
SAMPLE = serving("docs", {"version": "1.23.0", "ingress": {"kourier": {"enabled": True}}})


async def test_pages_that_need_no_cluster_can_be_followed(
    desk: Path, variables: dict[str, str], tmp_path: Path
):
    assert await Reader(tmp_path, variables).follow(ROOT / "README.md") == 1
    assert await Reader(tmp_path, variables).follow(ROOT / "CONTRIBUTING.md") == 0
    assert await Reader(tmp_path, variables).follow(DOCS / "least-privilege.md") == 2
    assert (tmp_path / "objects.yaml").read_text().count("\nkind: Deployment") > 5


async def test_the_page_about_installing_can_be_followed(reader: Reader):
    assert await reader.follow(DOCS / "install.md") == 7


async def test_the_page_about_the_knative_operator_can_be_followed(reader: Reader):
    """The Knative Operator itself has installed what is taken over."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that the Knative Operator cannot be built")
    project = await go_project(Printed())
    kubeconfig = Path(reader.environment["KUBECONFIG"])
    connection = load([kubeconfig], "hub")
    async with Client(connection) as client:
        hub = Hub(Lent("hub", connection, kubeconfig, DevFolder(kubeconfig.parent)), client)
        await prepare(client, SAMPLE, project.definitions())
        options = ["--kubeconfig", str(kubeconfig)]
        with silenced():
            async with running(project, SAMPLE, options, reader.folder / "theirs.log"):
                await client.create(SERVINGS, SAMPLE.manifest, SAMPLE.namespace)
                await hub.ready(SERVINGS, "1.23.0")

        assert await reader.follow(DOCS / "migrate-knative-operator.md") == 4

        await hub.delete(SERVINGS)
        await hub.gone(SERVINGS)
    await reader.type("kubectl delete namespace knative-operator knative-serving", "the end")


async def test_the_pages_about_a_fleet_at_work_can_be_followed(reader: Reader):
    """One after the other: what one page installs is what the next one looks at."""
    await reader.type(FLEET, "the fleet")
    await reader.type(SMOKE_TEST, "the smoke test of Open Cluster Management")
    pods = (reader.folder / "pods.txt").read_text()
    assert re.search(r"^hello +1/1 +Running +0 ", pods, re.MULTILINE), pods

    for name, blocks in (
        ("works.md", 7),
        ("placement.md", 8),
        ("replica-sets.md", 4),
        ("fleets.md", 10),
        ("upgrade.md", 7),
        ("security.md", 6),
        ("troubleshoot.md", 11),
        ("migrate-ocm.md", 3),
    ):
        assert await reader.follow(DOCS / name) == blocks, name


async def test_the_page_about_clusters_on_ones_machine_can_be_followed(reader: Reader):
    """The last one here: it takes the clusters down."""
    assert await reader.follow(DOCS / "dev-clusters.md") == 4
    assert not list(Path(reader.environment["XDG_DATA_HOME"]).rglob("state.json"))
