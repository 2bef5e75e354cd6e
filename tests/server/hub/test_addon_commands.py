"""`knfleet addon` on a real API server."""

from pathlib import Path

import pytest

from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.cluster.managedcluster import ACCEPTED, CLUSTERS
from knfleet.api.meta import Key
from knfleet.kube.client.verbs import Client
from testbed import hubs
from testbed.clusters import Lend
from testbed.waiting import until
from tests.support import addons
from tests.support.commands import done, refused
from tests.support.registration import accept, is_said, managed_cluster

MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting, namespace: default}
data: {cluster: "{{CLUSTER_NAME}}"}
"""


@pytest.mark.full
async def test_add_ons_are_made_enabled_explained_and_disabled_by_commands(
    lend: Lend, tmp_path: Path
):
    (lent,) = await lend(1, definitions=True)
    await hubs.install(lent.connection)
    file = tmp_path / "agent.yaml"
    file.write_text(MANIFEST)
    config = lent.kubeconfig
    async with Client(lent.connection) as hub, hubs.running(lent.connection):
        await hub.create(CLUSTERS, managed_cluster("c1"))
        await accept(hub, "c1")
        await until(lambda: is_said(hub, "c1", ACCEPTED, "True"), "c1 is accepted")

        printed = await done(config, "addon", "create", "hello", "-f", str(file))
        assert "knfleet addon enable --names hello" in printed
        assert "exists; use --overwrite" in await refused(
            config, "addon", "create", "hello", "-f", str(file)
        )
        assert "does not exist; there are: hello" in await refused(
            config, "addon", "enable", "--names", "other", "--clusters", "c1"
        )
        assert "is not installed on c1" in await refused(
            config, "addon", "explain", "hello", "--cluster", "c1"
        )
        printed = await done(config, "addon", "enable", "--names", "hello", "--clusters", "c1")
        assert "Add-on hello is enabled on cluster c1" in printed
        work = await addons.work_of(hub, "addon-hello-deploy-0", "c1")
        await addons.report(hub, Key.of(work))
        await addons.is_said(hub, Key("c1", "hello"), "Progressing", "False", "Completed")

        table = await done(config, "addon", "get")
        assert table.split()[:7] == [
            *("NAME", "CLUSTER", "AVAILABLE", "DEGRADED", "PROGRESSING"),
            *("hello", "c1"),
        ]
        assert "c1" in await done(config, "addon", "status", "hello")
        printed = await done(config, "addon", "explain", "hello", "--cluster", "c1")
        assert "hello-0.0.1" in printed
        assert "ClusterManagementAddOn default" in printed
        assert "applied" in printed

        await done(config, "addon", "disable", "--names", "hello", "--all-clusters")
        await addons.is_gone(hub, ADDONS, Key("c1", "hello"))
