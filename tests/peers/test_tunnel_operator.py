"""The Knative Operator installs through our tunnel, by nothing but the ClusterProfile."""

import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from knfleet.api.cluster.access import ACCESS_ACCOUNT
from knfleet.api.core import PODS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import AGENT_NAMESPACE, OPERATOR_NAMESPACE
from knfleet.api.rbac_rules import cluster_role, rule
from knfleet.dev.dev_folder import write_private
from knfleet.hub.profiles.cluster_profile import PROVIDER
from knfleet.install.agent_manifests import binding
from knfleet.kube.client.verbs import Client
from knfleet.operator.rights import INSTALLED, local_rules
from testbed.clusters import Lent
from testbed.operators import Hub
from testbed.peers.goproject import go_project
from testbed.peers.operator import running, silenced
from testbed.peers.remote import CREDENTIALS
from testbed.peers.samples import serving
from testbed.peers.surroundings import prepare
from testbed.printed import Printed
from testbed.waiting import until
from tests.support.tunnel_scene import TunnelScene, tunnel_scene

pytestmark = [pytest.mark.xdist_group("peers"), pytest.mark.full]

PROFILE = {"name": "c1", "namespace": OPERATOR_NAMESPACE}
SPEC = {"version": "1.23.0", "ingress": {"kourier": {"enabled": True}}}
SAMPLE = serving("tunnel", {**SPEC, "clusterProfileRef": PROFILE})


@pytest.fixture
async def tunnel(isolated: list[Lent], tmp_path: Path) -> AsyncIterator[TunnelScene]:
    """A hub with a tunnel, and a spoke that nothing can connect to."""
    async with tunnel_scene(isolated, tmp_path) as made:
        await made.scene.agent.start()
        await made.scene.accept()
        await made.open()
        await made.published(tunnel=True)
        yield made


def provider_file(kubeconfig: Path, folder: Path) -> Path:
    """Access providers of the Knative Operator: a plugin reads the token beside the profile."""
    env = {"KUBECONFIG": str(kubeconfig), "KNFLEET_SECRET_NAMESPACES": OPERATOR_NAMESPACE}
    run: Object = {
        "apiVersion": CREDENTIALS,
        "command": str(Path(sys.executable).parent / "secretreader-plugin"),
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "provideClusterInfo": True,
    }
    content = {"providers": [{"name": PROVIDER, "execConfig": run}]}
    path = folder / "providers.json"
    write_private(path, msgspec.json.encode(content))
    return path


async def allow_operator(spoke: Client) -> None:
    """Give the access account what the Knative Operator needs, as an administrator would.

    Ours gets along with rights on named objects; that one reads and replaces whole kinds.
    """
    name = "knative-operator"
    updates = [rule(group, kinds, ("update",)) for group, kinds in INSTALLED.items()]
    rules = [*local_rules(), *updates]
    bound = binding("ClusterRole", name, ACCESS_ACCOUNT, AGENT_NAMESPACE)
    for manifest in (cluster_role(name, rules), bound):
        kind = await spoke.discovery.resource(manifest["apiVersion"], manifest["kind"])
        await spoke.create(kind, manifest)


async def test_the_knative_operator_installs_and_removes_through_the_tunnel(
    tunnel: TunnelScene, tmp_path: Path
):
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that the Knative Operator cannot be built")
    project, scene = await go_project(Printed()), tunnel.scene
    hub = Hub(scene.hub_lent, scene.hub)
    await prepare(scene.hub, SAMPLE, project.definitions())
    await allow_operator(scene.spoke)
    config = scene.hub_lent.kubeconfig
    options = [
        *("--kubeconfig", str(config)),
        *("--clusterprofile-provider-file", str(provider_file(config, tmp_path))),
    ]

    async def pods() -> int:
        return len((await scene.spoke.list(PODS, SAMPLE.namespace)).items)

    async def has_no_pods() -> bool:
        return await pods() == 0

    log = tmp_path / "operator.log"
    with silenced():
        async with running(project, SAMPLE, options, log):
            await scene.hub.create(SERVINGS, SAMPLE.manifest, SAMPLE.namespace)
            await hub.ready(SERVINGS, "1.23.0")
            assert await pods() > 5

            await scene.hub.delete(SERVINGS, Key.of(SAMPLE.manifest))
            await hub.gone(SERVINGS)
            await until(has_no_pods, "nothing is left on the spoke")
    tunnelled = tunnel.server.registry.get("c1")
    assert tunnelled is not None
    assert tunnelled.status().bytes_received > 1_000_000
    key = (await tunnel.published(tunnel=True))["proxy-url"].partition("@")[0].rpartition(":")[2]
    assert key not in log.read_text(errors="replace")
